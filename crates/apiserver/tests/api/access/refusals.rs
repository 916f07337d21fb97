//! What a refusal looks like beyond its code: texts, details and headers, as upstream's filters and handlers write them.

use allot_apiserver::identity::User;
use allot_apiserver::{Limits, Server};
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::kit::{allow, user};
use crate::api::limits::server;
use crate::{admin, send};

/// Code, headers and body of an answer without a body in the request.
async fn answer(server: &Server, who: User, request: &str) -> (u16, HeaderMap, String) {
    let (method, path) = request.split_once(' ').unwrap();
    let request = http::Request::builder().method(method).uri(path);
    let request = request.body(Full::new(Bytes::new())).unwrap();
    let response = server.handle(request, Some(who)).await;
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (head.status.as_u16(), head.headers, text)
}

#[tokio::test]
async fn a_refusal_names_what_was_wanted() {
    let server = server(Limits::default()).await;
    for (request, details, message) in [
        (
            "GET /nope",
            json!({}),
            r#"forbidden: User "jane" cannot get path "/nope""#,
        ),
        (
            "POST /a%3Cb%3E",
            json!({}),
            r#"forbidden: User "jane" cannot post path "/a&lt;b&gt;""#,
        ),
        (
            "GET /api/v1/namespaces/team/pods/p",
            json!({"name": "p", "kind": "pods"}),
            r#"pods "p" is forbidden: User "jane" cannot get resource "pods" in API group "" in the namespace "team""#,
        ),
        (
            "GET /api/v1/namespaces/team/pods?fieldSelector=metadata.name%3Dp",
            json!({"name": "p", "kind": "pods"}),
            r#"pods "p" is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "team""#,
        ),
        (
            "DELETE /api/v1/namespaces/team/pods?fieldSelector=metadata.name%3Dp",
            json!({"kind": "pods"}),
            r#"pods is forbidden: User "jane" cannot deletecollection resource "pods" in API group "" in the namespace "team""#,
        ),
        (
            "GET /api/v1/namespaces/team/status/more",
            json!({"name": "team", "kind": "namespaces"}),
            r#"namespaces "team" is forbidden: User "jane" cannot get resource "namespaces/status" in API group "" in the namespace "team""#,
        ),
        (
            "GET /api/v1/proxy/nodes/n/more",
            json!({"name": "n", "kind": "nodes"}),
            r#"nodes "n" is forbidden: User "jane" cannot proxy resource "nodes" in API group "" at the cluster scope"#,
        ),
    ] {
        let (code, headers, text) = answer(&server, user("jane"), request).await;
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(code, 403, "{request}: {body}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{request}");
        assert_eq!(body["details"], details, "{request}");
        assert_eq!(body["message"], message, "{request}");
    }
}

/// Who wants to act as another user and cannot be understood is refused by a filter, too.
#[tokio::test]
async fn a_refused_impersonation_has_the_header() {
    let server = server(Limits::default()).await;
    for (header, value, code) in [
        ("impersonate-group", "g", 400),
        ("impersonate-user", "jane", 403),
    ] {
        let request = http::Request::get("/api/v1/pods")
            .header(header, value)
            .body(Full::new(Bytes::new()))
            .unwrap();
        let response = server.handle(request, Some(user("joe"))).await;
        assert_eq!(response.status(), code);
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    }
}

#[tokio::test]
async fn only_some_texts_forbid_guessing_their_type() {
    let server = server(Limits::default()).await;
    for (request, nosniff) in [
        ("GET /livez", true),
        ("GET /livez?verbose", true),
        ("GET /livez/ping", false),
        ("GET /readyz/poststarthook/rbac/bootstrap-roles", false),
        ("GET /livez/nope", true),
        ("GET /nope", true),
        ("GET /api/v1/watch", true),
        ("GET /statusz", false),
        ("GET /flagz", false),
    ] {
        let (_, headers, text) = answer(&server, User::admin(), request).await;
        assert_eq!(
            headers.contains_key("x-content-type-options"),
            nosniff,
            "{request}: {text}"
        );
    }
}

/// Where a path ends before its resource, the sender does not count: it is read before.
#[tokio::test]
async fn a_path_that_is_cut_is_the_same_for_all() {
    let server = server(Limits::default()).await;
    for user in [user("jane"), User::anonymous(), User::admin()] {
        let (code, _, text) = answer(&server, user, "GET /apis/apps/v1/proxy").await;
        assert_eq!(code, 500);
        let why = "unable to determine kind and namespace from url, /apis/apps/v1/proxy\n";
        assert!(text.ends_with(why), "{text}");
    }
}

