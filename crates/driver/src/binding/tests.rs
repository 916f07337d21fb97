//! Binding conditions on the node of tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::Api;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::testing::{Environment, TestClaim, TestNode};
use crate::{Driver, Error, Plugin, Prepared, PreparedClaim};

const DRIVER: &str = "fabric.example.com";
const ATTACHED: &str = "fabric.example.com/attached";
const BROKEN: &str = "fabric.example.com/broken";

/// Its devices need nothing on the node.
struct Node;

impl Driver for Node {
    async fn prepare(&self, _: &Claim) -> Result<Prepared, Failure> {
        Ok(Prepared::default())
    }

    async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> {
        Ok(())
    }
}

async fn start(node: Environment) -> Result<Plugin, Error> {
    node.builder(DRIVER, Node).start().await
}

async fn node() -> TestNode {
    let mut node = TestNode::start().await.unwrap();
    node.run(start).await.unwrap();
    node
}

/// A claim that waits for one condition of a device.
fn waiting(device: &str) -> TestClaim {
    TestClaim::new(device).binding_conditions([ATTACHED], [BROKEN])
}

/// What is to happen to a device, by its name. One that is not there does not end.
type Fates = Arc<Mutex<BTreeMap<String, Vec<Result<Readiness, &'static str>>>>>;

struct Fabric {
    fates: Fates,
    called: mpsc::UnboundedSender<String>,
    dropped: Arc<Notify>,
}

/// Says that a call was dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Binder for Fabric {
    async fn make_ready(&self, device: &WaitingDevice) -> Result<Readiness, Failure> {
        assert_eq!(device.node(), Some("node-0"));
        assert!(device.allocated_at().is_some());
        let name = &device.result().device;
        let fate = self.fates.lock().get_mut(name).and_then(Vec::pop);
        let _ = self.called.send(name.clone());
        match fate {
            Some(fate) => Ok(fate?),
            None => {
                let _dropped = Dropped(Arc::clone(&self.dropped));
                std::future::pending().await
            }
        }
    }
}

/// A running controller, and the names of the devices that it is told to make ready.
struct Controller {
    fates: Fates,
    called: mpsc::UnboundedReceiver<String>,
    dropped: Arc<Notify>,
    _running: tokio_util::task::AbortOnDropHandle<()>,
}

impl Controller {
    fn start(conditions: BindingConditions) -> Self {
        let (told, called) = mpsc::unbounded_channel();
        let fabric = Fabric {
            fates: Fates::default(),
            called: told,
            dropped: Arc::default(),
        };
        let (fates, dropped) = (Arc::clone(&fabric.fates), Arc::clone(&fabric.dropped));
        let running = tokio::spawn(async move { conditions.run(fabric).await });
        Self {
            fates,
            called,
            dropped,
            _running: tokio_util::task::AbortOnDropHandle::new(running),
        }
    }

    fn fate(&self, device: &str, fate: Result<Readiness, &'static str>) {
        self.fates
            .lock()
            .entry(device.to_owned())
            .or_default()
            .push(fate);
    }
}

fn conditions(node: &TestNode) -> BindingConditions {
    BindingConditions::new(node.client(), DRIVER)
}

/// The conditions of a claim's devices: device, type, status and reason.
fn said(node: &TestNode, claim: &ClaimRef) -> Vec<String> {
    let status = node.claim(claim).unwrap().status.unwrap_or_default();
    let mut all = Vec::new();
    for device in status.devices.into_iter().flatten() {
        for it in device.conditions.into_iter().flatten() {
            all.push(format!(
                "{} {} {} {}",
                device.device, it.type_, it.status, it.reason
            ));
        }
    }
    all.sort();
    all
}

#[tokio::test]
async fn devices_are_made_ready_once_and_others_are_left_alone() {
    let node = node().await;
    let mut controller = Controller::start(conditions(&node));
    controller.fate("port-0", Ok(Readiness::Ready));
    controller.fate("port-2", Ok(Readiness::Ready));
    // No condition, a condition of another controller, and one of each.
    let plain = node.create(&TestClaim::new("port-1")).unwrap();
    let claim = waiting("port-0").request("second", "port-2");
    let claim = claim
        .binding_conditions([ATTACHED], [BROKEN])
        .request("third", "port-3");
    let claim = node.create(&claim).unwrap();
    assert_eq!(node.readiness(&claim).await.unwrap(), Readiness::Ready);
    assert_eq!(
        said(&node, &claim),
        [
            format!("port-0 {ATTACHED} True Ready"),
            format!("port-2 {ATTACHED} True Ready"),
        ]
    );
    assert!(
        node.claim(&plain)
            .unwrap()
            .status
            .unwrap()
            .devices
            .is_none()
    );
    let mut called = [
        controller.called.recv().await,
        controller.called.recv().await,
    ];
    called.sort();
    assert_eq!(called.map(Option::unwrap), ["port-0", "port-2"]);
    // A later claim shows that nothing else was done before.
    controller.fate("port-4", Ok(Readiness::Ready));
    let later = node.create(&waiting("port-4")).unwrap();
    node.readiness(&later).await.unwrap();
    assert_eq!(controller.called.recv().await.as_deref(), Some("port-4"));
}

