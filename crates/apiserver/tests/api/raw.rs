//! Raw extensions come back as the text that was sent, whatever happens around them.

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_apiserver::identity::User;
use allot_apiserver::registry::RuntimeConfig;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;

use crate::with_config;

const CLAIMS: &str = "namespaces/default/resourceclaims";

async fn server() -> Server {
    let versions = ["v1beta1", "v1beta2"].map(|it| format!("resource.k8s.io/{it}=true"));
    let config = Config {
        runtime_config: RuntimeConfig::parse(&versions.join(",")).unwrap(),
        ..Config::default()
    };
    with_config(config).await
}

/// The text of an answer.
async fn send_as(server: &Server, method: &str, path: &str, kind: &str, body: String) -> String {
    let request = http::Request::builder()
        .method(method)
        .uri(format!("/apis/resource.k8s.io/{path}"))
        .header("content-type", kind)
        .body(Full::new(bytes::Bytes::from(body)))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(matches!(code, 200 | 201), "{method} {path}: {text}");
    text
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// Parameters of two configurations, and the data of a device, on all ways.
async fn check(server: &Server, name: &str, [one, two, data]: [&str; 3]) {
    let config = |text: &str| format!(r#"{{"opaque":{{"driver":"d","parameters":{text}}}}}"#);
    let claim = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"c"}}}}],"config":[{},{}]}}}}}}"#,
        config(one),
        config(two)
    );
    let holds = |text: &str, what: &str| {
        let both = [one, two].map(|text| format!("\"parameters\":{text}}}"));
        let first = text.find(&both[0]).unwrap_or(usize::MAX);
        let second = text.rfind(&both[1]).unwrap_or_default();
        assert!(first <= second, "{what}: {both:?} in {text}");
    };
    let path = format!("v1/{CLAIMS}/{name}");
    holds(
        &send_as(server, "POST", &format!("v1/{CLAIMS}"), JSON, claim).await,
        "create",
    );
    for version in ["v1", "v1beta1", "v1beta2"] {
        let path = format!("{version}/{CLAIMS}");
        holds(
            &send_as(server, "GET", &path, JSON, String::new()).await,
            "list",
        );
        let path = format!("{path}/{name}");
        holds(
            &send_as(server, "GET", &path, JSON, String::new()).await,
            "get",
        );
    }
    let label = r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned();
    holds(
        &send_as(server, "PATCH", &path, MERGE, label).await,
        "patch",
    );
    let strategic = "application/strategic-merge-patch+json";
    let label = r#"{"metadata":{"labels":{"a":"c"}}}"#.to_owned();
    holds(
        &send_as(server, "PATCH", &path, strategic, label).await,
        "strategic patch",
    );
    let now = send_as(server, "GET", &path, JSON, String::new()).await;
    holds(&send_as(server, "PUT", &path, JSON, now).await, "update");
    let allocation =
        r#"{"devices":{"results":[{"request":"r","driver":"d","pool":"p","device":"x"}]}}"#;
    let status = format!(
        r#"{{"allocation":{allocation},"devices":[{{"driver":"d","pool":"p","device":"x","data":{data}}}]}}"#
    );
    let now = send_as(server, "GET", &path, JSON, String::new()).await;
    // Of a key that stands twice the last counts.
    let end = now.strip_suffix('}').expect("an object");
    let whole = format!(r#"{end},"status":{status}}}"#);
    let text = send_as(server, "PUT", &format!("{path}/status"), JSON, whole).await;
    holds(&text, "status");
    assert!(
        text.contains(&format!("\"data\":{data}")),
        "{data} in {text}"
    );
    let beta = format!("v1beta1/{CLAIMS}/{name}");
    let text = send_as(server, "GET", &beta, JSON, String::new()).await;
    assert!(
        text.contains(&format!("\"data\":{data}")),
        "{data} in {text}"
    );
}

