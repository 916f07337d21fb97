//! The admission webhook for parameters, with the configuration that the chart installs: what a driver would refuse is
//! refused when it is written.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use allot_apiserver::pki::Authority;
use base64::Engine as _;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::deploy::Component;
use super::harness::{PATIENCE, Up, create, directory, objects};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Starts the webhook, and returns it with the `clientConfig` that reaches it.
async fn webhook(directory: &Path) -> (Component, Value) {
    let authority = Authority::generate("webhook").expect("a CA");
    let identity = authority
        .server("webhook", &[], &[LOCAL])
        .expect("a certificate");
    let (chain, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    std::fs::write(&chain, identity.certificate).expect("written");
    std::fs::write(&key, identity.key).expect("written");
    let arguments = [
        "driver",
        "webhook",
        "-v",
        "--bind-address=127.0.0.1",
        "--port=0",
        "--tls-cert-file",
        chain.to_str().expect("UTF-8"),
        "--tls-private-key-file",
        key.to_str().expect("UTF-8"),
    ];
    let component = Component::start(directory, "webhook", &arguments);
    // It says which port it has got.
    let address = allot_testing::wait::until("the webhook serves", || async {
        let log = component.log();
        let (_, rest) = log.split_once("the webhook serves ").ok_or(log.clone())?;
        let (line, _) = rest.split_once('\n').ok_or(log.clone())?;
        let (_, address) = line.split_once("address=").ok_or(log.clone())?;
        Ok::<_, String>(address.trim().to_owned())
    })
    .await;
    let bundle = base64::prelude::BASE64_STANDARD.encode(authority.certificate());
    let url = format!("https://{address}/validate-resource-claim-parameters");
    (component, json!({"url": url, "caBundle": bundle}))
}

/// Installs the configuration of the manifest for this webhook.
pub(super) async fn install(client: &Client, reached: Value) {
    let manifest = include_str!("../../../../deploy/webhook.yaml");
    let is = |kind: &str| kind == "ValidatingWebhookConfiguration";
    let mut found = objects(manifest).into_iter().filter(|object| {
        let types = object.types.as_ref();
        types.is_some_and(|types| is(&types.kind))
    });
    let mut configuration = serde_json::to_value(found.next()).expect("JSON");
    configuration["webhooks"][0]["clientConfig"] = reached;
    create(client, &configuration.to_string()).await;
}

pub(super) async fn call(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, String> {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes());
    let answer = client.request(request.expect("a request")).await;
    answer.map_err(|error| allot_reflector::api_message(&error))
}

/// `spec` of a claim with parameters for a driver.
pub(super) fn spec(version: &str, driver: &str, parameters: &Value) -> Value {
    let request = match version {
        "v1beta1" => json!({"name": "gpu", "deviceClassName": "gpu.example.com"}),
        _ => json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}),
    };
    let config = json!([{"opaque": {"driver": driver, "parameters": parameters}}]);
    json!({"devices": {"requests": [request], "config": config}})
}

pub(super) fn gpu(sharing: Value) -> Value {
    json!({"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig", "sharing": sharing})
}

pub(super) const GPU: &str = "gpu.example.com";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";

