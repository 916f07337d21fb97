//! Headers that determine the identity of a request are either used or fail the request.

use allot_apiserver::identity::{MASTERS, User};
use allot_apiserver::{Config, Server};
use bytes::Bytes;
use http::HeaderValue;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use crate::with_config;

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const BODY: &str = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;

/// Requests a SelfSubjectReview; returns the code with the user name, or the message.
async fn whoami(server: &Server, user: Option<User>, headers: &[(&str, &[u8])]) -> String {
    let mut request = http::Request::post(REVIEW)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(BODY)))
        .unwrap();
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(name, value);
    }
    let response = server.handle(request, user).await;
    let code = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let user = &body["status"]["userInfo"];
    let found = user["username"].as_str().or(body["message"].as_str());
    let extra = match &user["extra"] {
        Value::Null => String::new(),
        extra => format!(" {extra}"),
    };
    format!("{} {}{extra}", code.as_u16(), found.unwrap_or_default())
}

#[tokio::test]
async fn impersonation_is_never_dropped() {
    let server = Server::in_memory().await.unwrap();
    let jane = ("impersonate-user", &b"jane"[..]);
    for (headers, expected) in [
        (&[("impersonate-user", "josé".as_bytes())][..], "201 josé"),
        (&[("impersonate-user", "日本".as_bytes())], "201 日本"),
        (&[jane], "201 jane"),
        (
            &[("impersonate-user", b"jos\xe9")],
            "400 the value of header \"Impersonate-User\" is not valid UTF-8",
        ),
        (
            &[jane, ("impersonate-group", b"\xff")],
            "400 the value of header \"Impersonate-Group\" is not valid UTF-8",
        ),
        (
            &[jane, ("impersonate-uid", b"\x80")],
            "400 the value of header \"Impersonate-Uid\" is not valid UTF-8",
        ),
        (
            &[jane, ("impersonate-extra-scopes", b"\x80")],
            "400 the value of header \"Impersonate-Extra-Scopes\" is not valid UTF-8",
        ),
        (
            &[jane, ("impersonate-extra-%ff", b"v")],
            "400 the impersonation header \"Impersonate-Extra-%ff\" is not valid UTF-8",
        ),
        (
            &[jane, ("impersonate-user", b"bob")],
            "400 the impersonation header \"Impersonate-User\" is given several times",
        ),
        (
            &[jane, ("impersonate-users", b"bob")],
            "400 the impersonation header \"Impersonate-Users\" is not known",
        ),
        (
            &[("impersonate-user", b"")],
            "400 requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string(nil), \
             Extra:map[string][]string(nil)} without impersonating a user name",
        ),
        (
            &[
                ("impersonate-user", b""),
                ("impersonate-group", "ärzte".as_bytes()),
            ],
            "400 requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"ärzte\"}, \
             Extra:map[string][]string(nil)} without impersonating a user name",
        ),
        (
            &[("impersonate-group", b"")],
            "400 requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"\"}, \
             Extra:map[string][]string(nil)} without impersonating a user name",
        ),
        (
            &[("impersonate-uid", b"7")],
            "400 requested &user.DefaultInfo{Name:\"\", UID:\"7\", Groups:[]string(nil), \
             Extra:map[string][]string(nil)} without impersonating a user name",
        ),
    ] {
        let found = whoami(&server, Some(User::admin()), headers).await;
        assert_eq!(found, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn the_names_of_extra_attributes_are_unescaped_as_paths() {
    let server = Server::in_memory().await.unwrap();
    for (name, expected) in [
        (
            "impersonate-extra-example.com%2fscopes",
            r#"{"example.com/scopes":["v"]}"#,
        ),
        ("impersonate-extra-caf%c3%a9", r#"{"café":["v"]}"#),
        ("impersonate-extra-a+b", r#"{"a+b":["v"]}"#),
        // What is malformed stays as it was sent.
        ("impersonate-extra-%41%zz", r#"{"%41%zz":["v"]}"#),
        ("impersonate-extra-100%", r#"{"100%":["v"]}"#),
    ] {
        let headers: [(&str, &[u8]); 2] = [("impersonate-user", b"jane"), (name, b"v")];
        let found = whoami(&server, Some(User::admin()), &headers).await;
        assert_eq!(found, format!("201 jane {expected}"), "{name}");
    }
}

#[tokio::test]
async fn a_token_that_is_present_is_proven_or_refused() {
    let mut config = Config::default();
    let alice = User::new("alice", [MASTERS]);
    config.tokens.insert("secret".to_owned(), alice.clone());
    config.tokens.insert("clé".to_owned(), alice);
    let server = with_config(config).await;
    const DENIED: &str = "401 Unauthorized";
    const ANONYMOUS: &str =
        "403 selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:anonymous\"";
    for (values, expected) in [
        (&[&b"Bearer secret"[..]][..], "201 alice"),
        (&[b"bearer secret"], "201 alice"),
        (&["Bearer clé".as_bytes()], "201 alice"),
        (&[b"Bearer wrong"], DENIED),
        (&[b"Bearer \xff\xfe"], DENIED),
        (&[b"Bearer secret\xe9"], DENIED),
        (&[b"Bearer secret", b"Bearer wrong"], DENIED),
        (&[b"Bearer wrong", b"Bearer secret"], DENIED),
        (&[b"Basic YTpi", b"Bearer secret"], DENIED),
        (&[b"Basic YTpi"], ANONYMOUS),
        (&[b"Bearer"], ANONYMOUS),
        (&[], ANONYMOUS),
    ] {
        let headers: Vec<(&str, &[u8])> = values.iter().map(|it| ("authorization", *it)).collect();
        let found = whoami(&server, None, &headers).await;
        assert!(found.starts_with(expected), "{headers:?}: {found}");
    }
    // Names of a front proxy mean nothing where none is configured.
    let proxy: [(&str, &[u8]); 2] = [
        ("x-remote-user", b"root"),
        ("x-remote-group", b"system:masters"),
    ];
    assert!(whoami(&server, None, &proxy).await.starts_with(ANONYMOUS));
    let websocket: [(&str, &[u8]); 3] = [
        ("connection", b"Upgrade"),
        ("upgrade", b"websocket"),
        (
            "sec-websocket-protocol",
            b"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
        ),
    ];
    assert_eq!(whoami(&server, None, &websocket).await, "201 alice");
}
