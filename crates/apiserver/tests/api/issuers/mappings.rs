//! Which users tokens make.

use super::*;

async fn user(server: &Server, token: &str) -> Value {
    let status = review(server, token, &[]).await;
    assert_eq!(status["authenticated"], true, "{status}");
    status["user"].clone()
}

#[tokio::test]
async fn claims_make_a_user_behind_prefixes() {
    let issuer = Issuer::start().await;
    let server = ready(&issuer, MAPPINGS).await;
    let token = issuer.token(json!({"groups": ["team", "system:masters"], "jti": "7"}));
    assert_eq!(code_with(&server, &token).await, 200);
    let status = review(&server, &token, &[]).await;
    let user = json!({
        "username": "oidc:ann", "groups": ["oidc:team", "oidc:system:masters", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=7"]},
    });
    let expected = json!({"authenticated": true, "user": user, "audiences": [OWN]});
    assert_eq!(status, expected);
    // It is for this server alone.
    let other = review(&server, &token, &["other"]).await;
    assert_eq!(other, json!({"user": {}, "error": "invalid bearer token"}));
    // One group as a text, and a name that is not a text for a name of the token.
    let one = issuer.token(json!({"groups": "team", "jti": 7}));
    let expected = json!({"username": "oidc:ann", "groups": ["oidc:team", "system:authenticated"]});
    assert_eq!(super::mappings::user(&server, &one).await, expected);
}

#[tokio::test]
async fn an_address_has_to_be_verified() {
    let issuer = Issuer::start().await;
    let server = ready(
        &issuer,
        "claimMappings: {username: {claim: email, prefix: ''}}",
    )
    .await;
    for (verified, expected) in [
        (json!(null), ""),
        (json!(true), ""),
        (json!(false), "oidc: email not verified"),
        (
            json!("true"),
            "oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool",
        ),
    ] {
        let token = issuer.token(json!({"email": "a@b", "email_verified": verified}));
        let found = error_of(&server, &token).await;
        assert_eq!(found.is_empty(), expected.is_empty(), "{found}");
        assert!(found.contains(expected), "{found}");
    }
    let missing = error_of(&server, &issuer.token(json!({}))).await;
    assert!(
        missing.contains("oidc: parse username claims \"email\": claim not present"),
        "{missing}"
    );
}

#[tokio::test]
async fn expressions_make_a_user_and_rules_refuse_some() {
    let issuer = Issuer::start().await;
    let rest = "claimMappings: {username: {expression: \"'k8s-' + claims.sub\"}, groups: {expression: \"claims.roles.split(',')\"}, \
                uid: {expression: claims.id}, extra: [{key: 'example.org/a', valueExpression: \"claims.?a.orValue('')\"}, \
                {key: 'example.org/b', valueExpression: \"claims.o.b__dot__c\"}]}, \
                claimValidationRules: [{claim: hd, requiredValue: example.org}, {expression: \"claims.exp - claims.nbf <= 3600\", message: too long}], \
                userValidationRules: [{expression: \"!user.username.startsWith('k8s-system:')\", message: reserved}, \
                {expression: \"user.groups.all(g, g != 'system:masters') && user.extra.all(k, k != 'x')\", message: no masters}]";
    let server = ready(&issuer, rest).await;
    let now = jiff::Timestamp::now().as_second();
    let with = |changes: Value| {
        let mut claims = json!({"roles": "a,b", "id": "7", "hd": "example.org", "nbf": now, "o": {"b.c": ["x", ""]}});
        let map = claims.as_object_mut().unwrap();
        map.extend(changes.as_object().unwrap().clone());
        issuer.token(claims)
    };
    let expected = json!({
        "username": "k8s-ann", "uid": "7", "groups": ["a", "b", "system:authenticated"], "extra": {"example.org/b": ["x"]},
    });
    assert_eq!(user(&server, &with(json!({}))).await, expected);
    for (changes, error) in [
        (
            json!({"hd": "other"}),
            "oidc: required claim hd value does not match. Got = other, want = example.org",
        ),
        (
            json!({"hd": 7}),
            "oidc: parse claim hd: json: cannot unmarshal number into Go value of type string",
        ),
        (
            json!({"hd": null}),
            "oidc: required claim hd not present in ID token",
        ),
        (
            json!({"nbf": now - 7200}),
            "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.nbf <= 3600' failed: too long",
        ),
        (
            json!({"sub": "system:x"}),
            "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('k8s-system:')' failed: reserved",
        ),
        (json!({"roles": "a,system:masters"}), "failed: no masters"),
        (
            json!({"roles": 7}),
            "oidc: error evaluating group claim expression: expression 'claims.roles.split(',')' resulted in error: no such overload",
        ),
        (
            json!({"id": 7}),
            "oidc: error evaluating uid claim expression: uid claim expression must return a string",
        ),
        (
            json!({"a": {"b": 1}}),
            "expression must return a string or a list of strings",
        ),
        (
            json!({"sub": 7}),
            "json: cannot unmarshal number into Go value of type string",
        ),
    ] {
        let found = error_of(&server, &with(changes)).await;
        assert!(found.contains(error), "{found}");
    }
}

/// Upstream accepts an empty name out of a claim, which no rule can name, and none out of an expression.
#[tokio::test]
async fn a_user_without_a_name_is_as_upstream_has_it() {
    let issuer = Issuer::start().await;
    let token = issuer.token(json!({"sub": ""}));
    let claim = ready(
        &issuer,
        "claimMappings: {username: {claim: sub, prefix: ''}}",
    )
    .await;
    assert_eq!(code_with(&claim, &token).await, 200);
    let expression = ready(
        &issuer,
        "claimMappings: {username: {expression: claims.sub}}",
    )
    .await;
    let error = error_of(&expression, &token).await;
    assert!(
        error.contains("oidc: empty username via CEL expression is not allowed"),
        "{error}"
    );
}
