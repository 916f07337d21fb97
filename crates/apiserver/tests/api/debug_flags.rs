//! The verbosity of the log, which `/debug/flags/v` changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use allot_apiserver::Server;
use allot_apiserver::config::{Config, LogVerbosity};
use allot_apiserver::identity::User;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Full};
use serde_json::json;

use crate::{admin, with_config};

const PAGE: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\n\
                    flags:<br>\n<table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// The code, the content type and the text of an answer.
async fn send_as(server: &Server, user: User, request: &str, body: &str) -> (u16, String, String) {
    let (method, path) = request.split_once(' ').unwrap();
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap();
    let response = server.handle(request, Some(user)).await;
    let code = response.status().as_u16();
    let kind = response.headers()[CONTENT_TYPE]
        .to_str()
        .unwrap()
        .to_owned();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, kind, String::from_utf8_lossy(&bytes).into_owned())
}

/// A server, and the verbosity that its log has.
async fn server() -> (Server, Arc<AtomicU32>) {
    let verbosity = Arc::new(AtomicU32::new(1));
    let set = verbosity.clone();
    let config = Config {
        log_verbosity: Some(LogVerbosity::new(move |level| match level {
            1000 => Err("the process does not log".to_owned()),
            level => {
                set.store(level, Ordering::Relaxed);
                Ok(())
            }
        })),
        ..Config::default()
    };
    (with_config(config).await, verbosity)
}

#[tokio::test]
async fn the_verbosity_can_be_changed_as_upstream_changes_it() {
    let (server, verbosity) = server().await;
    let check = async |request: &str, body: &str, code: u16, kind: &str, text: &str, then: u32| {
        let answer = send_as(&server, User::admin(), request, body).await;
        assert_eq!(
            answer,
            (code, kind.to_owned(), text.to_owned()),
            "{request}"
        );
        assert_eq!(verbosity.load(Ordering::Relaxed), then, "{request} {body}");
    };
    let (put, plain) = ("PUT /debug/flags/v", "text/plain");
    let done = "successfully set klog.logging.verbosity to 5\n";
    check(put, "5", 200, plain, done, 5).await;
    let syntax = "strconv.ParseUint: parsing \"five\": invalid syntax\n";
    check(put, "five", 400, plain, syntax, 5).await;
    let failed = "the process does not log\n";
    check(put, "1000", 400, plain, failed, 5).await;
    for method in ["GET", "POST", "PATCH", "DELETE"] {
        let request = format!("{method} /debug/flags/v");
        let text = "unsupported http method\n";
        check(&request, "7", 406, plain, text, 5).await;
    }
    for request in [
        "GET /debug/flags",
        "GET /debug/flags/",
        "PUT /debug/flags/x",
    ] {
        check(request, "7", 200, "text/html; charset=utf-8", PAGE, 5).await;
    }
}

#[tokio::test]
async fn a_long_value_is_not_repeated_in_full() {
    let (server, _) = server().await;
    let (put, value) = ("PUT /debug/flags/v", "9".repeat(1 << 20));
    let (code, _, text) = send_as(&server, User::admin(), put, &value).await;
    assert_eq!(code, 400);
    assert!(text.len() < 8 << 10, "{}", text.len());
}

/// All users may read health checks; the log belongs to administrators, and to those with a rule for the path and verb.
#[tokio::test]
async fn attack_the_verbosity_is_changed_by_permitted_users_only() {
    let (server, verbosity) = server().await;
    let ann = || User::new("ann", ["system:authenticated"]);
    let rules = json!([{"nonResourceURLs": ["/debug/flags/*"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "reader"}, "rules": rules});
    assert_eq!(admin(&server, "POST", ROLES, role).await.0, 201);
    for wanted in ["GET", "PUT"] {
        let (code, _, text) =
            send_as(&server, ann(), &format!("{wanted} /debug/flags/v"), "9").await;
        assert_eq!(code, 403, "{text}");
        let verb = wanted.to_lowercase();
        let why = format!("User \\\"ann\\\" cannot {verb} path \\\"/debug/flags/v\\\"");
        assert!(text.contains(&why), "{text}");
    }
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
    });
    assert_eq!(admin(&server, "POST", BINDINGS, binding).await.0, 201);
    assert_eq!(
        send_as(&server, ann(), "GET /debug/flags/", "").await.0,
        200
    );
    assert_eq!(
        send_as(&server, ann(), "PUT /debug/flags/v", "9").await.0,
        403
    );
    let anonymous = User::new("system:anonymous", ["system:unauthenticated"]);
    assert_eq!(
        send_as(&server, anonymous, "PUT /debug/flags/v", "9")
            .await
            .0,
        403
    );
    assert_eq!(verbosity.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn without_a_log_of_its_own_the_server_has_no_such_path() {
    let server = with_config(Config::default()).await;
    for request in [
        "GET /debug/flags",
        "GET /debug/flags/v",
        "PUT /debug/flags/v",
    ] {
        let (code, _, text) = send_as(&server, User::admin(), request, "1").await;
        assert_eq!(
            (code, text.as_str()),
            (404, "404 page not found\n"),
            "{request}"
        );
    }
}