/// What the writer may not change comes before what is wrong with it.
#[tokio::test]
async fn permissions_for_a_status_come_before_its_errors() {
    let server = server(Limits::default()).await;
    let rules = "get patch|resource.k8s.io|resourceclaims resourceclaims/status";
    let jane = allow(&server, "jane", rules).await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}},
    });
    assert_eq!(admin(&server, "POST", claims, claim).await.0, 201);
    let status =
        json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}});
    let (code, refused) = send(
        &server,
        jane,
        "PATCH",
        &format!("{claims}/c/status"),
        "application/merge-patch+json",
        status.to_string().as_bytes(),
    )
    .await;
    assert_eq!(code, 422, "{refused}");
    assert_eq!(
        refused["message"],
        "ResourceClaim.resource.k8s.io \"c\" is invalid: [status.allocation: Forbidden: changing status.allocation or \
         status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"patch\" permission: \
         resourceclaims.resource.k8s.io is forbidden: User \"jane\" cannot patch resource \"resourceclaims/binding\" in \
         API group \"resource.k8s.io\" at the cluster scope, status.reservedFor: Forbidden: may not be specified when \
         `allocated` is not set]"
    );
}

#[tokio::test]
async fn a_client_without_a_name_is_an_unknown_owner() {
    let server = server(Limits::default()).await;
    let object = json!({"metadata": {"name": "c"}, "data": {"a": "b"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let (_, made) = admin(&server, "POST", maps, object).await;
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "unknown");
}

/// A kind's columns for an object without content, as bookmarks have it in watches of tables.
#[tokio::test]
async fn rows_of_bookmarks_are_those_of_an_empty_object() {
    let server = server(Limits::default()).await;
    for (path, cells) in [
        ("/api/v1/limitranges", json!(["", "0001-01-01T00:00:00Z"])),
        (
            "/api/v1/services",
            json!([
                "",
                "",
                "<none>",
                "<unknown>",
                "<none>",
                "<unknown>",
                "<none>"
            ]),
        ),
        (
            "/apis/apps/v1/deployments",
            json!(["", "0/0", 0, 0, "<unknown>", "", "", ""]),
        ),
        (
            "/apis/batch/v1/cronjobs",
            json!([
                "",
                "",
                "<none>",
                "<unset>",
                0,
                "<none>",
                "<unknown>",
                "",
                "",
                "<none>"
            ]),
        ),
        (
            "/apis/networking.k8s.io/v1/ipaddresses",
            json!(["", "<none>", "<unknown>"]),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!(["", "", "Delete", "Immediate", false, "<unknown>"]),
        ),
    ] {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let bookmark = first_bookmark(&server, path, accept).await;
        assert_eq!(bookmark["object"]["rows"][0]["cells"], cells, "{path}");
    }
}

/// What upstream's conversion adds to an object that has nothing.
#[tokio::test]
async fn bookmarks_are_objects_as_conversion_leaves_them() {
    let server = server(Limits::default()).await;
    for (plural, place, expected) in [
        ("deployments", "/spec/replicas", json!(0)),
        ("replicasets", "/spec/replicas", json!(0)),
        ("statefulsets", "/spec/replicas", json!(0)),
        ("controllerrevisions", "/data", Value::Null),
        (
            "daemonsets",
            "/metadata/annotations/deprecated.daemonset.template.generation",
            json!("0"),
        ),
    ] {
        let path = format!("/apis/apps/v1/{plural}");
        let bookmark = first_bookmark(&server, &path, "application/json").await;
        let found = bookmark["object"].pointer(place);
        assert_eq!(found, Some(&expected), "{bookmark}");
    }
}

/// The first bookmark of a watch, which ends what exists at its beginning.
async fn first_bookmark(server: &Server, path: &str, accept: &str) -> Value {
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let request = http::Request::get(format!("{path}?{query}"))
        .header("accept", accept)
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    let mut body = response.into_body();
    let mut text = Vec::new();
    loop {
        let frame = body.frame().await.expect("a bookmark").unwrap();
        text.extend_from_slice(frame.data_ref().unwrap());
        let found = text.split(|byte| *byte == b'\n').find_map(|line| {
            let event: Value = serde_json::from_slice(line).ok()?;
            (event["type"] == "BOOKMARK").then_some(event)
        });
        if let Some(found) = found {
            return found;
        }
    }
}

/// A client that has seen a newer state, such as one of a store that was restored, was sent an older one as if it were not.
#[tokio::test]
async fn regression_a_watch_is_not_older_than_it_has_to_be() {
    let server = Server::in_memory().await.unwrap();
    let path = "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999";
    let request = http::Request::get(path)
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    // It ends with the error.
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let event: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(event["type"], "ERROR", "{event}");
    assert_eq!(event["object"]["code"], 504, "{event}");
    let cause = &event["object"]["details"]["causes"][0]["message"];
    assert_eq!(cause, "Too large resource version", "{event}");
}
