//! Which tokens the server accepts, with several issuers, audiences and keys, and which it must not.

use allot_apiserver::Server;
use allot_apiserver::config::{AccountTokens, Config};
use allot_apiserver::keys::{TokenKey, VerifyingKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::{admin, with_config};

const RSA: &[u8] = include_bytes!("../../keys/rsa.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("../../keys/rsa.pub.pem");
const P384: &[u8] = include_bytes!("../../keys/p384.pem");
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/app";

async fn server(account_tokens: AccountTokens) -> Server {
    let config = Config {
        disabled_admission: vec!["ServiceAccount".to_owned()],
        account_tokens,
        ..Config::default()
    };
    let server = with_config(config).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "app"}});
    assert_eq!(admin(&server, "POST", accounts, account).await.0, 201);
    server
}

/// Two issuers and audiences, and keys of three types, of which an RSA key signs.
async fn with_all() -> (Server, [TokenKey; 3]) {
    let keys = [
        TokenKey::from_pem(RSA).unwrap(),
        TokenKey::from_pem(P384).unwrap(),
        TokenKey::generate().unwrap(),
    ];
    let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let options = AccountTokens {
        issuers: names(["https://new.example.com", "https://old.example.com"]),
        api_audiences: names(["api", "kubernetes"]),
        signing_key: Some(keys[0].clone()),
        key_is_chosen: true,
        keys: keys.each_ref().map(|key| key.public().clone()).to_vec(),
        ..AccountTokens::default()
    };
    (server(options).await, keys)
}

/// The error of a review of the token, empty if it is good; a request with it is answered accordingly.
async fn refusal(server: &Server, token: &str) -> String {
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, review) = admin(server, "POST", path, json!({"spec": {"token": token}})).await;
    assert_eq!(code, 201, "{review}");
    let error = review["status"]["error"].as_str().unwrap_or_default();
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from_static(b"{}")))
        .unwrap();
    let code = server.handle(request, None).await.status().as_u16();
    assert_eq!(code, if error.is_empty() { 201 } else { 401 }, "{error}");
    error.to_owned()
}

async fn claims(server: &Server) -> Value {
    let (_, account) = admin(server, "GET", ACCOUNT, Value::Null).await;
    let now = jiff::Timestamp::now().as_second();
    json!({
        "iss": "https://new.example.com", "aud": ["api"], "iat": now, "nbf": now, "exp": now + 600,
        "sub": "system:serviceaccount:default:app",
        "kubernetes.io": {
            "namespace": "default", "serviceaccount": {"name": "app", "uid": account["metadata"]["uid"]},
        },
    })
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn signed(head: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let text = format!(
        "{}.{}",
        encode(head.to_string()),
        encode(claims.to_string())
    );
    format!("{text}.{}", encode(sign(text.as_bytes())))
}

fn by(key: &TokenKey, claims: &Value) -> String {
    let head = json!({"alg": key.public().algorithm(), "kid": key.public().id()});
    signed(&head, claims, |text| key.sign(text).unwrap())
}

const BROKEN: &str = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]";

#[tokio::test]
async fn every_configured_key_issuer_and_audience_is_good() {
    let (server, keys) = with_all().await;
    let mut claims = claims(&server).await;
    for issuer in ["https://new.example.com", "https://old.example.com"] {
        for audience in [
            json!(["api"]),
            json!("kubernetes"),
            json!(["x", "api"]),
            json!([]),
        ] {
            (claims["iss"], claims["aud"]) = (issuer.into(), audience);
            for key in &keys {
                assert_eq!(refusal(&server, &by(key, &claims)).await, "");
                // A token need not name its key.
                let head = json!({"alg": key.public().algorithm()});
                let token = signed(&head, &claims, |text| key.sign(text).unwrap());
                assert_eq!(refusal(&server, &token).await, "");
            }
        }
    }
}

#[tokio::test]
async fn tokens_for_and_by_others_are_refused() {
    let (server, [rsa, ..]) = with_all().await;
    let good = claims(&server).await;
    let mut claims = good.clone();
    for issuer in [
        json!("https://evil.example.com"),
        json!(""),
        Value::Null,
        json!(["https://new.example.com"]),
    ] {
        claims["iss"] = issuer;
        assert_eq!(
            refusal(&server, &by(&rsa, &claims)).await,
            "invalid bearer token"
        );
    }
    let mut claims = good.clone();
    claims["aud"] = json!(["a", "b\""]);
    let error = refusal(&server, &by(&rsa, &claims)).await;
    let text =
        r#"token audiences ["a" "b\""] is invalid for the target audiences ["api" "kubernetes"]"#;
    assert!(error.contains(text), "{error}");
    // The issuer is an audience only where no others are configured.
    claims["aud"] = json!(["https://new.example.com"]);
    assert!(
        refusal(&server, &by(&rsa, &claims))
            .await
            .contains("is invalid for")
    );
}

