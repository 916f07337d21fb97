//! Kubernetes protobuf as answers: what is read can be written back.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_schema::protobuf;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::admin;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Sends a request that accepts protobuf and JSON; returns the media type and the bytes.
async fn send_as(
    server: &Server,
    method: &str,
    path: &str,
    accept: &str,
    body: Bytes,
) -> (u16, String, Bytes) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", PROTOBUF)
        .body(Full::new(body))
        .unwrap();
    let response: Response<_> = server.handle(request, Some(User::admin())).await;
    let code = response.status().as_u16();
    let kind = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    (
        code,
        kind,
        response.into_body().collect().await.unwrap().to_bytes(),
    )
}

async fn server() -> Server {
    let server = Server::in_memory().await.unwrap();
    let pod = json!({
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]},
    });
    assert_eq!(admin(&server, "POST", PODS, pod).await.0, 201);
    server
}

#[tokio::test]
async fn an_object_can_be_written_back_as_it_was_read() {
    let server = server().await;
    let path = format!("{PODS}/p");
    let before = admin(&server, "GET", &path, Value::Null).await.1;
    let accept = format!("{PROTOBUF},application/json");
    let (code, kind, bytes) = send_as(&server, "GET", &path, &accept, Bytes::new()).await;
    assert_eq!((code, kind.as_str()), (200, PROTOBUF));
    assert!(bytes.starts_with(b"k8s\0"));
    let (code, kind, _) = send_as(&server, "PUT", &path, &accept, bytes).await;
    assert_eq!((code, kind.as_str()), (200, PROTOBUF));
    // The same object: nothing was written.
    assert_eq!(admin(&server, "GET", &path, Value::Null).await.1, before);
}

#[tokio::test]
async fn lists_errors_and_metadata_come_in_protobuf_and_tables_do_not() {
    let server = server().await;
    let get = async |path: &str, accept: &str| {
        let (code, kind, bytes) = send_as(&server, "GET", path, accept, Bytes::new()).await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (code, kind, text)
    };
    let (code, kind, text) = get(PODS, PROTOBUF).await;
    assert_eq!((code, kind.as_str()), (200, PROTOBUF));
    assert!(text.contains("PodList"), "{text}");
    let (code, kind, text) = get(&format!("{PODS}/missing"), PROTOBUF).await;
    assert_eq!((code, kind.as_str()), (404, PROTOBUF));
    assert!(text.contains("pods \"missing\" not found"), "{text}");
    let partial = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let (code, kind, text) = get(&format!("{PODS}/p"), &partial).await;
    assert_eq!((code, kind.as_str()), (200, PROTOBUF));
    assert!(
        text.contains("PartialObjectMetadata") && !text.contains("100m"),
        "{text}"
    );
    let partial = partial.replace("v=v1", "v=v1beta1");
    let (code, kind, text) = get(&format!("{PODS}/p"), &partial).await;
    assert_eq!((code, kind.as_str()), (200, PROTOBUF));
    assert!(text.contains("meta.k8s.io/v1beta1"), "{text}");
    let json = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1";
    let (code, _, text) = get(PODS, json).await;
    let list: Value = serde_json::from_str(&text).unwrap();
    let versions = [&list["apiVersion"], &list["items"][0]["apiVersion"]];
    assert_eq!((code, versions), (200, [&json!("meta.k8s.io/v1beta1"); 2]));
    let table = format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1");
    assert_eq!(get(PODS, &table).await.0, 406);
    let watch = format!("{PODS}?watch=true&timeoutSeconds=1");
    let (code, kind, text) = get(&watch, &format!("{PROTOBUF};stream=watch")).await;
    assert_eq!(
        (code, kind.as_str()),
        (200, "application/vnd.kubernetes.protobuf;stream=watch")
    );
    assert!(text.contains("ADDED") && text.contains("k8s\0"), "{text}");
}

