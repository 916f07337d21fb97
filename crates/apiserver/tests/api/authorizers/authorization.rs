//! What authorization webhooks are asked, and what their answers mean.

use allot_apiserver::config::authorization::conditions::Condition;

use super::*;
use crate::admin;

/// Allows reading, denies deletions, and has no opinion about other requests.
fn by_verb(review: &Value) -> Option<(u16, String, Bytes)> {
    let asked = &review["spec"];
    let attributes = match asked["resourceAttributes"].is_object() {
        true => &asked["resourceAttributes"],
        false => &asked["nonResourceAttributes"],
    };
    match attributes["verb"].as_str().unwrap_or_default() {
        "get" | "list" => status(&json!({"allowed": true, "reason": "may read"})),
        "delete" | "deletecollection" => {
            status(&json!({"allowed": false, "denied": true, "reason": "is kept"}))
        }
        _ => status(&json!({"allowed": false, "reason": "no idea"})),
    }
}

#[tokio::test]
async fn a_webhook_is_asked_about_the_request() {
    let hook = Hook::start(Box::new(by_verb)).await;
    let server = server(vec![webhook(hook.options())]).await;
    assert_eq!(get(&server, ann(), PODS).await.0, 200);
    let review = hook.last();
    assert_eq!(review["kind"], "SubjectAccessReview");
    assert_eq!(review["apiVersion"], "authorization.k8s.io/v1");
    let spec = json!({
        "user": "ann", "uid": "7", "groups": ["team", "system:authenticated"], "extra": {"k": ["v"]},
        "resourceAttributes": {"verb": "list", "namespace": "default", "version": "v1", "resource": "pods"},
    });
    assert_eq!(review["spec"], spec);
    assert_eq!(*hook.authorization.lock(), "Bearer secret");
    get(&server, ann(), "/version").await;
    let path = json!({"verb": "get", "path": "/version"});
    assert_eq!(hook.last()["spec"]["nonResourceAttributes"], path);
    let kind = "application/json";
    let (code, body) = send(&server, ann(), "POST", PODS, kind, b"{}").await;
    let refused = "pods is forbidden: User \"ann\" cannot create resource \"pods\" in API group \"\" in the namespace \
                   \"default\": no idea";
    assert_eq!((code, &body["message"]), (403, &json!(refused)));
    // Superusers are not asked about.
    let asked = hook.count();
    assert_eq!(get(&server, User::admin(), PODS).await.0, 200);
    assert_eq!(hook.count(), asked);
}

#[tokio::test]
async fn v1beta1_names_groups_otherwise() {
    let hook = Hook::start(Box::new(by_verb)).await;
    let options = WebhookOptions {
        version: ReviewVersion::V1beta1,
        ..hook.options()
    };
    let server = server(vec![webhook(options)]).await;
    assert_eq!(get(&server, ann(), PODS).await.0, 200);
    let review = hook.last();
    assert_eq!(review["apiVersion"], "authorization.k8s.io/v1beta1");
    assert_eq!(
        review["spec"]["group"],
        json!(["team", "system:authenticated"])
    );
    assert_eq!(review["spec"]["groups"], json!(null));
}

