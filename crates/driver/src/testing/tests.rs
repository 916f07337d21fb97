//! The node of tests, and its API.

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, Device};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::Api;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};

use super::*;
use crate::{Boot, Claim, Error, Pool, Prepared, PreparedClaim, PreparedDevice, Resources};

const DRIVER: &str = "leds.example.com";

/// Sends what it is told into a channel.
struct Leds(tokio::sync::mpsc::UnboundedSender<String>);

impl Driver for Leds {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        claim.save_state(&claim.reference().name).await?;
        let prepared = |result: &_| {
            let configs = claim.configs(DRIVER, result);
            let config = configs.last().and_then(|config| config["color"].as_str());
            let env = vec![format!("COLOR={}", config.unwrap_or("red"))];
            PreparedDevice::from_result(result).edits(ContainerEdits {
                env,
                ..ContainerEdits::default()
            })
        };
        let devices: Vec<PreparedDevice> = claim.results(DRIVER).map(prepared).collect();
        match devices.iter().any(|device| device.device() == "broken") {
            true => Err("it is broken".into()),
            false => Ok(devices.into()),
        }
    }

    async fn unprepare(&self, claim: &PreparedClaim) -> Result<(), Failure> {
        let _ = self
            .0
            .send(format!("unprepare {:?}", claim.state::<String>()?));
        Ok(())
    }

    async fn restore(&self, claims: &[PreparedClaim], boot: Boot) -> Result<(), Failure> {
        let _ = self.0.send(format!("restore {} {boot:?}", claims.len()));
        Ok(())
    }
}

/// A node with the driver, and what the driver was told.
async fn node() -> (TestNode, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let (told, heard) = tokio::sync::mpsc::unbounded_channel();
    let mut node = TestNode::start().await.unwrap();
    let start = move |environment: Environment| {
        let builder = environment.builder(DRIVER, Leds(told.clone()));
        async move {
            let plugin = builder.cdi_kind("leds.example.com/led").start().await?;
            let devices = (0..200).map(|index| Device {
                name: format!("led-{index}"),
                ..Device::default()
            });
            plugin.publish(Resources::pool(&environment.node_name, Pool::new(devices)))?;
            Ok::<_, Error>(plugin)
        }
    };
    node.run(start).await.unwrap();
    (node, heard)
}

#[tokio::test]
async fn a_driver_sees_restarts_and_reboots_as_they_are() {
    let (mut node, mut heard) = node().await;
    let slices = node.published().await.unwrap();
    assert_eq!(slices.len(), 2, "200 devices are in two slices");
    let claim = node
        .prepare(TestClaim::new("led-0").name("a"))
        .await
        .unwrap();
    assert_eq!(heard.recv().await.unwrap(), "restore 0 Unknown");
    node.restart_driver().await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), "restore 1 Same");
    node.reboot().await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), "restore 1 Changed");
    node.restart_driver().await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), "restore 1 Same");
    node.restart_kubelet().await.unwrap();
    node.unprepare(claim.reference()).await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), "unprepare Some(\"a\")");
    node.stop().await;
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn parameters_reach_the_driver_and_its_errors_the_test() {
    let (node, _heard) = node().await;
    let color =
        |color: &str| json!({"apiVersion": "leds.example.com/v1", "kind": "Led", "color": color});
    let claim = TestClaim::new("led-1").class_parameters(color("blue"));
    let one = node.prepare(claim.clone()).await.unwrap();
    assert_eq!(one.env("COLOR"), Some("blue"));
    node.unprepare(one.reference()).await.unwrap();
    let other = node
        .prepare(claim.parameters(color("green")))
        .await
        .unwrap();
    assert_eq!(other.env("COLOR"), Some("green"));
    assert_eq!(other.devices()[0].requests, ["device"]);

    let broken = node
        .prepare(TestClaim::new("led-2").request("more", "broken"))
        .await;
    assert!(matches!(&broken, Err(TestError::Driver(text)) if text.contains("it is broken")));
    let twice = node.prepare(TestClaim::new("led-1")).await.unwrap_err();
    assert!(twice.to_string().contains("led-1"), "{twice}");
    // The first claim is gone, so that its device is free.
    node.delete(other.reference()).unwrap();
    node.prepare(TestClaim::new("led-1")).await.unwrap();
    let invalid = node.create(&TestClaim::new("led-3").name("Not a name"));
    assert!(matches!(&invalid, Err(TestError::Api(text)) if text.contains("metadata.name")));
}

#[tokio::test]
async fn a_device_status_belongs_to_its_driver() {
    let (node, _heard) = node().await;
    let claim = node
        .prepare(TestClaim::new("led-0").request("second", "led-1"))
        .await
        .unwrap();
    let plugin = node.plugin().unwrap();
    let status = |device: &str| AllocatedDeviceStatus {
        pool: node.environment().node_name.clone(),
        device: device.to_owned(),
        data: Some(RawExtension(json!({"lit": true}))),
        ..AllocatedDeviceStatus::default()
    };
    let devices = || {
        let status = node.claim(claim.reference()).unwrap().status.unwrap();
        let devices = status.devices.unwrap_or_default().into_iter();
        devices.map(|it| it.device).collect::<Vec<_>>()
    };
    let set = async |names: &[&str]| {
        let all = names.iter().map(|name| status(name));
        plugin.set_device_status(claim.reference(), all).await
    };
    set(&["led-0", "led-1"]).await.unwrap();
    assert_eq!(devices(), ["led-0", "led-1"]);
    set(&["led-1"]).await.unwrap();
    assert_eq!(devices(), ["led-1"]);
    let refused = set(&["led-9"]).await.unwrap_err().to_string();
    assert!(refused.contains("status.devices"), "{refused}");
    assert_eq!(devices(), ["led-1"]);
    set(&[]).await.unwrap();
    assert!(devices().is_empty());
}