#[tokio::test(flavor = "multi_thread")]
async fn what_the_driver_would_refuse_is_refused_when_it_is_written() {
    let versions = "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true";
    let up = Up::in_memory_with(&[versions]).await;
    let directory = directory();
    let client = &up.client;
    let make = async |version: &str, name: &str, driver: &str, parameters: &Value| {
        let path = format!("/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims");
        let claim = json!({"metadata": {"name": name}, "spec": spec(version, driver, parameters)});
        call(client, "POST", &path, &claim).await.map(drop)
    };
    let wrong = gpu(json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"intervall": "Long"}}));

    // Without the webhook: the claim is there, and its pod does not start.
    make("v1", "old", GPU, &wrong).await.expect("admitted");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old"}, "spec": {
        "containers": [{"name": "ctr", "image": "host", "command": ["sleep", "100"],
            "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "old"}],
    }});
    create(client, &pod.to_string()).await;
    let cause = failure(client).await;

    let (component, reached) = webhook(directory.path()).await;
    install(client, reached).await;
    // Until the API server has the configuration, a claim is admitted.
    let refusal = async {
        loop {
            match make("v1", "probe", GPU, &wrong).await {
                Err(said) if said.contains("denied the request") => break said,
                Ok(()) => {
                    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/probe";
                    call(client, "DELETE", path, &json!({}))
                        .await
                        .expect("deleted");
                }
                Err(_) => {}
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let said = tokio::time::timeout(PATIENCE, refusal)
        .await
        .expect("a refusal");
    let at = "object at spec.devices.config[0].opaque.parameters is invalid: ";
    let (before, reason) = said.split_once(at).unwrap_or_else(|| panic!("{said}"));
    assert_eq!(
        before,
        "admission webhook \"parameters.webhook.allot.dev\" denied the request: 1 configs failed to validate: "
    );
    // In the words of the driver: both use one function.
    assert!(reason.contains("unknown field `intervall`"), "{reason}");
    assert!(cause.contains(reason), "{cause}");

    for version in ["v1beta1", "v1beta2"] {
        let said = make(version, "other", GPU, &wrong).await.unwrap_err();
        assert!(said.contains(at), "{said}");
    }
    let net = json!({"apiVersion": "net.allot.dev/v1alpha1", "kind": "InterfaceConfig", "mtu": 1});
    let said = make("v1", "net", "net.allot.dev", &net).await.unwrap_err();
    assert!(said.contains("must be from 68 to 65535"), "{said}");
    let template = json!({"metadata": {"name": "t"}, "spec": {"spec": spec("v1", GPU, &wrong)}});
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
    let said = call(client, "POST", path, &template).await.unwrap_err();
    assert!(
        said.contains("spec.spec.devices.config[0].opaque"),
        "{said}"
    );
    let mut class = json!({"metadata": {"name": "c"}});
    call(client, "POST", CLASSES, &class)
        .await
        .expect("admitted");
    class["spec"]["config"] = spec("v1", GPU, &wrong)["devices"]["config"].clone();
    let said = call(client, "PUT", &format!("{CLASSES}/c"), &class)
        .await
        .unwrap_err();
    assert!(said.contains("spec.config[0].opaque.parameters"), "{said}");

    make(
        "v1",
        "good",
        GPU,
        &gpu(json!({"strategy": "SpacePartitioning"})),
    )
    .await
    .expect("admitted");
    make("v1", "foreign", "other.example.com", &wrong)
        .await
        .expect("admitted");

    // The claim that is older than the webhook goes: its finalizer is removed from what would not be admitted today.
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    let uid = claims
        .get("old")
        .await
        .expect("there")
        .uid()
        .expect("stored");
    up.pods()
        .delete("old", &DeleteParams::default().grace_period(0))
        .await
        .expect("deleted");
    claims
        .delete("old", &DeleteParams::default())
        .await
        .expect("deleted");
    let gone = await_condition(claims, "old", is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("in time")
        .expect("gone");

    // What the webhook is not asked about does not depend on it.
    drop(component);
    let said = make("v1", "late", GPU, &gpu(json!(null)))
        .await
        .unwrap_err();
    assert!(said.contains("failed calling webhook"), "{said}");
    make("v1", "late", "other.example.com", &wrong)
        .await
        .expect("admitted");
}

/// The event of a claim that is not prepared.
async fn failure(client: &Client) -> String {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let found = async {
        loop {
            let list = events.list(&ListParams::default()).await.expect("listed");
            let messages = list.items.into_iter().filter_map(|event| event.message);
            let mut failed = messages.filter(|message| message.contains("config parameters"));
            if let Some(message) = failed.next() {
                return message;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.expect("an event about the claim")
}