#[tokio::test]
async fn documents_of_discovery_come_in_protobuf() {
    let server = server().await;
    for (path, kind, part) in [
        ("/api", "APIVersions", "v1"),
        ("/api/v1", "APIResourceList", "deletecollection"),
        ("/apis", "APIGroupList", "resource.k8s.io/v1"),
        ("/apis/apps", "APIGroup", "apps/v1"),
        ("/apis/apps/v1", "APIResourceList", "deployments/scale"),
    ] {
        let (code, media, bytes) = send_as(&server, "GET", path, PROTOBUF, Bytes::new()).await;
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!((code, media.as_str()), (200, PROTOBUF), "{path}");
        assert!(text.starts_with("k8s\0") && text.contains(kind) && text.contains(part));
    }
}

/// What scheduler, controllers and nodes write and read: in protobuf it is what it is in JSON, in answers, lists and watches.
#[tokio::test]
async fn what_components_exchange_is_the_same_in_protobuf() {
    let server = server().await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let config =
        json!([{"opaque": {"driver": "d.example.com", "parameters": {"b": [1, 2.5], "a": "<>"}}}]);
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "c"}}]);
    let objects = [
        (
            claims,
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
                "spec": {"devices": {"requests": requests, "config": config}},
            }),
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
                "spec": {
                    "driver": "d.example.com", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "d", "attributes": {"m": {"int": 3}}, "capacity": {"memory": {"value": "1Gi"}}}],
                },
            }),
        ),
        (
            "/api/v1/nodes",
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"},
            }),
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events",
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Normal",
                "eventTime": "2026-01-02T03:04:05.000006Z", "reason": "Scheduled", "action": "Binding", "note": "n",
                "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
                "reportingController": "c.example.com/x", "reportingInstance": "i",
            }),
        ),
    ];
    let read = |bytes: &[u8]| -> Value {
        let text = protobuf::to_json(bytes, |_, _| true).unwrap().text;
        serde_json::from_str(&text).unwrap()
    };
    for (path, object) in objects {
        let body = protobuf::encode(&object, protobuf::compact).unwrap();
        let (code, _, bytes) = send_as(&server, "POST", path, PROTOBUF, body.into()).await;
        assert_eq!(code, 201, "{path}: {}", String::from_utf8_lossy(&bytes));
        let (created, name) = (read(&bytes), object["metadata"]["name"].as_str().unwrap());
        let in_json = admin(&server, "GET", &format!("{path}/{name}"), Value::Null).await;
        assert_eq!(created, in_json.1, "{path}");
        let (_, _, bytes) = send_as(&server, "GET", path, PROTOBUF, Bytes::new()).await;
        let mut listed = read(&bytes)["items"][0].take();
        for head in ["apiVersion", "kind"] {
            listed[head] = created[head].clone();
        }
        assert_eq!(listed, created, "{path}");
        let watch = format!("{path}?watch=true&timeoutSeconds=1");
        let (_, _, bytes) = send_as(&server, "GET", &watch, PROTOBUF, Bytes::new()).await;
        let (length, rest) = bytes.split_first_chunk().unwrap();
        let (kind, body) = protobuf::event(&rest[..u32::from_be_bytes(*length) as usize]).unwrap();
        assert_eq!((kind, read(body)), ("ADDED", created), "{path}");
    }
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "namespace": "default"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    });
    let body = protobuf::encode(&binding, protobuf::compact).unwrap();
    let path = format!("{PODS}/p/binding");
    let (code, kind, bytes) = send_as(&server, "POST", &path, PROTOBUF, body.into()).await;
    assert_eq!((code, kind.as_str()), (201, PROTOBUF));
    assert_eq!(read(&bytes)["status"], "Success");
    let pod = admin(&server, "GET", &format!("{PODS}/p"), Value::Null)
        .await
        .1;
    assert_eq!(pod["spec"]["nodeName"], "n");
}
