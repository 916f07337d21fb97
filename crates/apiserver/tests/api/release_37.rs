//! What a release serves or accepts by default and the one before does not, by the same requests to both; 1.37 above all.

use allot_apiserver::{Config, Server};
use allot_model::features::{Feature, Features, Release};
use serde_json::{Value, json};

use crate::{admin, with_config};

const GROUP: &str = "/apis/resource.k8s.io";

async fn server_of(minor: u8) -> Server {
    server_with(Features::of(Release::new(minor))).await
}

async fn server_with(features: Features) -> Server {
    let config = Config {
        features,
        ..Config::default()
    };
    with_config(config).await
}

/// Sends a request to servers of both releases; `expected` has the code and a text of the answer of each.
async fn check(steps: &[(&str, Value)], expected: [(u16, &str); 2]) {
    for (minor, (code, text)) in [36, 37].into_iter().zip(expected) {
        let server = server_of(minor).await;
        let mut last = (0, Value::Null);
        for (line, body) in steps {
            let (method, path) = line.split_once(' ').unwrap();
            last = admin(&server, method, &format!("{GROUP}{path}"), body.clone()).await;
        }
        let shown = last.1.to_string();
        assert!(
            last.0 == code && shown.contains(text),
            "1.{minor}: {last:?}"
        );
    }
}

fn rule() -> Value {
    json!({
        "metadata": {"name": "broken"},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com"},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
        },
    })
}

#[tokio::test]
async fn taint_rules_are_stable() {
    const RULES: &str = "/v1/devicetaintrules";
    let post = format!("POST {RULES}");
    let create = (post.as_str(), rule());
    check(
        std::slice::from_ref(&create),
        [(404, "404"), (201, "timeAdded")],
    )
    .await;
    let put = format!("PUT {RULES}/broken");
    let update = (put.as_str(), rule());
    let needs = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    check(&[create.clone(), update], [(404, "404"), (422, needs)]).await;
    let delete = format!("DELETE {RULES}/broken");
    let delete = (delete.as_str(), Value::Null);
    check(
        &[create, delete],
        [(404, "404"), (200, r#""status":"Success""#)],
    )
    .await;
}

#[tokio::test]
async fn slices_are_selected_by_pool() {
    let list = "GET /v1/resourceslices?fieldSelector=spec.pool.name%3Dnode-0";
    check(
        &[(list, Value::Null)],
        [
            (400, "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.pool.name"),
            (200, "ResourceSliceList"),
        ],
    )
    .await;
}

fn slice(policy: Value) -> Value {
    json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [{
                "name": "gpu-0",
                "allowMultipleAllocations": true,
                "capacity": {"cores": {"value": "6", "requestPolicy": policy}},
            }],
        },
    })
}

/// Creates a slice with a policy on 1.36, on 1.37, and on 1.37 with fractions.
async fn check_policy(policy: Value, expected: [(u16, &str); 3]) {
    let fractional = Features::of(Release::new(37)).with(Feature::DRAFractionalCapacityRange, true);
    let releases = [36, 37].map(|minor| Features::of(Release::new(minor)));
    let all = releases.into_iter().chain([fractional]);
    for (at, (features, (code, text))) in all.zip(expected).enumerate() {
        let server = server_with(features).await;
        let path = format!("{GROUP}/v1/resourceslices");
        let found = admin(&server, "POST", &path, slice(policy.clone())).await;
        let message = found.1["message"].as_str().unwrap_or_default();
        assert!(
            found.0 == code && message.contains(text),
            "{policy}, {at}: {found:?}"
        );
    }
}

#[tokio::test]
async fn ranges_of_capacities_may_have_fractions() {
    let whole = (422, "is not a multiple of a given step (1500m) from (0)");
    check_policy(
        json!({"default": "1500m", "validRange": {"min": "0", "max": "4500m", "step": "1500m"}}),
        [whole, whole, (201, "")],
    )
    .await;
    check_policy(
        json!({"default": "600m", "validRange": {"min": "250m", "step": "250m"}}),
        [
            (201, ""),
            (201, ""),
            (422, r#"step: Invalid value: "600m": value is not a multiple of a given step (250m) from (250m)"#),
        ],
    )
    .await;
    check_policy(
        json!({"default": "1500u", "validRange": {"min": "0", "step": "1m"}}),
        [
            (201, ""),
            (201, ""),
            (
                422,
                r#"default: Invalid value: "1500u": value cannot be represented as a milli value"#,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn ranges_that_cannot_be_counted_are_refused() {
    let zero = (
        422,
        r#"step: Invalid value: "0": must be greater than zero"#,
    );
    check_policy(
        json!({"default": "1", "validRange": {"min": "1", "step": "0"}}),
        [(201, ""), zero, zero],
    )
    .await;
    let negative = (
        422,
        r#"min: Invalid value: "-2": must be greater than or equal to 0"#,
    );
    check_policy(
        json!({"default": "1", "validRange": {"min": "-2", "max": "5", "step": "1"}}),
        [(201, ""), negative, negative],
    )
    .await;
    let at = |path| move |text: &str| format!("validRange.{path}: Invalid value: \"1\": {text}");
    let (old, new) = (
        at("min")("default is less than min: 2"),
        at("default")("default is less than min: 2"),
    );
    check_policy(
        json!({"default": "1", "validRange": {"min": "2"}}),
        [(422, &old), (422, &new), (422, &new)],
    )
    .await;
}

#[tokio::test]
async fn the_version_is_that_of_the_release() {
    for (minor, expected) in [(34, ("36", "34")), (36, ("36", "36")), (37, ("37", "37"))] {
        let (_, version) = admin(&server_of(minor).await, "GET", "/version", Value::Null).await;
        let shown = ["minor", "emulationMinor"].map(|key| version[key].as_str().unwrap());
        assert_eq!((shown[0], shown[1]), expected, "1.{minor}");
    }
}

#[tokio::test]
async fn names_of_services_may_begin_with_a_digit_since_1_36() {
    let service = json!({"metadata": {"name": "9a"}, "spec": {"ports": [{"port": 80}]}});
    let path = "/api/v1/namespaces/default/services";
    let server = server_of(35).await;
    let (code, body) = admin(&server, "POST", path, service.clone()).await;
    let text = body["message"].as_str().unwrap();
    assert!(
        code == 422 && text.contains("a DNS-1035 label must consist of"),
        "{body}"
    );
    let server = server_of(36).await;
    assert_eq!(admin(&server, "POST", path, service).await.0, 201);
}

/// A scheduler could give pods any label also where upstream takes none from it.
#[tokio::test]
async fn pods_get_the_labels_of_bindings_since_1_35() {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let binding = json!({
        "metadata": {"name": "p", "labels": {"a": "b"}}, "target": {"kind": "Node", "name": "n"},
    });
    for (minor, expected) in [(34, Value::Null), (35, json!({"a": "b"}))] {
        let server = server_of(minor).await;
        admin(&server, "POST", PODS, pod.clone()).await;
        let path = format!("{PODS}/p/binding");
        let (code, body) = admin(&server, "POST", &path, binding.clone()).await;
        assert_eq!(code, 201, "{body}");
        let (_, bound) = admin(&server, "GET", &format!("{PODS}/p"), Value::Null).await;
        assert_eq!(bound["spec"]["nodeName"], "n", "{bound}");
        assert_eq!(bound["metadata"]["labels"], expected, "1.{minor}");
    }
}
