//! Keys and configurations that change.

use super::*;

async fn metrics(server: &Server) -> String {
    let (code, text) = admin(server, "GET", "/metrics", Value::Null).await;
    assert_eq!(code, 200);
    text.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_new_key_counts_when_it_is_used() {
    let issuer = Issuer::start().await;
    let server = ready(&issuer, MAPPINGS).await;
    let old = issuer.token(json!({}));
    assert_eq!(code_with(&server, &old).await, 200);
    let next = TokenKey::generate().unwrap();
    issuer.publish(&[&next]);
    let claims = issuer.claims(json!({})).to_string();
    let new = signed(&next, &head(&next).to_string(), &claims);
    assert_eq!(code_with(&server, &new).await, 200);
    assert_eq!(code_with(&server, &old).await, 401);
}

#[tokio::test]
async fn discovery_may_be_at_another_place() {
    let issuer = Issuer::start().await;
    let at = "/inside/discovery";
    let document = json!({"issuer": issuer.url, "jwks_uri": format!("{}{KEYS}", issuer.url)});
    issuer.serve_document(at, &document);
    issuer.serve_document(DISCOVERY, &json!({"issuer": "https://other"}));
    let configuration = issuer.configuration(MAPPINGS);
    let configuration = configuration.replace(
        "audiences: [client]",
        &format!(
            "audiences: [client, b], audienceMatchPolicy: MatchAny, discoveryURL: '{}{at}'",
            issuer.url
        ),
    );
    let server = configured(&configuration).await;
    started(&server, &issuer).await;
    for audience in ["client", "b"] {
        let found = error_of(&server, &issuer.token(json!({"aud": audience}))).await;
        assert_eq!(found, "");
    }
    let other = error_of(&server, &issuer.token(json!({"aud": "c"}))).await;
    assert!(
        other.contains("oidc: expected audience in [\"b\" \"client\"] got [\"c\"]"),
        "{other}"
    );
    assert_eq!(issuer.request_count(DISCOVERY), 0);
}

#[tokio::test]
async fn a_changed_configuration_counts_when_its_issuers_have_answered() {
    let issuer = Issuer::start().await;
    let server =
        configured("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n")
            .await;
    let token = issuer.token(json!({}));
    assert_eq!(error_of(&server, &token).await, "invalid bearer token");
    let first = issuer.configuration(MAPPINGS);
    let config = ReloadableConfig::Authentication { anonymous: None };
    server.reload(&config, first.as_bytes()).await.unwrap();
    assert_eq!(code_with(&server, &token).await, 200);
    // What is not valid changes nothing.
    for (change, why) in [
        (first.replace("https:", "http:"), "URL scheme must be https"),
        (
            first.replace("audiences", "audience"),
            "strict decoding error",
        ),
        (
            format!("{first}anonymous: {{enabled: true}}\n"),
            "changed from initial configuration file",
        ),
    ] {
        let error = server.reload(&config, change.as_bytes()).await;
        let error = error.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(code_with(&server, &token).await, 200);
    }
    // While a new issuer does not answer, the old ones count.
    let next = Issuer::start().await;
    next.answers.send_replace(false);
    let second = next.configuration(MAPPINGS);
    let change = server.reload(&config, second.as_bytes());
    tokio::pin!(change);
    tokio::select! {
        outcome = &mut change => panic!("{outcome:?}"),
        code = code_with(&server, &token) => assert_eq!(code, 200),
    }
    next.answers.send_replace(true);
    change.await.unwrap();
    assert_eq!(code_with(&server, &next.token(json!({}))).await, 200);
    assert_eq!(error_of(&server, &token).await, "invalid bearer token");
    let text = metrics(&server).await;
    let name = "apiserver_authentication_config_controller_automatic_reloads_total";
    let has = |begin: &str, labels: &str| {
        let mut lines = text.lines();
        let found = lines.any(|line| line.starts_with(begin) && line.contains(labels));
        assert!(found, "{begin} {labels}: {text}");
    };
    let begin = format!("{name}{{apiserver_id_hash=\"sha256:");
    for (status, count) in [("success", 2), ("failure", 3)] {
        has(&begin, &format!("\",status=\"{status}\"}} {count}"));
    }
    has(
        "apiserver_authentication_jwt_authenticator_latency_seconds_count{jwt_issuer_hash=\"sha256:",
        "\",result=\"success\"}",
    );
    assert_eq!(
        text.matches("\napiserver_authentication_config_controller_last_config_info{")
            .count(),
        1
    );
}

fn hash(text: &str) -> String {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(text);
    format!("sha256:{}", data_encoding::HEXLOWER.encode(&hash))
}

#[tokio::test]
async fn requests_for_keys_are_told_as_long_as_their_issuer_counts() {
    let issuer = Issuer::start().await;
    let server = ready(&issuer, MAPPINGS).await;
    let lines = async |server: &Server| {
        let text = metrics(server).await;
        let begin = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_";
        let lines = text.lines().filter_map(|line| line.strip_prefix(begin));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let keys = || {
        let said = issuer.said.lock();
        let document = String::from_utf8(said.documents[KEYS].2.to_vec()).unwrap();
        format!("hash=\"{}\",", hash(&document))
    };
    let has = |lines: &[String], name: &str, before: &str, after: &str| {
        let begin = format!("{name}{{apiserver_id_hash=\"sha256:");
        let labels = format!(
            "\",{before}jwt_issuer_hash=\"{}\"{after}}} ",
            hash(&issuer.url)
        );
        let found = lines
            .iter()
            .filter(|line| line.starts_with(&begin) && line.contains(&labels));
        assert_eq!(found.count(), 1, "{begin} {labels}: {lines:?}");
    };
    let (times, info) = ("timestamp_seconds", "key_set_info");
    let succeeded = ",result=\"success\"";
    assert_eq!(code_with(&server, &issuer.token(json!({}))).await, 200);
    let found = lines(&server).await;
    has(&found, times, "", succeeded);
    has(&found, info, &keys(), "");
    assert_eq!(found.len(), 2, "{found:?}");
    // Another document takes the place of the first one.
    let first = keys();
    let next = TokenKey::generate().unwrap();
    issuer.publish(&[&next]);
    let claims = issuer.claims(json!({})).to_string();
    let token = signed(&next, &head(&next).to_string(), &claims);
    assert_eq!(code_with(&server, &token).await, 200);
    let found = lines(&server).await;
    assert_ne!(first, keys());
    has(&found, info, &keys(), "");
    assert_eq!(found.len(), 2, "{found:?}");
    let unknown = TokenKey::generate().unwrap();
    let token = signed(&unknown, &head(&unknown).to_string(), &claims);
    let known = keys();
    issuer.answer(KEYS, (500, "", Bytes::new()));
    assert_eq!(code_with(&server, &token).await, 401);
    let found = lines(&server).await;
    has(&found, times, "", ",result=\"failure\"");
    has(&found, info, &known, "");
    assert_eq!(found.len(), 3, "{found:?}");
    // An issuer that stays keeps its numbers; one that goes takes them with it.
    let same = issuer.configuration(&format!("{MAPPINGS}, claimValidationRules: []"));
    let config = ReloadableConfig::Authentication { anonymous: None };
    server.reload(&config, same.as_bytes()).await.unwrap();
    assert_eq!(lines(&server).await.len(), 3);
    let other = Issuer::start().await;
    let configuration = other.configuration(MAPPINGS);
    let changed = server.reload(&config, configuration.as_bytes()).await;
    changed.unwrap();
    assert_eq!(lines(&server).await, Vec::<String>::new());
}
