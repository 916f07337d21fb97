//! Whatever comes in, a Status goes out.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::send;

/// Requests that are changed at random places.
fn seeds() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "labels": {"a": "b"}},
        "spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "x", "count": 3}}]}},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "100m"}}}]},
    });
    let patch = json!([{"op": "add", "path": "/metadata/labels/x", "value": [1, {"a": null}]}]);
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let pods = "/api/v1/namespaces/default/pods";
    vec![
        ("POST", claims, "application/json", claim.to_string()),
        ("POST", pods, "application/json", pod.to_string()),
        (
            "POST",
            pods,
            "application/yaml",
            "kind: Pod\nmetadata: {name: y}\nspec: {containers: []}\n".to_owned(),
        ),
        (
            "POST",
            pods,
            "application/vnd.kubernetes.protobuf",
            "k8s\0\n\x09\n\x02v1\x12\x03Pod\x12\x05\n\x03\n\x01p".to_owned(),
        ),
        (
            "PATCH",
            "/api/v1/namespaces/default",
            "application/json-patch+json",
            patch.to_string(),
        ),
        (
            "PATCH",
            "/api/v1/namespaces/default",
            "application/strategic-merge-patch+json",
            claim.to_string(),
        ),
        (
            "PATCH",
            "/api/v1/namespaces/default/configmaps/a?fieldManager=m",
            "application/apply-patch+yaml",
            pod.to_string(),
        ),
        (
            "GET",
            "/api/v1/pods?labelSelector=a%20in%20(b,c),!d&fieldSelector=metadata.name%3Dx&limit=3",
            "",
            String::new(),
        ),
        (
            "DELETE",
            pods,
            "application/json",
            json!({"kind": "DeleteOptions", "dryRun": ["All"]}).to_string(),
        ),
    ]
}

#[tokio::test]
async fn mutated_requests_get_a_status() {
    let server = Server::in_memory().await.unwrap();
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    for _ in 0..4000 {
        let (method, path, kind, body) = seeds().swap_remove(random.random_range(0..seeds().len()));
        let (mut path, mut body) = (path.as_bytes().to_vec(), body.into_bytes());
        for _ in 0..random.random_range(0..4) {
            let target = if random.random_bool(0.3) || body.is_empty() {
                &mut path
            } else {
                &mut body
            };
            let at = random.random_range(0..target.len());
            match random.random_range(0..4) {
                0 => target[at] = random.random(),
                1 => target.truncate(at),
                2 => target.insert(at, random.random_range(32..127)),
                _ => {
                    let part = target[at..].to_vec();
                    target.extend(part);
                }
            }
            if target.is_empty() {
                target.push(b'/');
            }
        }
        let path = String::from_utf8_lossy(&path).into_owned();
        // What is no URI never reaches the server.
        if path.parse::<http::Uri>().is_err() || !path.starts_with('/') || path.contains("watch") {
            continue;
        }
        let (code, answer) = send(&server, User::admin(), method, &path, kind, &body).await;
        assert!(
            code < 500 || answer["kind"] == "Status",
            "{method} {path}: {code} {answer}"
        );
        if (400..500).contains(&code) && answer.is_object() {
            assert_eq!(answer["kind"], "Status", "{method} {path}");
            assert_eq!(answer["code"], code, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn deep_and_large_bodies_are_refused() {
    let server = Server::in_memory().await.unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    let deep = format!(
        "{{\"metadata\":{{\"name\":\"d\"}},\"data\":{}1{}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    assert_eq!(
        send(
            &server,
            User::admin(),
            "POST",
            maps,
            "application/json",
            deep.as_bytes()
        )
        .await
        .0,
        400
    );
    let large = vec![b' '; 4 << 20];
    assert_eq!(
        send(
            &server,
            User::admin(),
            "POST",
            maps,
            "application/json",
            &large
        )
        .await
        .0,
        413
    );
    let (code, _) = send(
        &server,
        User::admin(),
        "POST",
        maps,
        "application/json",
        b"{\"metadata\":{\"name\":\"\xff\"}}",
    )
    .await;
    assert_eq!(code, 400);
    let number = b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"n\"},\"spec\":{\"priority\":1e999}}";
    assert_eq!(
        send(
            &server,
            User::admin(),
            "POST",
            "/api/v1/namespaces/default/pods",
            "application/json",
            number
        )
        .await
        .0,
        400
    );
}

#[tokio::test]
async fn abandoned_watches_cost_nothing_lasting() {
    let server = Server::in_memory().await.unwrap();
    for _ in 0..1000 {
        let request = http::Request::get("/api/v1/configmaps?watch=true")
            .body(http_body_util::Empty::<bytes::Bytes>::new());
        drop(server.handle(request.unwrap(), Some(User::admin())).await);
    }
    let (_, metrics) = send(&server, User::admin(), "GET", "/metrics", "", b"").await;
    assert!(
        metrics
            .as_str()
            .unwrap()
            .contains("apiserver_longrunning_requests 0\n"),
        "{metrics}"
    );
}
