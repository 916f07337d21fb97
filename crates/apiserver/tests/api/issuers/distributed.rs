//! Groups that a token keeps elsewhere.

use super::*;

const GROUPS: &str = "/groups";

/// Claims that refer to an endpoint for the groups.
fn claim_source(place: &str, token: &str) -> Value {
    let source = json!({"endpoint": place, "access_token": token});
    json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": source}})
}

/// Lets a place of an issuer answer with a token with these claims, signed by it.
fn answers(issuer: &Issuer, path: &str, changes: Value) {
    let token = issuer.token(changes);
    issuer.answer(path, (200, "", token.into()));
}

async fn groups_of(server: &Server, token: &str) -> Value {
    let status = review(server, token, &[]).await;
    assert_eq!(status["authenticated"], true, "{status}");
    status["user"]["groups"].clone()
}

#[tokio::test]
async fn groups_are_asked_for_where_the_token_keeps_them() {
    let issuer = Issuer::start().await;
    let server = ready(&issuer, MAPPINGS).await;
    let place = format!("{}{GROUPS}", issuer.url);
    answers(&issuer, GROUPS, json!({"groups": ["a", "b"]}));
    let everybody = "system:authenticated";
    let token = issuer.token(claim_source(&place, "secret"));
    let expected = json!(["oidc:a", "oidc:b", everybody]);
    assert_eq!(groups_of(&server, &token).await, expected);
    assert_eq!(issuer.said.lock().credentials, ["Bearer secret"]);
    // They are asked for again each time, and not at all where the token has them.
    answers(&issuer, GROUPS, json!({"groups": "c"}));
    assert_eq!(
        groups_of(&server, &token).await,
        json!(["oidc:c", everybody])
    );
    let mut both = claim_source(&place, "");
    both["groups"] = json!(["own"]);
    let asked = issuer.request_count(GROUPS);
    assert_eq!(
        groups_of(&server, &issuer.token(both)).await,
        json!(["oidc:own", everybody])
    );
    let aggregated =
        json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"JWT": "x.y.z"}}});
    assert_eq!(
        groups_of(&server, &issuer.token(aggregated)).await,
        json!([everybody])
    );
    assert_eq!(issuer.request_count(GROUPS), asked);
    assert_eq!(
        issuer.said.lock().credentials.len(),
        2,
        "no empty credentials"
    );
}

#[tokio::test]
async fn why_groups_cannot_be_had_is_told_in_the_words_of_upstream() {
    let issuer = Issuer::start().await;
    let server = ready(&issuer, MAPPINGS).await;
    let place = format!("{}{GROUPS}", issuer.url);
    let check = async |source: Value, why: &str| {
        let token = issuer.token(source);
        let found = error_of(&server, &token).await;
        let expected = format!("oidc: could not expand distributed claims: {why}");
        assert!(found.contains(&expected), "{found}, expected {expected}");
        assert_eq!(code_with(&server, &token).await, 401);
    };
    let getting = "while getting distributed claim \"groups\": ";
    let missing = format!("{getting}error while getting distributed claim JWT: 404 Not Found");
    check(claim_source(&place, ""), &missing).await;
    let insecure = place.replace("https", "http");
    let why = format!("{getting}Get \"{insecure}\": URL scheme must be https");
    check(claim_source(&insecure, ""), &why).await;
    check(
        claim_source(&place, "a\nb"),
        &format!("{getting}Get \"{place}\""),
    )
    .await;
    let sources =
        json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"endpoint": 1}}});
    let unmarshal = "oidc: could not parse claim sources: json: cannot unmarshal number into Go value of type string";
    check(sources, unmarshal).await;
    let untrusted =
        format!("getting untrusted issuer from endpoint {place} failed for claim \"groups\": ");
    let claims = |changes: Value| issuer.token(changes);
    let foreign = TokenKey::generate().unwrap();
    let forged = signed(
        &foreign,
        &head(&foreign).to_string(),
        &issuer.claims(json!({"groups": "a"})).to_string(),
    );
    let verify = "verify distributed claim token: ";
    let without = format!(
        "jwt returned by distributed claim endpoint \"{place}\" did not contain claim: groups"
    );
    for (answer, why) in [
        (
            "{\"groups\": []}".to_owned(),
            format!("{untrusted}token is not compact JWT"),
        ),
        ("a.b".to_owned(), format!("{untrusted}malformed token")),
        (claims(json!({})), without),
        (
            claims(json!({"groups": "a", "aud": "other"})),
            format!("{verify}oidc: expected audience \"client\" got [\"other\"]"),
        ),
        (
            claims(json!({"groups": "a", "exp": 1})),
            format!("{verify}oidc: token is expired"),
        ),
        (forged, format!("{verify}failed to verify signature")),
    ] {
        issuer.answer(GROUPS, (200, "", answer.into()));
        check(claim_source(&place, ""), &why).await;
    }
}

/// An issuer that signs for groups is found by its own document, and has the certificate that the first issuer must have.
#[tokio::test]
async fn attack_issuers_of_groups_have_to_prove_themselves() {
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let server = ready(&issuer, MAPPINGS).await;
    let place = format!("{}{GROUPS}", issuer.url);
    // The other issuer has a certificate of an authority that is not configured, both as a place and as an issuer.
    let elsewhere = format!("{}{GROUPS}", other.url);
    answers(&other, GROUPS, json!({"groups": "a"}));
    let found = error_of(&server, &issuer.token(claim_source(&elsewhere, "secret"))).await;
    assert!(
        found.contains("x509: certificate signed by unknown authority"),
        "{found}"
    );
    let signed_by_other = other.token(json!({"groups": "system:masters"}));
    issuer.answer(GROUPS, (200, "", signed_by_other.into()));
    let token = issuer.token(claim_source(&place, ""));
    let found = error_of(&server, &token).await;
    let why = format!(
        "verifying untrusted issuer {} failed: verifier not initialized for issuer: \"{}\"",
        other.url, other.url
    );
    assert!(found.contains(&why), "{found}");
    assert_eq!(
        [DISCOVERY, GROUPS].map(|path| other.request_count(path)),
        [0, 0]
    );
    assert!(other.said.lock().credentials.is_empty());
    // What is not signed by a trusted issuer makes the server send no request.
    let key = TokenKey::generate().unwrap();
    let asked = issuer.request_count(GROUPS);
    let forged = signed(
        &key,
        &head(&key).to_string(),
        &issuer.claims(claim_source(&place, "")).to_string(),
    );
    assert_eq!(code_with(&server, &forged).await, 401);
    assert_eq!(issuer.request_count(GROUPS), asked);
    // Redirects are not followed, with the credentials or without.
    issuer.answer(GROUPS, (302, "/metadata", Bytes::new()));
    let found = error_of(&server, &issuer.token(claim_source(&place, "secret"))).await;
    assert!(found.contains("302 Found"), "{found}");
    assert_eq!(issuer.request_count("/metadata"), 0);
    // Answers are bounded.
    issuer.answer(GROUPS, (200, "", vec![b'x'; 2 << 20].into()));
    let found = error_of(&server, &token).await;
    assert!(found.contains("unable to read response body"), "{found}");
    // Issuers are, too: each of them would be asked where its keys are.
    for index in 0..20 {
        let name = format!("https://127.0.0.1:1/{index}");
        answers(&issuer, GROUPS, json!({"groups": "a", "iss": name}));
        let found = error_of(&server, &token).await;
        assert!(found.contains("verifying untrusted issuer"), "{found}");
        let is_full = found.contains("there are more than 16 issuers");
        assert_eq!(is_full, index >= 15, "{found}");
    }
}
