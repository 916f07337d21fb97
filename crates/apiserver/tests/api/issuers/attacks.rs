//! Tokens that are forged, and issuers that lie, hang or fill the memory.

use super::*;
use allot_testing::wait::until_true;
use ring::hmac;

const RSA: &[u8] = include_bytes!("../../keys/rsa.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("../../keys/rsa.pub.pem");

fn encode(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// Makes sure that none of the tokens proves an identity, and why. All at the same time: keys are asked for once a second.
async fn refused(server: &Server, tokens: &[(String, &str)]) {
    let outcomes = tokens.iter().map(|(token, why)| async move {
        let (code, found) = tokio::join!(code_with(server, token), error_of(server, token));
        assert_eq!(code, 401, "{token}: {why}");
        assert!(found.contains(why), "{why}: {found}");
        assert!(!found.is_empty());
    });
    futures::future::join_all(outcomes).await;
}

#[tokio::test]
async fn forged_signatures_prove_nothing() {
    let issuer = Issuer::start().await;
    let rsa = TokenKey::from_pem(RSA).unwrap();
    issuer.publish(&[&issuer.key, &rsa]);
    let server = ready(&issuer, MAPPINGS).await;
    let claims = issuer.claims(json!({"sub": "root"})).to_string();
    let unsigned = |head: &Value| format!("{}.{}", encode(&head.to_string()), encode(&claims));
    // A code whose secret is the public key in one of its forms.
    let coded = |secret: &[u8]| {
        let text = unsigned(&json!({"alg": "HS256", "kid": rsa.public().id()}));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    let unsupported = "oidc: id token signed with unsupported algorithm";
    let wrong = "failed to verify id token signature";
    let malformed = "oidc: malformed jwt";
    let stranger = TokenKey::generate().unwrap();
    let good = issuer.token(json!({}));
    let (text, signature) = good.rsplit_once('.').unwrap();
    let (own_head, _) = text.split_once('.').unwrap();
    let by = |head: Value| signed(&issuer.key, &head.to_string(), &claims);
    assert_eq!(error_of(&server, &good).await, "");
    refused(
        &server,
        &[
            (
                format!("{}.", unsigned(&json!({"alg": "none"}))),
                unsupported,
            ),
            (
                format!(
                    "{}.",
                    unsigned(&json!({"alg": "None", "kid": issuer.key.public().id()}))
                ),
                unsupported,
            ),
            (format!("{}.{signature}", unsigned(&json!({}))), unsupported),
            (coded(RSA_PUBLIC), unsupported),
            (
                coded(rsa.public().document().to_string().as_bytes()),
                unsupported,
            ),
            // Another text under a good signature, and none.
            (format!("{own_head}.{}.{signature}", encode(&claims)), wrong),
            (format!("{text}."), wrong),
            // A stranger under the name of a known key, under none and under its own.
            (
                signed(&stranger, &head(&issuer.key).to_string(), &claims),
                wrong,
            ),
            (signed(&stranger, "{\"alg\":\"ES256\"}", &claims), wrong),
            (
                signed(&stranger, &head(&stranger).to_string(), &claims),
                wrong,
            ),
            // A key of another type, and an algorithm that the key is not for.
            (by(json!({"alg": "ES256", "kid": rsa.public().id()})), wrong),
            (
                by(json!({"alg": "RS256", "kid": issuer.key.public().id()})),
                wrong,
            ),
            (signed(&rsa, "{\"alg\":\"PS256\"}", &claims), wrong),
            // The sender's own key in the head.
            (
                signed(
                    &stranger,
                    &json!({"alg": "ES256", "jwk": stranger.public().document()}).to_string(),
                    &claims,
                ),
                wrong,
            ),
            (
                by(json!({"alg": "ES256", "crit": ["exp"], "exp": 0})),
                malformed,
            ),
            (by(json!({"alg": ["ES256"]})), malformed),
            (by(json!({"alg": "ES256", "kid": 7})), malformed),
            (
                signed(&issuer.key, "{\"alg\":\"none\",\"alg\":\"ES256\"}", &claims),
                malformed,
            ),
            (format!("{text}.{signature}="), malformed),
            // These are no tokens of the issuer at all.
            (format!("{good}.{signature}"), "invalid bearer token"),
            (
                format!("{{\"payload\":\"{}\"}}", encode(&claims)),
                "invalid bearer token",
            ),
            (
                signed(
                    &issuer.key,
                    &head(&issuer.key).to_string(),
                    &"[".repeat(5000),
                ),
                "invalid bearer token",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn claims_that_are_wrong_prove_nothing() {
    let issuer = Issuer::start().await;
    let server = ready(&issuer, MAPPINGS).await;
    let now = jiff::Timestamp::now().as_second();
    let expired = "oidc: token is expired";
    let mistyped = "oidc: failed to unmarshal claims: json: ";
    let audience = "oidc: expected audience \"client\" got ";
    let foreign = "invalid bearer token";
    for (changes, why) in [
        (json!({"aud": "other"}), audience),
        (json!({"aud": ["other", "client2"]}), audience),
        (json!({"aud": null}), audience),
        (json!({"aud": []}), audience),
        (json!({"aud": 7}), mistyped),
        (json!({"aud": ["client", 7]}), mistyped),
        (json!({"exp": now - 1}), expired),
        // The end is the beginning of a second.
        (json!({"exp": now}), expired),
        (json!({"exp": null}), expired),
        (json!({"exp": 0}), expired),
        (json!({"exp": -1e300}), expired),
        (json!({"exp": "never"}), mistyped),
        (json!({"exp": [now + 600]}), mistyped),
        (
            json!({"nbf": now + 600}),
            "oidc: current time before the nbf",
        ),
        (json!({"nbf": {}}), mistyped),
        (json!({"iat": "x"}), mistyped),
        (json!({"sub": 7}), mistyped),
        (
            json!({"sub": null}),
            "oidc: parse username claims \"sub\": claim not present",
        ),
        (
            json!({"groups": 7}),
            "oidc: parse groups claim \"groups\": json: ",
        ),
        (
            json!({"groups": ["a", {"b": 1}]}),
            "oidc: parse groups claim \"groups\": json: ",
        ),
        (
            json!({"groups": ["x".repeat(1 << 17)]}),
            "too many attributes",
        ),
        (json!({"iss": "https://other"}), foreign),
        (json!({"iss": format!("{}/", issuer.url)}), foreign),
        (json!({"iss": null}), foreign),
        (json!({"iss": [issuer.url]}), foreign),
        // Groups that are kept elsewhere are not asked for; a token without them would be another.
        (
            json!({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"endpoint": issuer.url}}}),
            "oidc: could not expand distributed claims",
        ),
        (
            json!({"_claim_names": {"groups": "s"}}),
            "oidc: source does not exist",
        ),
        (json!({"_claim_names": ["groups"]}), mistyped),
    ] {
        let token = issuer.token(changes.clone());
        refused(&server, &[(token, why)]).await;
    }
    for changes in [
        json!({"aud": ["other", "client"]}),
        json!({"exp": now as f64 + 600.5}),
        json!({"exp": (now + 600).to_string()}),
        json!({"nbf": now + 30}),
        json!({"_claim_names": {"other": "s"}, "_claim_sources": {"s": {"endpoint": "x"}}}),
    ] {
        let found = error_of(&server, &issuer.token(changes.clone())).await;
        assert_eq!(found, "", "{changes}");
    }
}

/// Of a claim that is there twice the last one counts, everywhere: what is checked is what is used.
#[tokio::test]
async fn a_claim_that_is_there_twice_is_one() {
    let issuer = Issuer::start().await;
    let server = ready(&issuer, MAPPINGS).await;
    let twice = |first: &str| {
        let claims = issuer.claims(json!({})).to_string();
        let claims = format!("{{{first},{}", &claims[1..]);
        signed(&issuer.key, &head(&issuer.key).to_string(), &claims)
    };
    let status = review(
        &server,
        &twice("\"sub\":\"root\",\"iss\":\"https://other\""),
        &[],
    )
    .await;
    assert_eq!(status["user"]["username"], "oidc:ann");
    let mut claims = issuer.claims(json!({})).to_string();
    claims.truncate(claims.len() - 1);
    for (last, why) in [
        ("\"iss\":\"https://other\"", "invalid bearer token"),
        ("\"aud\":\"other\"", "oidc: expected audience"),
        ("\"exp\":1", "oidc: token is expired"),
    ] {
        let claims = format!("{claims},{last}}}");
        let token = signed(&issuer.key, &head(&issuer.key).to_string(), &claims);
        refused(&server, &[(token, why)]).await;
    }
}

/// A token may leave out which key has signed it.
#[tokio::test]
async fn a_key_without_a_name_is_found() {
    let issuer = Issuer::start().await;
    let rsa = TokenKey::from_pem(RSA).unwrap();
    issuer.publish(&[&rsa, &issuer.key]);
    let server = ready(&issuer, MAPPINGS).await;
    let claims = issuer.claims(json!({})).to_string();
    for key in [&issuer.key, &rsa] {
        let head = json!({"alg": key.public().algorithm()}).to_string();
        assert_eq!(error_of(&server, &signed(key, &head, &claims)).await, "");
    }
}

/// The attack: tokens that no key has signed make the server ask the issuer for each.
#[tokio::test]
async fn many_forged_tokens_ask_the_issuer_once() {
    let issuer = Issuer::start().await;
    let server = ready(&issuer, MAPPINGS).await;
    let stranger = TokenKey::generate().unwrap();
    let claims = issuer.claims(json!({})).to_string();
    let before = issuer.request_count(KEYS);
    let forged = (0..200).map(|number| {
        let head = json!({"alg": "ES256", "kid": number.to_string()}).to_string();
        let token = signed(&stranger, &head, &claims);
        let server = &server;
        async move { code_with(server, &token).await }
    });
    let codes = futures::future::join_all(forged).await;
    assert!(codes.iter().all(|code| *code == 401), "{codes:?}");
    // All of them wait for one answer.
    assert!(
        issuer.request_count(KEYS) - before <= 2,
        "{}",
        issuer.request_count(KEYS)
    );
    // A token of a known key needs none.
    assert_eq!(code_with(&server, &issuer.token(json!({}))).await, 200);
}

/// An issuer that does not answer holds up none but the tokens that need its answer.
#[tokio::test]
async fn a_slow_issuer_holds_up_no_other_token() {
    let issuer = Issuer::start().await;
    issuer.answers.send_replace(false);
    let server = configured(&issuer.configuration(MAPPINGS)).await;
    until_true("it was asked", || issuer.request_count(DISCOVERY) > 0).await;
    let token = issuer.token(json!({}));
    let found = error_of(&server, &token).await;
    assert!(
        found.contains("oidc: authenticator not initialized"),
        "{found}"
    );
    assert_eq!(code_with(&server, &token).await, 401);
    issuer.answers.send_replace(true);
    until("the token counts", || async {
        match code_with(&server, &token).await {
            200 => Ok(()),
            code => Err(code),
        }
    })
    .await;
    issuer.answers.send_replace(false);
    let stranger = TokenKey::generate().unwrap();
    let claims = issuer.claims(json!({})).to_string();
    let forged = signed(&stranger, &head(&stranger).to_string(), &claims);
    tokio::select! {
        code = code_with(&server, &forged) => panic!("{code}"),
        code = code_with(&server, &token) => assert_eq!(code, 200),
    }
}

/// Documents of issuers that are not theirs, lead elsewhere, or are too large.
#[tokio::test]
async fn an_issuer_that_misbehaves_proves_nothing() {
    let elsewhere = Issuer::start().await;
    let keys = format!("{}{KEYS}", elsewhere.url);
    let place: &'static str = format!("{}{DISCOVERY}", elsewhere.url).leak();
    let huge = Bytes::from(vec![b' '; (1 << 20) + 1]);
    let other = json!({"issuer": elsewhere.url, "jwks_uri": keys}).to_string();
    for (document, why) in [
        (
            (200, "", other.into()),
            "oidc: issuer did not match the issuer returned by provider",
        ),
        ((307, place, Bytes::new()), "307 Temporary Redirect"),
        ((200, "", huge.clone()), "unable to read response body"),
        ((404, "", Bytes::new()), "404 Not Found"),
        (
            (200, "", "[".repeat(9999).into()),
            "oidc: failed to decode provider discovery object",
        ),
        ((200, "", "{}".into()), "oidc: issuer did not match"),
    ] {
        let issuer = Issuer::start().await;
        issuer.answer(DISCOVERY, document);
        let server = configured(&issuer.configuration(MAPPINGS)).await;
        wait_until_unusable(&server, &issuer, why).await;
        assert_eq!(issuer.request_count(KEYS), 0);
    }
    let issuer = Issuer::start().await;
    issuer.serve_document(DISCOVERY, &json!({"issuer": issuer.url}));
    let server = configured(&issuer.configuration(MAPPINGS)).await;
    wait_until_unusable(&server, &issuer, "provider did not return JWKS URL").await;
    let issuer = Issuer::start().await;
    let insecure = keys.replace("https", "http");
    issuer.serve_document(
        DISCOVERY,
        &json!({"issuer": issuer.url, "jwks_uri": insecure}),
    );
    let server = ready(&issuer, MAPPINGS).await;
    let found = error_of(&server, &issuer.token(json!({}))).await;
    assert!(found.contains("URL scheme must be https"), "{found}");
    let issuer = Issuer::start().await;
    let server = ready(&issuer, MAPPINGS).await;
    let key = TokenKey::generate().unwrap();
    let claims = issuer.claims(json!({})).to_string();
    let token = signed(&key, &head(&key).to_string(), &claims);
    for (document, why) in [
        ((200, "", huge), "unable to read response body"),
        ((307, place, Bytes::new()), "307 Temporary Redirect"),
        (
            (200, "", "{\"keys\": [".into()),
            "oidc: failed to decode keys",
        ),
    ] {
        issuer.answer(KEYS, document);
        let found = error_of(&server, &token).await;
        assert!(found.contains(why), "{found}");
        // Known keys stay.
        assert_eq!(code_with(&server, &issuer.token(json!({}))).await, 200);
    }
    let asked = [DISCOVERY, KEYS].map(|path| elsewhere.request_count(path));
    assert_eq!(asked, [0, 0]);
}

/// Waits until the tokens of an issuer are rejected with this reason.
async fn wait_until_unusable(server: &Server, issuer: &Issuer, why: &str) {
    let token = issuer.token(json!({}));
    until(why, || async {
        let found = error_of(server, &token).await;
        match found.contains(why) {
            true => Ok(()),
            false => Err(found),
        }
    })
    .await;
    assert_eq!(code_with(server, &token).await, 401);
}

/// Whatever answers at the place of the issuer with a certificate of another authority is not believed.
#[tokio::test]
async fn only_the_issuer_itself_is_believed() {
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let [ours, theirs] = [&issuer, &other].map(|it| it.ca.replace('\n', "\\n"));
    let configuration = issuer.configuration(MAPPINGS).replace(&ours, &theirs);
    let server = configured(&configuration).await;
    let why = "x509: certificate signed by unknown authority";
    wait_until_unusable(&server, &issuer, why).await;
    assert_eq!(issuer.request_count(DISCOVERY), 0);
}