/// A selector must not make a webhook believe that a request which has nothing to select is a narrow one.
#[tokio::test]
async fn selectors_are_told_of_requests_that_they_restrict() {
    let hook = Hook::start(Box::new(by_verb)).await;
    let server = server(vec![webhook(hook.options())]).await;
    let selectors =
        "?labelSelector=a%3Db,c,d!%3De,f%3E1&fieldSelector=spec.nodeName%3Dn,metadata.name!%3Dx";
    get(&server, ann(), &format!("{PODS}{selectors}")).await;
    let told = &hook.last()["spec"]["resourceAttributes"];
    let labels = json!({"requirements": [
        {"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "NotIn", "values": ["e"]},
    ]});
    let fields = json!({"requirements": [
        {"key": "metadata.name", "operator": "NotIn", "values": ["x"]},
        {"key": "spec.nodeName", "operator": "In", "values": ["n"]},
    ]});
    assert_eq!(
        (&told["labelSelector"], &told["fieldSelector"]),
        (&labels, &fields)
    );
    for path in [
        format!("{PODS}/p{selectors}"),
        format!("{PODS}?labelSelector=,,"),
    ] {
        get(&server, ann(), &path).await;
        let told = hook.last()["spec"]["resourceAttributes"].clone();
        assert_eq!(told["labelSelector"], json!(null), "{path}");
        assert_eq!(told["fieldSelector"], json!(null), "{path}");
    }
    let kind = "application/json";
    send(
        &server,
        ann(),
        "POST",
        &format!("{PODS}{selectors}"),
        kind,
        b"{}",
    )
    .await;
    assert_eq!(
        hook.last()["spec"]["resourceAttributes"]["labelSelector"],
        json!(null)
    );
}

#[tokio::test]
async fn answers_are_kept_for_their_time() {
    let hook = Hook::start(Box::new(by_verb)).await;
    let options = WebhookOptions {
        authorized_ttl: HOUR,
        ..hook.options()
    };
    let server = server(vec![webhook(options)]).await;
    for _ in 0..3 {
        assert_eq!(get(&server, ann(), PODS).await.0, 200);
    }
    assert_eq!(hook.count(), 1);
    // Of another user nothing is known.
    get(&server, User::new("bob", ["team"]), PODS).await;
    assert_eq!(hook.count(), 2);
    // What is long is asked about each time.
    let long = format!("{PODS}/{}", "x".repeat(10_000));
    for _ in 0..2 {
        get(&server, ann(), &long).await;
    }
    assert_eq!(hook.count(), 4);
    // Answers that do not allow are not kept here.
    for _ in 0..2 {
        let (code, _) = send(&server, ann(), "DELETE", PODS, "application/json", b"").await;
        assert_eq!(code, 403);
    }
    assert_eq!(hook.count(), 6);
}

#[tokio::test]
async fn a_webhook_is_asked_about_what_meets_its_conditions() {
    let hook = Hook::start(Box::new(by_verb)).await;
    let conditions = |text: &str| Conditions::new(vec![Condition::compile(text).unwrap()]);
    for (text, denies_on_error, code, asked) in [
        ("request.user == 'ann'", true, 200, 1),
        ("request.user == 'bob'", true, 403, 0),
        // About a path there is no such attribute.
        ("request.nonResourceAttributes.path == '/x'", true, 500, 0),
        ("request.nonResourceAttributes.path == '/x'", false, 500, 0),
    ] {
        hook.asked.lock().clear();
        let options = WebhookOptions {
            conditions: conditions(text),
            denies_on_error,
            ..hook.options()
        };
        let server = server(vec![webhook(options)]).await;
        let (found, message) = get(&server, ann(), PODS).await;
        assert_eq!((found, hook.count()), (code, asked), "{text}: {message}");
        assert_eq!(
            message.contains("cel evaluation error"),
            code == 500,
            "{message}"
        );
    }
}

#[tokio::test]
async fn reviews_tell_what_a_webhook_says() {
    let hook = Hook::start(Box::new(by_verb)).await;
    let server = server(vec![webhook(hook.options())]).await;
    let review = async |verb: &str| {
        let spec = json!({"user": "ann", "resourceAttributes": {"verb": verb, "resource": "pods",
            "labelSelector": {"requirements": [{"key": "a", "operator": "DoesNotExist"}]}}});
        let (code, body) = admin(&server, "POST", ACCESS, json!({"spec": spec})).await;
        assert_eq!(code, 201, "{body}");
        body["status"].clone()
    };
    let allowed = json!({"allowed": true, "reason": "may read"});
    assert_eq!(review("get").await, allowed);
    let told = &hook.last()["spec"]["resourceAttributes"];
    assert_eq!(told["version"], "*");
    let labels = json!({"requirements": [{"key": "a", "operator": "DoesNotExist"}]});
    assert_eq!(told["labelSelector"], labels);
    let denied = json!({"allowed": false, "denied": true, "reason": "is kept"});
    assert_eq!(review("delete").await, denied);
    let none = json!({"allowed": false, "reason": "no idea"});
    assert_eq!(review("create").await, none);
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}});
    let (_, body) = admin(&server, "POST", rules, body).await;
    let status = json!({
        "resourceRules": [], "nonResourceRules": [], "incomplete": true,
        "evaluationError": "webhook authorizer does not support user rule resolution",
    });
    assert_eq!(body["status"], status);
}

/// Requirements of a review are passed on as they are, those in text as they are parsed.
#[tokio::test]
async fn a_webhook_sees_the_requirements_of_a_review_in_their_order() {
    let hook = Hook::start(Box::new(by_verb)).await;
    let server = server(vec![webhook(hook.options())]).await;
    let field = |key: &str, operator: &str, value: &str| json!({"key": key, "operator": operator, "values": [value]});
    let [node, b, a] = [
        field("spec.nodeName", "In", "n"),
        field("metadata.name", "NotIn", "b"),
        field("metadata.name", "NotIn", "a"),
    ];
    let fields = json!({"requirements": [node, b, a]});
    let labels = json!({"requirements": [
        {"key": "t", "operator": "In", "values": ["b", "a"]}, {"key": "a", "operator": "In", "values": ["x"]},
    ]});
    let review = async |fields: &Value, labels: &Value| {
        let spec = json!({"user": "ann", "resourceAttributes": {
            "verb": "list", "resource": "pods", "fieldSelector": fields, "labelSelector": labels,
        }});
        let (code, body) = admin(&server, "POST", ACCESS, json!({"spec": spec})).await;
        assert_eq!(code, 201, "{body}");
        let told = hook.last()["spec"]["resourceAttributes"].clone();
        (told["fieldSelector"].clone(), told["labelSelector"].clone())
    };
    let told = review(&fields, &labels).await;
    assert_eq!(told, (fields, labels));
    let raw_fields = json!({"rawSelector": "spec.nodeName=n,metadata.name!=b,metadata.name!=a"});
    let raw_labels = json!({"rawSelector": "t in (b,a),a in (x)"});
    let told = review(&raw_fields, &raw_labels).await;
    let fields = json!({"requirements": [a, b, node]});
    let labels = json!({"requirements": [
        {"key": "a", "operator": "In", "values": ["x"]}, {"key": "t", "operator": "In", "values": ["a", "b"]},
    ]});
    assert_eq!(told, (fields, labels));
}