#[tokio::test]
async fn forged_signatures_are_refused() {
    let (server, [rsa, curve, _]) = with_all().await;
    let claims = claims(&server).await;
    let id = rsa.public().id();
    // No signature.
    for algorithm in ["none", "None", "", "HS256"] {
        for head in [
            json!({"alg": algorithm}),
            json!({"alg": algorithm, "kid": id}),
        ] {
            let token = signed(&head, &claims, |_| Vec::new());
            assert_eq!(refusal(&server, &token).await, BROKEN, "{head}");
        }
    }
    // The public key, which everybody knows, as the secret of a code.
    let document = rsa.public().document();
    let modulus = URL_SAFE_NO_PAD
        .decode(document["n"].as_str().unwrap())
        .unwrap();
    for secret in [RSA_PUBLIC, RSA_PUBLIC.trim_ascii(), &modulus[..], b""] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        for algorithm in ["HS256", "RS256", "ES256"] {
            let head = json!({"alg": algorithm, "kid": id});
            let token = signed(&head, &claims, |text| {
                ring::hmac::sign(&key, text).as_ref().to_vec()
            });
            assert_eq!(refusal(&server, &token).await, BROKEN, "{algorithm}");
        }
    }
    // A foreign key with the name of a known one, in each type, and a known key with the name of another one.
    let stranger = TokenKey::generate().unwrap();
    for (key, named) in [
        (&stranger, id),
        (&stranger, curve.public().id()),
        (&rsa, curve.public().id()),
        (&curve, id),
    ] {
        for algorithm in ["RS256", "PS256", "ES256", "ES384", "none"] {
            let head = json!({"alg": algorithm, "kid": named});
            let token = signed(&head, &claims, |text| key.sign(text).unwrap());
            assert_eq!(
                refusal(&server, &token).await,
                BROKEN,
                "{algorithm} {named}"
            );
        }
    }
    // Its own name, and a key that comes in the head.
    let mut head = json!({"alg": "ES256", "kid": stranger.public().id()});
    let unknown = "[invalid bearer token, invalid signature, no keys found]";
    let token = |head: &Value| signed(head, &claims, |text| stranger.sign(text).unwrap());
    assert_eq!(refusal(&server, &token(&head)).await, unknown);
    head["jwk"] = stranger.public().document();
    assert_eq!(refusal(&server, &token(&head)).await, unknown);
    head["kid"] = Value::Null;
    assert_eq!(refusal(&server, &token(&head)).await, BROKEN);
    // The text was changed after it was signed.
    let good = by(&rsa, &claims);
    assert_eq!(refusal(&server, &good).await, "");
    let mut other = claims.clone();
    other["exp"] = (claims["exp"].as_i64().unwrap() + 1).into();
    let parts: Vec<&str> = good.split('.').collect();
    let forged = format!("{}.{}.{}", parts[0], encode(other.to_string()), parts[2]);
    assert_eq!(refusal(&server, &forged).await, BROKEN);
    // An extension that would have to be understood.
    let head = json!({"alg": "RS256", "kid": id, "crit": ["b64"], "b64": false});
    let token = signed(&head, &claims, |text| rsa.sign(text).unwrap());
    assert_eq!(refusal(&server, &token).await, BROKEN);
}

/// A key that signs and is not among the accepted ones makes tokens for others.
#[tokio::test]
async fn a_chosen_key_is_accepted_only_where_it_is_listed() {
    let options = |is_chosen| AccountTokens {
        signing_key: Some(TokenKey::from_pem(P384).unwrap()),
        key_is_chosen: is_chosen,
        keys: VerifyingKey::all_from_pem(RSA_PUBLIC).unwrap(),
        ..AccountTokens::default()
    };
    for is_chosen in [true, false] {
        let server = server(options(is_chosen)).await;
        let (_, made) = admin(&server, "POST", &format!("{ACCOUNT}/token"), json!({})).await;
        let token = made["status"]["token"].as_str().unwrap();
        let error = refusal(&server, token).await;
        assert_eq!(error.is_empty(), !is_chosen, "{error}");
    }
}

/// The code, the warnings and the body of an answer to the administrator.
async fn answer(server: &Server, path: &str, body: Value) -> (u16, String, String, Value) {
    let method = if body.is_null() { "GET" } else { "POST" };
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(text))).unwrap();
    let user = allot_apiserver::identity::User::admin();
    let response = server.handle(request, Some(user)).await;
    let header = |name: &str| {
        let value = response.headers().get(name);
        value.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    let (code, warning, cache) = (
        response.status().as_u16(),
        header("warning"),
        header("cache-control"),
    );
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    (code, warning, cache, body)
}

