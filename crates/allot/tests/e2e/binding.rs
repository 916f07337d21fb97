//! Binding conditions (KEP-5007) as a driver's controller reports them with the SDK, with the real scheduler and kubelet.

use std::collections::VecDeque;
use std::path::Path;

use allot_driver::binding::{Binder, BindingConditions, Readiness, WaitingDevice};
use allot_driver::{
    Claim, Driver, Failure, Plugin, Pool, Prepared, PreparedClaim, PreparedDevice, Resources,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{Device, ResourceClaim};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::harness::{Up, directory};

const DRIVER: &str = "fabric.example.com";
const ATTACHED: &str = "fabric.example.com/attached";
const BROKEN: &str = "fabric.example.com/broken";

struct Node;

impl Driver for Node {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let results = claim.results(DRIVER);
        Ok(results.map(PreparedDevice::from_result).collect())
    }

    async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> {
        Ok(())
    }
}

/// The plugin of the node, with one device.
async fn plugin(client: Client, data: &Path) -> Plugin {
    let kubelet = data.join("nodes/node-0");
    let builder = Plugin::builder(DRIVER, Node).client(client);
    let builder = builder.node_name("node-0").kubelet_dir(&kubelet);
    let plugin = builder
        .cdi_dir(kubelet.join("cdi"))
        .start()
        .await
        .expect("started");
    let device = Device {
        name: "port-0".into(),
        binding_conditions: Some(vec![ATTACHED.into()]),
        binding_failure_conditions: Some(vec![BROKEN.into()]),
        ..Device::default()
    };
    plugin
        .publish(Resources::pool("node-0", Pool::new([device])))
        .expect("published");
    plugin
}

/// Says which device it is asked for, and does what is next with it. When nothing is, it takes without end.
struct Fabric {
    asked: mpsc::UnboundedSender<String>,
    fates: Mutex<VecDeque<Readiness>>,
}

impl Binder for Fabric {
    async fn make_ready(&self, device: &WaitingDevice) -> Result<Readiness, Failure> {
        let node = device.node().unwrap_or_default();
        let _ = self
            .asked
            .send(format!("{node}/{}", device.result().device));
        match self.fates.lock().await.pop_front() {
            Some(fate) => Ok(fate),
            None => std::future::pending().await,
        }
    }
}

/// A controller that does this, one after the other.
fn controller<const N: usize>(
    client: Client,
    fates: [Readiness; N],
) -> (AbortOnDropHandle<()>, mpsc::UnboundedReceiver<String>) {
    let (asked, heard) = mpsc::unbounded_channel();
    let fabric = Fabric {
        asked,
        fates: Mutex::new(fates.into()),
    };
    let conditions = BindingConditions::new(client, DRIVER);
    let run = tokio::spawn(async move { conditions.run(fabric).await });
    (AbortOnDropHandle::new(run), heard)
}

async fn create_pod(up: &Up) {
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "port"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]}});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "port"},
        "spec": {"devices": {"requests": [{"name": "port", "exactly": {"deviceClassName": "port"}}]}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {
        "containers": [{"name": "ctr", "image": "x", "command": ["sleep", "86400"],
            "resources": {"claims": [{"name": "port"}]}}],
        "resourceClaims": [{"name": "port", "resourceClaimName": "port"}]}});
    for object in [class, claim, pod] {
        up.create(&object.to_string()).await;
    }
}

async fn node_of(up: &Up) -> Option<String> {
    let pod: Pod = up.pods().get("pod").await.expect("the pod");
    pod.spec.and_then(|spec| spec.node_name)
}

/// The conditions of the claim's device: type, status and reason.
async fn said(up: &Up) -> Vec<String> {
    let claims: Api<ResourceClaim> = Api::default_namespaced(up.client.clone());
    let claim = claims.get("port").await.expect("the claim");
    let devices = claim
        .status
        .and_then(|status| status.devices)
        .unwrap_or_default();
    let conditions = devices
        .into_iter()
        .flat_map(|it| it.conditions.unwrap_or_default());
    conditions
        .map(|it| format!("{} {} {}", it.type_, it.status, it.reason))
        .collect()
}

/// The pod waits for the condition, also while the controller is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_bound_when_its_device_is_ready() {
    let directory = directory();
    let up = Up::start(directory.path(), &["--no-driver"]).await;
    let plugin = plugin(up.client.clone(), directory.path()).await;
    let (first, mut asked) = controller(up.client.clone(), []);
    create_pod(&up).await;
    assert_eq!(asked.recv().await.as_deref(), Some("node-0/port-0"));
    drop(first);
    assert_eq!(node_of(&up).await, None);
    assert!(said(&up).await.is_empty());
    let (_second, mut asked) = controller(up.client.clone(), [Readiness::Ready]);
    assert_eq!(asked.recv().await.as_deref(), Some("node-0/port-0"));
    up.running("pod").await;
    assert_eq!(said(&up).await, [format!("{ATTACHED} True Ready")]);
    plugin.stop().await;
}

/// A device that fails is released, and the pod is scheduled again: here to the same device, which is ready the next time.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_scheduled_again_when_its_device_fails() {
    let directory = directory();
    let up = Up::start(directory.path(), &["--no-driver"]).await;
    let plugin = plugin(up.client.clone(), directory.path()).await;
    let failed = Readiness::failed("NoLink", "the port has no link");
    let fates = [failed.clone(), failed, Readiness::Ready];
    let (_controller, mut asked) = controller(up.client.clone(), fates);
    create_pod(&up).await;
    up.running("pod").await;
    for _ in 0..3 {
        assert_eq!(asked.recv().await.as_deref(), Some("node-0/port-0"));
    }
    assert!(asked.try_recv().is_err());
    assert_eq!(said(&up).await, [format!("{ATTACHED} True Ready")]);
    plugin.stop().await;
}
