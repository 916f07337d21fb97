use std::sync::Arc;

use allot_model::features::{Features, Release};
use allot_store::Embedded;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::config::Config;
use crate::identity::User;
use crate::registry::RuntimeConfig;
use crate::server::Server;

/// A server that emulates a release with some versions switched on.
async fn server(minor: u8, versions: &str) -> Server {
    let backend = Arc::new(Embedded::in_memory(allot_store::Options::default()));
    let mut features = Features::of(Release::new(minor));
    // Without it pods have no claims.
    features.set("DynamicResourceAllocation=true").unwrap();
    let config = Config {
        runtime_config: RuntimeConfig::parse(versions).unwrap(),
        features,
        ..Config::default()
    };
    let server = Server::new(backend, config);
    server.bootstrap().await.unwrap();
    server
}

async fn send(
    server: &Server,
    method: Method,
    path: &str,
    accept: &str,
    body: Value,
) -> (u16, Value) {
    let body = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("accept", accept)
        .body(Full::new(body))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (
        status,
        serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    )
}

async fn get(server: &Server, path: &str) -> (u16, Value) {
    send(server, Method::GET, path, "application/json", Value::Null).await
}

async fn post(server: &Server, path: &str, body: Value) -> (u16, Value) {
    send(server, Method::POST, path, "application/json", body).await
}

/// The columns and the cells of a table but the age.
async fn table(server: &Server, path: &str) -> (Vec<String>, Vec<Value>) {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let (_, table) = send(server, Method::GET, path, accept, Value::Null).await;
    let columns = table["columnDefinitions"].as_array().unwrap();
    let columns = columns
        .iter()
        .map(|column| column["name"].as_str().unwrap().to_owned())
        .collect();
    let rows = table["rows"].as_array().cloned().unwrap_or_default();
    let cells = rows.iter().map(|row| {
        let mut cells = row["cells"].as_array().unwrap().clone();
        cells.pop();
        Value::from(cells)
    });
    (columns, cells.collect())
}

const CLASSIC: &str = "/apis/resource.k8s.io/v1alpha2";
const CLASSIC_CLAIMS: &str = "/apis/resource.k8s.io/v1alpha2/namespaces/default/resourceclaims";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

fn classic_claim() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClaim", "metadata": {"name": "old"}, "spec": {"resourceClassName": "k"}})
}

fn newer_claim() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "new"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "g"}}]}}})
}

#[tokio::test]
async fn a_release_serves_what_it_had() {
    let old = server(26, "resource.k8s.io/v1alpha1=true").await;
    let (_, resources) = get(&old, "/apis/resource.k8s.io/v1alpha1").await;
    let mut names: Vec<_> = resources["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "podschedulings",
            "podschedulings/status",
            "resourceclaims",
            "resourceclaims/status",
            "resourceclaimtemplates",
            "resourceclasses"
        ]
    );
    assert_eq!(
        get(&old, "/apis/resource.k8s.io/v1/deviceclasses").await.0,
        404
    );
    // Without being asked it serves nothing of the group.
    let off = server(30, "").await;
    assert_eq!(get(&off, "/apis/resource.k8s.io").await.0, 404);
    assert_eq!(
        get(
            &server(34, "").await,
            "/apis/resource.k8s.io/v1/deviceclasses"
        )
        .await
        .0,
        200
    );
    assert_eq!(
        get(
            &server(33, "").await,
            "/apis/resource.k8s.io/v1/deviceclasses"
        )
        .await
        .0,
        404
    );
}

#[tokio::test]
async fn classic_objects_live_in_their_release() {
    let server = server(27, "resource.k8s.io/v1alpha2=true").await;
    let class = json!({"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClass", "metadata": {"name": "k"}, "driverName": "d.example.com"});
    assert_eq!(
        post(&server, &format!("{CLASSIC}/resourceclasses"), class)
            .await
            .0,
        201
    );
    let (columns, rows) = table(&server, &format!("{CLASSIC}/resourceclasses")).await;
    assert_eq!(columns, ["Name", "DriverName", "Age"]);
    assert_eq!(rows, [json!(["k", "d.example.com"])]);

    let (code, created) = post(&server, CLASSIC_CLAIMS, classic_claim()).await;
    assert_eq!(
        (code, &created["spec"]["allocationMode"]),
        (201, &json!("WaitForFirstConsumer"))
    );
    let (columns, rows) = table(&server, CLASSIC_CLAIMS).await;
    assert_eq!(
        columns,
        [
            "Name",
            "ResourceClassName",
            "AllocationMode",
            "State",
            "Age"
        ]
    );
    assert_eq!(
        rows,
        [json!(["old", "k", "WaitForFirstConsumer", "pending"])]
    );

    let mut status = created;
    status["status"] = json!({"driverName": "d.example.com", "allocation": {"shareable": true}});
    let path = format!("{CLASSIC_CLAIMS}/old/status");
    let (code, allocated) = send(&server, Method::PUT, &path, "application/json", status).await;
    assert_eq!(
        (code, &allocated["status"]["allocation"]),
        (200, &json!({"shareable": true}))
    );
    let mut wrong = allocated;
    wrong["status"] = json!({"deallocationRequested": true});
    let (code, refused) = send(&server, Method::PUT, &path, "application/json", wrong).await;
    assert_eq!(code, 422);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .ends_with("`allocation` must be set when `deallocationRequested` is set"),
        "{refused}"
    );
}