#[tokio::test]
async fn a_failed_device_can_be_allocated_anew() {
    let node = node().await;
    let controller = Controller::start(conditions(&node));
    let broken = Readiness::failed("NoLink", "the port has no link");
    controller.fate("port-0", Ok(broken.clone()));
    let claim = node.create(&waiting("port-0")).unwrap();
    assert_eq!(node.readiness(&claim).await.unwrap(), broken);
    assert_eq!(
        said(&node, &claim),
        [
            format!("port-0 {ATTACHED} False NoLink"),
            format!("port-0 {BROKEN} True NoLink"),
        ]
    );
    // The same device for the same claim: the failure was that of the allocation before.
    controller.fate("port-0", Ok(Readiness::Ready));
    node.release(&claim).unwrap();
    node.allocate(&claim, &waiting("port-0")).unwrap();
    assert_eq!(node.readiness(&claim).await.unwrap(), Readiness::Ready);
    assert_eq!(
        said(&node, &claim),
        [format!("port-0 {ATTACHED} True Ready")]
    );
}

#[tokio::test]
async fn an_error_is_shown_and_tried_again() {
    let node = node().await;
    let mut controller = Controller::start(conditions(&node));
    controller.fate("port-0", Err("the fabric manager does not answer"));
    let claim = node.create(&waiting("port-0")).unwrap();
    let claims: Api<ResourceClaim> = Api::namespaced(node.client(), "default");
    let shows = |claim: Option<&ResourceClaim>| {
        claim.is_some_and(|claim| json!(claim.status).to_string().contains("does not answer"))
    };
    let shown = kube::runtime::wait::await_condition(claims, &claim.name, shows);
    shown.await.unwrap();
    assert_eq!(
        said(&node, &claim),
        [format!("port-0 {ATTACHED} False NotReady")]
    );
    // The second call does not end.
    assert_eq!(controller.called.recv().await.as_deref(), Some("port-0"));
    assert_eq!(controller.called.recv().await.as_deref(), Some("port-0"));
}

#[tokio::test]
async fn a_call_ends_with_its_allocation() {
    let node = node().await;
    let mut controller = Controller::start(conditions(&node).parallel(1));
    let claim = node.create(&waiting("port-0")).unwrap();
    assert_eq!(controller.called.recv().await.as_deref(), Some("port-0"));
    controller.fate("port-1", Ok(Readiness::Ready));
    let second = node.create(&waiting("port-1")).unwrap();
    node.release(&claim).unwrap();
    controller.dropped.notified().await;
    assert_eq!(node.readiness(&second).await.unwrap(), Readiness::Ready);
    assert_eq!(said(&node, &claim), [""; 0]);
}

/// Restarts, other writers, and an allocation that is not the one that the report is about.
#[tokio::test]
async fn reports_keep_what_others_and_earlier_processes_said() {
    let node = node().await;
    let claim = waiting("port-0").request("second", "port-1");
    let claim = claim.binding_conditions([ATTACHED, "other.example.com/checked"], [BROKEN]);
    let claim = node.create(&claim).unwrap();
    let mine = || conditions(&node).conditions([ATTACHED, BROKEN]);
    let devices = |conditions: &BindingConditions| conditions.waiting(&node.claim(&claim).unwrap());

    // The driver has data for the same devices, another controller its condition.
    let data = |device: &str| AllocatedDeviceStatus {
        pool: "node-0".into(),
        device: device.into(),
        data: Some(RawExtension(json!({"port": device}))),
        ..AllocatedDeviceStatus::default()
    };
    let plugin = node.plugin().unwrap();
    plugin
        .set_device_status(&claim, ["port-0", "port-1"].map(data))
        .await
        .unwrap();
    let other = conditions(&node).conditions(["other.example.com/checked"]);
    let other = other.field_manager("checker of other.example.com");
    let waits = devices(&other);
    assert_eq!(waits.len(), 1);
    other.ready(&waits[0]).await.unwrap();
    assert!(devices(&other).is_empty());

    // Each report by a process of its own.
    for device in devices(&mine()) {
        mine().ready(&device).await.unwrap();
    }
    let all = [
        format!("port-0 {ATTACHED} True Ready"),
        format!("port-1 {ATTACHED} True Ready"),
        "port-1 other.example.com/checked True Ready".to_owned(),
    ];
    assert_eq!(said(&node, &claim), all);
    assert_eq!(node.readiness(&claim).await.unwrap(), Readiness::Ready);
    let statuses = node.claim(&claim).unwrap().status.unwrap().devices.unwrap();
    assert!(statuses.iter().all(|it| it.data.is_some()));
    // What the driver writes later takes no condition away.
    plugin
        .set_device_status(&claim, [data("port-0")])
        .await
        .unwrap();
    assert_eq!(said(&node, &claim), all);
}