/// The claims of a token.
fn token_claims(made: &Value) -> Value {
    let token = made["status"]["token"].as_str().unwrap();
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

#[tokio::test]
async fn tokens_of_pods_live_longer_and_others_have_a_limit() {
    let mut options = AccountTokens {
        max_seconds: Some(7200),
        ..AccountTokens::default()
    };
    let path = format!("{ACCOUNT}/token");
    for is_extended in [true, false] {
        options.is_extended = is_extended;
        let server = server(options.clone()).await;
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {"serviceAccountName": "app", "containers": [{"name": "c", "image": "i"}]},
        });
        assert_eq!(
            admin(&server, "POST", "/api/v1/namespaces/default/pods", pod)
                .await
                .0,
            201
        );
        let (_, warning, _, made) =
            answer(&server, &path, json!({"spec": {"expirationSeconds": 9000}})).await;
        assert_eq!(
            warning,
            "299 - \"requested expiration of 9000 seconds shortened to 7200 seconds\""
        );
        assert_eq!(made["spec"]["expirationSeconds"], 7200);
        let year = 365 * 24 * 3600;
        let cases = [
            (
                3607,
                Value::Null,
                true,
                if is_extended { year } else { 3607 },
            ),
            (
                3607,
                json!(["https://kubernetes.default.svc"]),
                true,
                if is_extended { year } else { 3607 },
            ),
            (
                3607,
                json!(["https://kubernetes.default.svc", "vault"]),
                true,
                3607,
            ),
            (3607, Value::Null, false, 3607),
            (3600, Value::Null, true, 3600),
        ];
        for (seconds, audiences, of_pod, life) in cases {
            let mut spec = json!({"expirationSeconds": seconds, "audiences": audiences});
            if of_pod {
                spec["boundObjectRef"] = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
            }
            let (code, warning, _, made) = answer(&server, &path, json!({"spec": spec})).await;
            assert_eq!((code, warning.as_str()), (201, ""), "{made}");
            let claims = token_claims(&made);
            let number = |value: &Value| value.as_i64().unwrap();
            assert_eq!(
                number(&claims["exp"]) - number(&claims["iat"]),
                life,
                "{spec}"
            );
            let noted = &claims["kubernetes.io"]["warnafter"];
            match life == year {
                true => assert_eq!(number(noted) - number(&claims["iat"]), seconds),
                false => assert!(noted.is_null(), "{claims}"),
            }
            // Clients renew it as if it ended then.
            assert_eq!(made["spec"]["expirationSeconds"], seconds);
        }
    }
}

#[tokio::test]
async fn relying_parties_find_the_keys() {
    let (server, keys) = with_all().await;
    let (code, _, cache, document) =
        answer(&server, "/.well-known/openid-configuration", Value::Null).await;
    assert_eq!((code, cache.as_str()), (200, "public, max-age=3600"));
    let expected = json!({
        "issuer": "https://new.example.com", "jwks_uri": "https://new.example.com/openid/v1/jwks",
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256", "ES384", "RS256"],
    });
    assert_eq!(document, expected);
    let (code, _, cache, found) = answer(&server, "/openid/v1/jwks", Value::Null).await;
    assert_eq!((code, cache.as_str()), (200, "public, max-age=3600"));
    let documents = keys.each_ref().map(|key| key.public().document());
    assert_eq!(found, json!({"keys": documents}));
    // Nothing is told of an issuer that is no URL which others could ask.
    for (issuer, uri, code) in [
        ("kubernetes", None, 404),
        ("http://a.example.com", None, 404),
        ("https://a.example.com?x", None, 404),
        ("https://a.example.com#x", None, 404),
        (
            "https://a.example.com",
            Some("https://keys.example.com/all"),
            200,
        ),
    ] {
        let options = AccountTokens {
            issuers: vec![issuer.to_owned()],
            keys_uri: uri.map(str::to_owned),
            ..AccountTokens::default()
        };
        let one = self::server(options).await;
        let (found, _, _, document) =
            answer(&one, "/.well-known/openid-configuration", Value::Null).await;
        assert_eq!(found, code, "{issuer}");
        assert_eq!(
            answer(&one, "/openid/v1/jwks", Value::Null).await.0,
            code,
            "{issuer}"
        );
        if let Some(uri) = uri {
            assert_eq!(document["jwks_uri"], uri);
        }
    }
}

#[test]
fn names_and_limits_are_checked_at_the_start() {
    let with = |issuers: &[&str], uri: Option<&str>, max_seconds| {
        let options = AccountTokens {
            issuers: issuers.iter().map(|it| (*it).to_owned()).collect(),
            keys_uri: uri.map(str::to_owned),
            max_seconds,
            ..AccountTokens::default()
        };
        options.check().err().unwrap_or_default()
    };
    assert_eq!(
        with(
            &["kubernetes/serviceaccount", "https://a"],
            None,
            Some(3600)
        ),
        ""
    );
    assert_eq!(with(&["a"], Some("https://b/c"), Some(1 << 32)), "");
    assert_eq!(
        with(&[], None, None),
        "service-account-issuer is a required flag"
    );
    assert_eq!(
        with(&[""], None, None),
        "service-account-issuer should not be an empty string"
    );
    assert_eq!(
        with(&["a", "b", "a"], None, None),
        "service-account-issuer \"a\" is already specified"
    );
    assert_eq!(
        with(&["1:2"], None, None),
        "service-account-issuer \"1:2\" contained a ':' but was not a valid URL: parse \"1:2\": first path segment in \
         URL cannot contain colon"
    );
    let scheme = "service-account-jwks-uri requires https scheme, parsed as: http://b";
    assert_eq!(with(&["a"], Some("http://b"), None), scheme);
    let range = "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds";
    for wrong in [0, 3599, -1, (1 << 32) + 1] {
        assert_eq!(with(&["a"], None, Some(wrong)), range);
    }
}
