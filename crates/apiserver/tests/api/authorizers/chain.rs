//! Authorizers in order, the file of policies, and the file of authorizers.

use std::path::Path;

use allot_apiserver::config::authorization::abac::Policies;
use allot_apiserver::config::authorization::file;

use super::*;

fn abac(directory: &Path, lines: &str) -> AuthorizationMode {
    let file = directory.join("policies");
    std::fs::write(&file, lines).unwrap();
    AuthorizationMode::Abac(Arc::new(Policies::read(&file).unwrap()))
}

const ANN_READS: &str = r#"{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "ann",
 "namespace": "*", "resource": "*", "apiGroup": "*", "nonResourcePath": "/apis*", "readonly": true}}"#;

#[tokio::test]
async fn the_first_that_allows_or_denies_decides() {
    let directory = tempfile::tempdir().unwrap();
    let policies = || abac(directory.path(), &ANN_READS.replace('\n', ""));
    let deny = Hook::start(Box::new(|_| {
        status(&json!({"denied": true, "reason": "never"}))
    }))
    .await;
    let none = Hook::start(Box::new(|_| status(&json!({"reason": "no idea"})))).await;
    for (modes, code, message) in [
        (vec![policies(), webhook(deny.options())], 200, ""),
        (
            vec![webhook(deny.options()), policies()],
            403,
            "namespace \"default\": never",
        ),
        (vec![webhook(none.options()), policies()], 200, ""),
        (
            vec![webhook(none.options()), AuthorizationMode::AlwaysDeny],
            403,
            "no idea\nEverything is forbidden.",
        ),
        (vec![AuthorizationMode::Rbac, policies()], 200, ""),
        (vec![], 403, "\"default\""),
    ] {
        let server = server(modes).await;
        let (found, text) = get(&server, ann(), PODS).await;
        assert_eq!(found, code, "{text}");
        assert!(text.ends_with(message), "{text}");
        assert_eq!(get(&server, User::admin(), PODS).await.0, 200);
    }
}

#[tokio::test]
async fn policies_of_a_file_allow() {
    let directory = tempfile::tempdir().unwrap();
    let lines = ANN_READS.replace('\n', "");
    let server = server(vec![abac(directory.path(), &lines)]).await;
    assert_eq!(get(&server, ann(), PODS).await.0, 200);
    assert_eq!(get(&server, ann(), "/apis/apps").await.0, 200);
    assert_eq!(get(&server, ann(), "/version").await.0, 403);
    assert_eq!(get(&server, User::new("bob", ["team"]), PODS).await.0, 403);
    let (code, body) = send(&server, ann(), "POST", PODS, "application/json", b"{}").await;
    let refused = body["message"].as_str().unwrap_or_default();
    assert_eq!(code, 403);
    assert!(refused.ends_with("No policy matched."), "{refused}");
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let asked = br#"{"spec":{"namespace":"default"}}"#;
    let (_, body) = send(&server, ann(), "POST", rules, "application/json", asked).await;
    // It is a creation, which the policy does not allow.
    assert_eq!(body["code"], 403);
}

fn config(kubeconfig: &Path, name: &str, last: &str) -> Vec<u8> {
    let kubeconfig = kubeconfig.display();
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
         - {{type: Webhook, name: {name}, webhook: {{timeout: 10s, failurePolicy: Deny, subjectAccessReviewVersion: v1,\n    \
         matchConditionSubjectAccessReviewVersion: v1, cacheAuthorizedRequests: false,\n    \
         connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {kubeconfig}}},\n    \
         matchConditions: [{{expression: \"request.user != 'carl'\"}}]}}}}\n- {last}\n"
    )
    .into_bytes()
}

#[tokio::test]
async fn the_file_of_authorizers_is_followed_and_the_last_good_one_stays() {
    let allow = Hook::start(Box::new(|_| status(&json!({"allowed": true})))).await;
    let deny = Hook::start(Box::new(|_| status(&json!({"denied": true})))).await;
    let (allow, deny) = (allow.kubeconfig(), deny.kubeconfig());
    let rbac = "{type: RBAC, name: rbac}";
    let first = file::read(&config(&allow, "first", rbac), None).unwrap();
    let server = server(first.clone()).await;
    let initial = ReloadableConfig::Authorization { authorizers: first };
    let [ann, carl] = ["ann", "carl"].map(|name| User::new(name, ["team"]));
    assert_eq!(get(&server, ann.clone(), PODS).await.0, 200);
    assert_eq!(get(&server, carl.clone(), PODS).await.0, 403);
    let missing = Path::new("/none/kubeconfig");
    for (content, error) in [
        (
            b"{".to_vec(),
            "failed to load AuthorizationConfiguration from file: ",
        ),
        (
            Vec::new(),
            "authorizers: Required value: at least one authorization mode",
        ),
        (
            config(&deny, "second", "{type: Node, name: node}"),
            "missing required types: [RBAC]",
        ),
        (
            config(
                &deny,
                "second",
                &format!("{rbac}\n- {{type: ABAC, name: abac}}"),
            ),
            "authorizer type ABAC is not allowed if it was not enabled at initial server startup",
        ),
        (
            config(&deny, "Second", rbac),
            "authorizers[0].name: Invalid value: \"Second\"",
        ),
        (
            config(missing, "second", rbac),
            "authorizers[0].connectionInfo.kubeConfigFile: Invalid value",
        ),
    ] {
        let found = server.reload(&initial, &content).await;
        let found = found.expect_err(error).to_string();
        assert!(found.starts_with(error), "{found}");
        assert_eq!(get(&server, ann.clone(), PODS).await.0, 200, "{error}");
    }
    let changed = config(&deny, "second", rbac);
    server.reload(&initial, &changed).await.unwrap();
    assert_eq!(get(&server, ann.clone(), PODS).await.0, 403);
    let always = format!("{rbac}\n- {{type: AlwaysAllow, name: alwaysallow}}");
    let changed = config(&deny, "second", &always);
    server.reload(&initial, &changed).await.unwrap();
    assert_eq!(get(&server, carl, PODS).await.0, 200);
    assert_eq!(get(&server, ann, PODS).await.0, 403);
    let (_, metrics) = send(&server, User::admin(), "GET", "/metrics", "", b"").await;
    let metrics = metrics.as_str().unwrap().to_owned();
    for line in [
        "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"first\",type=\"Webhook\"} 7",
        "apiserver_authorization_decisions_total{decision=\"denied\",name=\"second\",type=\"Webhook\"} 2",
        "apiserver_authorization_match_condition_exclusions_total{name=\"first\",type=\"Webhook\"} 1",
        "apiserver_authorization_webhook_evaluations_total{name=\"second\",result=\"success\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    for (status, count) in [("failure", "6"), ("success", "2")] {
        let begin = "apiserver_authorization_config_controller_automatic_reloads_total{apiserver_id_hash=\"sha256:";
        let end = format!("\",status=\"{status}\"}} {count}");
        let mut lines = metrics.lines();
        let found = lines.any(|line| line.starts_with(begin) && line.ends_with(&end));
        assert!(found, "{status}: {metrics}");
    }
    let info = "apiserver_authorization_config_controller_last_config_info{";
    assert_eq!(metrics.matches(info).count(), 1);
}