#[tokio::test]
async fn a_report_is_repeated_without_a_write_and_refused_for_another_allocation() {
    let node = node().await;
    let claim = node.create(&waiting("port-0")).unwrap();
    let conditions = conditions(&node);
    let version = || node.claim(&claim).unwrap().metadata.resource_version;
    let device = conditions.waiting(&node.claim(&claim).unwrap()).remove(0);
    conditions.ready(&device).await.unwrap();
    let before = version();
    conditions.ready(&device).await.unwrap();
    assert_eq!(version(), before);
    node.release(&claim).unwrap();
    let gone = conditions.ready(&device).await;
    assert!(matches!(gone, Err(ReportError::Gone)), "{gone:?}");
    node.allocate(&claim, &waiting("port-0")).unwrap();
    let gone = conditions.failed(&device, "NoLink", "").await;
    assert!(matches!(gone, Err(ReportError::Gone)), "{gone:?}");
    assert_eq!(said(&node, &claim), [""; 0]);
    node.delete(&claim).unwrap();
    let gone = conditions.ready(&device).await;
    assert!(matches!(gone, Err(ReportError::Gone)), "{gone:?}");
}

/// The claim changes between the read and the write of a report.
#[tokio::test]
async fn reports_of_several_devices_at_the_same_time_do_not_undo_each_other() {
    let node = node().await;
    let mut claim = waiting("port-0");
    for index in 1..6 {
        let more = claim.request(format!("r-{index}"), format!("port-{index}"));
        claim = more.binding_conditions([ATTACHED], [BROKEN]);
    }
    let claim = node.create(&claim).unwrap();
    let conditions = conditions(&node);
    let devices = conditions.waiting(&node.claim(&claim).unwrap());
    let reports = devices.iter().map(|device| conditions.ready(device));
    for report in futures::future::join_all(reports).await {
        report.unwrap();
    }
    assert_eq!(node.readiness(&claim).await.unwrap(), Readiness::Ready);
    assert_eq!(said(&node, &claim).len(), 6);
}

/// What a device or a fabric says can be longer than the API accepts.
#[tokio::test]
async fn text_of_any_length_is_reported() {
    let node = node().await;
    let claim = node.create(&waiting("port-0")).unwrap();
    let conditions = conditions(&node);
    let device = conditions.waiting(&node.claim(&claim).unwrap()).remove(0);
    let long = "\u{1F600}".repeat(20_000);
    conditions.failed(&device, "NoLink", &long).await.unwrap();
    let status = json!(node.claim(&claim).unwrap().status);
    let message = status["devices"][0]["conditions"][0]["message"]
        .as_str()
        .unwrap();
    assert_eq!(message.len(), 32 * 1024);
    let refused = conditions
        .failed(&device, "not a reason", "")
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("reason"), "{refused}");
}

#[test]
fn the_node_of_an_allocation_is_known_if_there_is_one() {
    let node = |terms: Value| {
        let selector = serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap();
        only_node(&selector).map(str::to_owned)
    };
    let field = |operator: &str, values: &[&str]| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]});
    assert_eq!(node(json!([field("In", &["a"])])).as_deref(), Some("a"));
    assert_eq!(node(json!([field("In", &["a", "b"])])), None);
    assert_eq!(node(json!([field("NotIn", &["a"])])), None);
    assert_eq!(
        node(json!([field("In", &["a"]), field("In", &["b"])])),
        None
    );
    let label = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]});
    assert_eq!(node(json!([label])), None);
    assert_eq!(node(json!([])), None);
}