#[tokio::test]
async fn mistakes_are_told() {
    let server = server(27, "resource.k8s.io/v1alpha2=true").await;
    let literal = json!({"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClass", "name": "k", "driverName": "d.example.com"});
    let (code, refused) = post(&server, &format!("{CLASSIC}/resourceclasses"), literal).await;
    assert_eq!(code, 422);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("metadata.name: Required value"),
        "{refused}"
    );
}

#[tokio::test]
async fn both_generations_live_side_by_side() {
    let server = server(36, "resource.k8s.io/v1alpha2=true").await;
    assert_eq!(post(&server, CLASSIC_CLAIMS, classic_claim()).await.0, 201);
    assert_eq!(post(&server, CLAIMS, newer_claim()).await.0, 201);

    let (_, seen) = get(&server, &format!("{CLAIMS}/old")).await;
    assert_eq!(
        seen["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"],
        "k"
    );
    let (_, seen) = get(&server, &format!("{CLASSIC_CLAIMS}/new")).await;
    assert_eq!(
        (&seen["apiVersion"], &seen["spec"]["resourceClassName"]),
        (&json!("resource.k8s.io/v1alpha2"), &json!("g"))
    );
    let (_, list) = get(&server, CLAIMS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let (_, rows) = table(&server, CLAIMS).await;
    assert_eq!(rows, [json!(["new", "pending"]), json!(["old", "pending"])]);
}

/// Slices of the two generations say nothing of each other: each version shows its own, instead of failing.
#[tokio::test]
async fn lists_and_watches_show_the_slices_of_their_generation() {
    let server = server(36, "resource.k8s.io/v1alpha2=true").await;
    let path = |version| format!("/apis/resource.k8s.io/{version}/resourceslices");
    let classic = json!({
        "apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceSlice", "metadata": {"name": "old"},
        "nodeName": "n", "driverName": "d.example", "namedResources": {"instances": [{"name": "i"}]},
    });
    let newer = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "new"},
        "spec": {"driver": "d.example", "nodeName": "n", "devices": [],
                 "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}},
    });
    assert_eq!(post(&server, &path("v1alpha2"), classic).await.0, 201);
    assert_eq!(post(&server, &path("v1"), newer).await.0, 201);

    for (version, only) in [("v1", "new"), ("v1alpha2", "old")] {
        for query in ["", "?limit=1", "?resourceVersion=0"] {
            let (code, list) = get(&server, &(path(version) + query)).await;
            assert_eq!(code, 200, "{list}");
            let items = list["items"].as_array().unwrap();
            let names: Vec<_> = items.iter().map(|i| &i["metadata"]["name"]).collect();
            assert_eq!(names, [only], "{version}{query}");
        }
        let (_, event) = get(&server, &(path(version) + "?watch=1&timeoutSeconds=1")).await;
        let seen = (&event["type"], &event["object"]["metadata"]["name"]);
        assert_eq!(seen, (&json!("ADDED"), &json!(only)), "one event");
    }

    let all = send(&server, Method::DELETE, &path("v1"), "", Value::Null).await;
    assert_eq!(all.0, 200);
    let (_, left) = get(&server, &path("v1alpha2")).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_round_trip_through_the_other_generation_loses_nothing() {
    let server = server(36, "resource.k8s.io/v1alpha2=true").await;
    let (_, created) = post(&server, CLASSIC_CLAIMS, classic_claim()).await;
    let (_, mut seen) = get(&server, &format!("{CLAIMS}/old")).await;
    seen["metadata"]["labels"] = json!({"a": "b"});
    let (code, _) = send(
        &server,
        Method::PUT,
        &format!("{CLAIMS}/old"),
        "application/json",
        seen,
    )
    .await;
    assert_eq!(code, 200);
    let (_, back) = get(&server, &format!("{CLASSIC_CLAIMS}/old")).await;
    assert_eq!(back["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(back["spec"], created["spec"]);
    assert_eq!(back["metadata"]["annotations"], Value::Null);
}

#[tokio::test]
async fn pods_may_use_the_older_form_of_their_claims() {
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "a"}]}}],
        "resourceClaims": [{"name": "a", "source": {"resourceClaimTemplateName": "t"}}]}})
    };
    let path = "/api/v1/namespaces/default/pods";
    let server = server(30, "resource.k8s.io/v1alpha2=true").await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    post(
        &server,
        "/api/v1/namespaces/default/serviceaccounts",
        account,
    )
    .await;
    let (code, created) = post(&server, path, pod("p")).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(
        created["spec"]["resourceClaims"],
        json!([{"name": "a", "resourceClaimTemplateName": "t"}])
    );
}