#[tokio::test]
async fn raw_extensions_keep_their_text() {
    let server = server().await;
    let odd = r#"{"z":12345678901234567890123,"a":0.1000,"a":1,"e":1e3}"#;
    check(
        &server,
        "odd",
        [odd, r#"{"b":1,"a":1.0}"#, r#"{"y":1e2,"x":[]}"#],
    )
    .await;
    // Equal values with different texts stay apart.
    let (one, two) = (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#);
    check(&server, "equal", [one, two, r#"{"a":1.50}"#]).await;
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Has space in places where it means nothing, and where it does.
const SPACED: &str = "{\"b\": \"x  y\",\n\t\"a\" : [1, 2.0]}";
const COMPACT: &str = r#"{"b":"x  y","a":[1,2.0]}"#;

/// The raw fields of an object that is read as protobuf.
async fn raws(server: &Server, path: &str) -> Vec<String> {
    let request = http::Request::builder()
        .uri(format!("/apis/resource.k8s.io/{path}"))
        .header("accept", PROTOBUF)
        .body(Full::new(bytes::Bytes::new()))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let read = allot_schema::protobuf::to_json(&bytes, |_, _| true).unwrap();
    read.raws.into_iter().map(str::to_owned).collect()
}

/// Upstream keeps the bytes of raw fields; its JSON answers leave out the space between tokens, its protobuf ones do not.
#[tokio::test]
async fn regression_raw_extensions_keep_their_space_in_protobuf() {
    let server = server().await;
    let claims = format!("v1/{CLAIMS}");
    let holds = async |name: &str| {
        for version in ["v1", "v1beta1"] {
            let path = format!("{version}/{CLAIMS}/{name}");
            assert_eq!(raws(&server, &path).await, [SPACED], "{path} in protobuf");
            let text = send_as(&server, "GET", &path, JSON, String::new()).await;
            assert!(text.contains(COMPACT), "{path}: {text}");
            let list = format!("{version}/{CLAIMS}?fieldSelector=metadata.name={name}");
            let text = send_as(&server, "GET", &list, JSON, String::new()).await;
            assert!(text.contains(COMPACT), "{list}: {text}");
            assert_eq!(raws(&server, &list).await, [SPACED], "{list} in protobuf");
        }
    };
    // It is sent as JSON, changed beside the raw field, and sent as protobuf.
    let claim = format!(
        r#"{{"metadata":{{"name":"json"}},"spec":{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"c"}}}}],"config":[{{"opaque":{{"driver":"d","parameters":{SPACED}}}}}]}}}}}}"#
    );
    let text = send_as(&server, "POST", &claims, JSON, claim.clone()).await;
    assert!(text.contains(COMPACT), "create: {text}");
    holds("json").await;
    let label = r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned();
    send_as(&server, "PATCH", &format!("{claims}/json"), MERGE, label).await;
    holds("json").await;

    let mut object: serde_json::Value = serde_json::from_str(&claim).unwrap();
    object["kind"] = "ResourceClaim".into();
    object["apiVersion"] = "resource.k8s.io/v1".into();
    object["metadata"]["name"] = "protobuf".into();
    let spaced =
        |out: &mut Vec<u8>, _: &serde_json::Value| out.extend_from_slice(SPACED.as_bytes());
    let body = allot_schema::protobuf::encode(&object, spaced).unwrap();
    let request = http::Request::builder()
        .method("POST")
        .uri(format!("/apis/resource.k8s.io/{claims}"))
        .header("content-type", PROTOBUF)
        .body(Full::new(bytes::Bytes::from(body)))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    assert_eq!(response.status(), 201);
    holds("protobuf").await;
}

/// What counted was the form without space and repeated members, so that tenants could store megabytes.
#[tokio::test]
async fn regression_the_length_of_parameters_is_that_of_their_text() {
    let server = server().await;
    let claims = format!("/apis/resource.k8s.io/v1/{CLAIMS}");
    for (name, added, count, code) in [
        ("some-space", " ", 1000, 201),
        ("much-space", " ", 10 * 1024, 422),
        ("repeated", ",\"a\":1", 2 * 1024, 422),
    ] {
        // The first one has the same value.
        let parameters = [
            "{\"a\":1}".to_owned(),
            format!("{{\"a\":1{}}}", added.repeat(count)),
        ];
        let config =
            parameters.map(|text| format!(r#"{{"opaque":{{"driver":"d","parameters":{text}}}}}"#));
        let claim = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"c"}}}}],"config":[{}]}}}}}}"#,
            config.join(",")
        );
        let request = http::Request::builder()
            .method("POST")
            .uri(&claims)
            .header("content-type", JSON)
            .body(Full::new(bytes::Bytes::from(claim)))
            .unwrap();
        let response = server.handle(request, Some(User::admin())).await;
        assert_eq!(response.status().as_u16(), code, "{name}");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let is_refused =
            String::from_utf8_lossy(&bytes).contains("config[1].opaque.parameters: Too long");
        assert_eq!(is_refused, code == 422, "{name}");
    }
}

/// JSON objects as programs might write them.
fn text() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        "-?(0|[1-9][0-9]{0,24})",
        "(0|[1-9][0-9]{0,4})\\.[0-9]{1,6}",
        "[1-9](\\.[0-9])?[eE][+-]?[0-9]"
    ];
    let leaf = prop_oneof![
        number,
        "\"[a-z \\u00e9]{0,5}\"",
        Just("true".to_owned()),
        Just("null".to_owned())
    ];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        let member = ("[a-c]", inner.clone()).prop_map(|(key, value)| format!("\"{key}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec(member, 0..3).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    });
    prop::collection::vec(("[a-c]", value), 1..4).prop_map(|members| {
        let members: Vec<String> = members
            .into_iter()
            .map(|(key, value)| format!("\"{key}\":{value}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

#[test]
fn any_raw_extension_keeps_its_text() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(server());
    let number = std::cell::Cell::new(0);
    let config = ProptestConfig::with_cases(32);
    proptest!(config, |(one in text(), two in text(), data in text())| {
        number.set(number.get() + 1);
        let name = format!("c{}", number.get());
        runtime.block_on(check(&server, &name, [&one, &two, &data]));
    });
}