#[tokio::test]
async fn the_api_keeps_versions_preconditions_and_selectors() {
    let node = TestNode::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(node.client(), "default");
    let map = |name: &str| ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([("of".to_owned(), name.to_owned())])),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let first = maps
        .create(&PostParams::default(), &map("a"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &map("b"))
        .await
        .unwrap();
    let again = maps
        .create(&PostParams::default(), &map("a"))
        .await
        .unwrap_err();
    assert!(again.to_string().contains("already exists"), "{again}");
    let found = maps
        .list(&ListParams::default().labels("of=b"))
        .await
        .unwrap();
    assert_eq!(found.items.len(), 1);
    let revision = found.metadata.resource_version.unwrap();

    let params = WatchParams::default().labels("of=a");
    let mut watch = maps.watch(&params, &revision).await.unwrap().boxed();
    let patch = Patch::Merge(json!({"data": {"x": "1"}}));
    let changed = maps
        .patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    // Nothing is written when nothing changes.
    let same = maps
        .patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(
        same.metadata.resource_version,
        changed.metadata.resource_version
    );
    let stale = maps
        .replace("a", &PostParams::default(), &first)
        .await
        .unwrap_err();
    assert!(stale.to_string().contains("has been modified"), "{stale}");
    maps.delete("a", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
    let seen = async |watch: &mut futures::stream::BoxStream<'_, _>| match watch.next().await {
        Some(Ok(WatchEvent::Modified(map))) => format!("modified {}", ConfigMap::name(&map)),
        Some(Ok(WatchEvent::Deleted(map))) => format!("deleted {}", ConfigMap::name(&map)),
        other => panic!("{other:?}"),
    };
    assert_eq!(seen(&mut watch).await, "modified a");
    assert_eq!(seen(&mut watch).await, "deleted a");
    let nodes: Api<Node> = Api::all(node.client());
    assert_eq!(
        nodes
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
}

trait Named {
    fn name(&self) -> &str;
}

impl Named for ConfigMap {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

/// A kubelet deregisters a driver whose registration socket is deleted: it was not registered again before its next start.
#[tokio::test]
async fn regression_sockets_that_are_deleted_are_made_again() {
    let (mut node, _heard) = node().await;
    let root = node.environment().kubelet_dir.clone();
    let sockets = [
        root.join("plugins_registry/leds.example.com-reg.sock"),
        root.join("plugins/leds.example.com/dra.sock"),
    ];
    let before = node.kubelet.registrations();
    for socket in &sockets {
        std::fs::remove_file(socket).unwrap();
    }
    let made = async {
        while !sockets.iter().all(|socket| socket.exists()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        node.kubelet.registered(Some(DRIVER), before).await;
    };
    tokio::time::timeout(PATIENCE, made).await.unwrap();
    let claim = node.prepare(TestClaim::new("led-0")).await.unwrap();
    node.unprepare(claim.reference()).await.unwrap();
    node.stop_driver().await;
    assert!(!sockets.iter().any(|socket| socket.exists()));
}

/// Takes no parameters, as the driver of the crate's documentation, and refuses what it cannot write.
struct Plain(tokio::sync::mpsc::UnboundedSender<String>);

impl Driver for Plain {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let devices = claim.results(DRIVER).map(PreparedDevice::from_result);
        devices.collect::<Prepared>().with_state(&"created")
    }

    async fn unprepare(&self, claim: &PreparedClaim) -> Result<(), Failure> {
        let _ = self.0.send(format!("{:?}", claim.state::<String>()?));
        Ok(())
    }
}

/// Such parameters had no effect, and the claim was prepared without an error: `config-wrong-kind` of the conformance kit failed for
/// every driver without parameters.
#[tokio::test]
async fn regression_parameters_that_a_driver_does_not_read_are_refused() {
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let mut node = TestNode::start().await.unwrap();
    let start = move |environment: Environment| {
        let builder = environment.builder(DRIVER, Plain(told.clone()));
        async move {
            let plugin = builder.start().await?;
            let device = Device {
                name: "led-0".into(),
                ..Device::default()
            };
            plugin.publish(Resources::pool(&environment.node_name, Pool::new([device])))?;
            Ok::<_, Error>(plugin)
        }
    };
    node.run(start).await.unwrap();
    let parameters = json!({"apiVersion": "leds.example.com/v1", "kind": "Led"});
    let of_claim = TestClaim::new("led-0").parameters(parameters.clone());
    let of_class = TestClaim::new("led-0").class_parameters(parameters);
    for claim in [of_claim, of_class] {
        let claim = node.create(&claim).unwrap();
        let refused = node.prepare_again(&claim).await.unwrap_err().to_string();
        let text = "parameters of request device are not read by the driver leds.example.com";
        assert!(refused.contains(text), "{refused}");
        // What the driver created is not forgotten, and the device is free for the next claim.
        node.unprepare(&claim).await.unwrap();
        assert_eq!(heard.recv().await.unwrap(), r#"Some("created")"#);
    }
    node.prepare(TestClaim::new("led-0")).await.unwrap();
}
