//! A node for the tests of a driver: the kubelet's side of it, and an API in memory, both in the process of the test.
//!
//! Tests take milliseconds, and need neither a cluster nor privileges nor hardware beyond what the driver itself needs. What is
//! tested is what a kubelet and a container runtime would get: a claim is prepared through the driver's sockets, and its CDI devices
//! are resolved from the driver's files. The dependency of the tests:
//!
//! ```toml
//! [dev-dependencies]
//! allot-driver = { git = "https://github.com/allot-dra/allot", features = ["testing"] }
//! ```
//!
//! ```no_run
//! # use allot_driver::k8s_openapi::api::resource::v1::Device;
//! # use allot_driver::{Claim, Driver, Error, Failure, Pool, Prepared, PreparedClaim, Resources};
//! # struct Leds;
//! # impl Driver for Leds {
//! #     async fn prepare(&self, _: &Claim) -> Result<Prepared, Failure> { Ok(Prepared::default()) }
//! #     async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> { Ok(()) }
//! # }
//! # async fn example() -> Result<(), allot_driver::testing::TestError> {
//! use allot_driver::testing::{TestClaim, TestNode};
//!
//! let mut node = TestNode::start().await?;
//! node.run(|environment| async move {
//!     let builder = environment.builder("leds.example.com", Leds).cdi_kind("leds.example.com/led");
//!     let plugin = builder.start().await?;
//!     let red = Device { name: "red".into(), ..Default::default() };
//!     plugin.publish(Resources::pool(&environment.node_name, Pool::new([red])))?;
//!     Ok::<_, Error>(plugin)
//! })
//! .await?;
//! let claim = node.prepare(TestClaim::new("red")).await?;
//! assert_eq!(claim.env("LED"), Some("red"));
//! node.reboot().await?;
//! node.unprepare(claim.reference()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `allot conformance driver` tries the finished program, and kills it at any point; this is for what only the driver's author
//! knows: which edits belong to which parameters, and what is left of the hardware.
//!
//! The API has the validation, the defaults and the status rules of `resource.k8s.io/v1`, lists and watches with selectors, merge
//! patches, and server-side apply with owners. Other resources are stored as they are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::gvk::GroupVersionResource;
use allot_cdi::{ContainerEdits, Registry};
pub use allot_kubelet::Device as DeviceAnswer;
use allot_kubelet::{Answers, CALL_LIMIT, Kubelet};
use futures::future::BoxFuture;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Builder, ClaimRef, Driver, Failure, Plugin, boot};

#[expect(
    clippy::result_large_err,
    reason = "a refusal is what the API answers with, and tests are not measured"
)]
mod api;
mod apply;
mod binding;
mod claim;
mod error;
#[expect(
    clippy::result_large_err,
    reason = "a refusal is what the API answers with, and tests are not measured"
)]
mod objects;
mod prepared;
mod published;
mod restarts;
mod selector;
#[cfg(test)]
mod tests;

pub use claim::TestClaim;
pub use error::TestError;
pub use prepared::TestPrepared;

use objects::{Key, Objects, Part};

/// Limit of each wait, for machines that are busy.
const PATIENCE: Duration = Duration::from_secs(60);
const NODE: &str = "node-0";

/// What a driver learns from its environment, on the node of a test.
#[derive(Clone)]
#[non_exhaustive]
pub struct Environment {
    /// Access to the API.
    pub client: kube::Client,
    /// Name of the Node object.
    pub node_name: String,
    /// The kubelet's root directory.
    pub kubelet_dir: PathBuf,
    /// Directory of the CDI files.
    pub cdi_dir: PathBuf,
}

impl Environment {
    /// A builder with all of this.
    pub fn builder<D: Driver>(&self, driver_name: impl Into<String>, driver: D) -> Builder<D> {
        Plugin::builder(driver_name, driver)
            .client(self.client.clone())
            .node_name(&self.node_name)
            .kubelet_dir(&self.kubelet_dir)
            .cdi_dir(&self.cdi_dir)
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("node_name", &self.node_name)
            .field("kubelet_dir", &self.kubelet_dir)
            .finish_non_exhaustive()
    }
}

type Started = BoxFuture<'static, Result<Plugin, Failure>>;
type Start = Box<dyn Fn(Environment) -> Started + Send + Sync>;

/// A node with one driver, which it runs in the process of the test.
pub struct TestNode {
    environment: Environment,
    objects: Arc<Objects>,
    kubelet: Kubelet,
    start: Option<Start>,
    plugin: Option<Plugin>,
    driver: String,
    /// The claims that the kubelet has prepared, with the answers.
    prepared: Mutex<BTreeMap<ClaimRef, Vec<DeviceAnswer>>>,
    directory: TempDir,
}

impl std::fmt::Debug for TestNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestNode")
            .field("environment", &self.environment)
            .field("driver", &self.driver)
            .finish_non_exhaustive()
    }
}

impl TestNode {
    /// A node without a driver: a Node object, the kubelet's directories, and a kubelet that looks for drivers.
    ///
    /// # Errors
    /// There is no temporary directory.
    pub async fn start() -> Result<Self, TestError> {
        let failed = |error: std::io::Error| TestError::SetUp(error.into());
        // Paths of sockets are short: the system's temporary directory may not be.
        let directory = tempfile::Builder::new().prefix("ad").tempdir_in("/tmp");
        let directory = directory.or_else(|_| tempfile::tempdir()).map_err(failed)?;
        let root = directory.path().to_owned();
        let registry = root.join("plugins_registry");
        for path in [&registry, &root.join("plugins"), &root.join("cdi")] {
            std::fs::create_dir(path).map_err(failed)?;
        }
        let objects = Arc::new(Objects::new());
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE,
            "labels": {"kubernetes.io/hostname": NODE}}});
        let nodes = GroupVersionResource::new("", "v1", "nodes");
        let made = objects.create(&nodes, "", node);
        made.map_err(|status| TestError::SetUp(status.into()))?;
        let environment = Environment {
            client: api::client(Arc::clone(&objects)),
            node_name: NODE.to_owned(),
            cdi_dir: root.join("cdi"),
            kubelet_dir: root,
        };
        let mut kubelet = Kubelet::new(&registry);
        kubelet.start();
        Ok(Self {
            environment,
            objects,
            kubelet,
            start: None,
            plugin: None,
            driver: String::new(),
            prepared: Mutex::default(),
            directory,
        })
    }

    /// What the driver has on this node, also for other files of its own.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// A client of the API.
    pub fn client(&self) -> kube::Client {
        self.environment.client.clone()
    }

    /// Starts the driver, and waits until it is registered. `start` is called again for each restart.
    ///
    /// # Errors
    /// The driver does not start, or is not registered.
    pub async fn run<S, F, E>(&mut self, start: S) -> Result<(), TestError>
    where
        S: Fn(Environment) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Plugin, E>> + Send + 'static,
        E: Into<Failure>,
    {
        self.stop_driver().await;
        self.start = Some(Box::new(move |environment| {
            let starting = start(environment);
            Box::pin(async move { starting.await.map_err(Into::into) })
        }));
        self.start_driver().await
    }

    /// The running driver.
    ///
    /// # Errors
    /// None runs.
    pub fn plugin(&self) -> Result<&Plugin, TestError> {
        self.plugin.as_ref().ok_or(TestError::NoDriver)
    }

    /// Creates a claim with an allocation, and prepares it as a kubelet does before it starts the containers of a pod.
    ///
    /// # Errors
    /// The driver refuses it ([`TestError::Driver`]), its CDI devices do not exist, or the API does not accept the claim.
    pub async fn prepare(&self, claim: TestClaim) -> Result<TestPrepared, TestError> {
        let claim = self.create(&claim)?;
        self.prepare_again(&claim).await
    }

    /// Creates a claim with an allocation, and does not prepare it.
    ///
    /// # Errors
    /// The API does not accept it.
    pub fn create(&self, claim: &TestClaim) -> Result<ClaimRef, TestError> {
        let (claims, namespace) = (claims(), claim.namespace_name());
        let refused = |status: allot_apimachinery::Status| TestError::Api(status.message);
        let made = self
            .objects
            .create(&claims, namespace, claim.object(&self.driver));
        let mut object = made.map_err(refused)?;
        let text = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let reference = ClaimRef {
            namespace: namespace.to_owned(),
            name: text("name"),
            uid: text("uid"),
        };
        object["status"] = self.allocated(claim);
        let stored = self.objects.replace(&key(&reference), object, Part::Status);
        stored.map_err(refused)?;
        Ok(reference)
    }

    /// Prepares a claim that exists, perhaps again.
    ///
    /// # Errors
    /// As of [`TestNode::prepare`].
    pub async fn prepare_again(&self, claim: &ClaimRef) -> Result<TestPrepared, TestError> {
        let plugin = self.registered_plugin()?;
        let answers = plugin
            .prepare(plugin.version(), &[named(claim)], CALL_LIMIT)
            .await;
        let devices = answer(answers, claim)?;
        let edits = self.resolve(&devices)?;
        self.prepared.lock().insert(claim.clone(), devices.clone());
        Ok(TestPrepared::new(claim.clone(), devices, edits))
    }

    /// The driver as the kubelet knows it.
    fn registered_plugin(&self) -> Result<allot_kubelet::Plugin, TestError> {
        let plugin = self.kubelet.plugin(Some(&self.driver));
        plugin.ok_or(TestError::NoDriver)
    }

    /// What a container with these devices gets from the CDI files that exist now.
    ///
    /// # Errors
    /// A device is not defined, or its file is invalid: no container could be started.
    pub fn resolve(&self, devices: &[DeviceAnswer]) -> Result<ContainerEdits, TestError> {
        let ids: Vec<&String> = devices.iter().flat_map(|device| &device.cdi).collect();
        let registry = Registry::load(&[&self.environment.cdi_dir]);
        if let Some(error) = registry.errors().first() {
            return Err(TestError::Answer(error.to_string()));
        }
        let edits = registry.resolve(&ids);
        edits.map_err(|error| TestError::Answer(error.to_string()))
    }

    /// Unprepares a claim, as a kubelet does when its pods have ended.
    ///
    /// # Errors
    /// The driver fails: the pod would stay terminating.
    pub async fn unprepare(&self, claim: &ClaimRef) -> Result<(), TestError> {
        let plugin = self.registered_plugin()?;
        let answers = plugin
            .unprepare(plugin.version(), &[named(claim)], CALL_LIMIT)
            .await;
        answer(answers, claim)?;
        self.prepared.lock().remove(claim);
        Ok(())
    }

    /// Deletes a claim from the API without unpreparing it, as after a forced deletion of its pod.
    ///
    /// # Errors
    /// It does not exist.
    pub fn delete(&self, claim: &ClaimRef) -> Result<(), TestError> {
        let deleted = self.objects.delete(&key(claim), &Value::Null);
        deleted.map_err(|status| TestError::Api(status.message))?;
        Ok(())
    }

    /// The claim in the API, with the status of its devices.
    ///
    /// # Errors
    /// It does not exist.
    pub fn claim(&self, claim: &ClaimRef) -> Result<ResourceClaim, TestError> {
        let object = self.objects.get(&key(claim));
        decode(object.map_err(|status| TestError::Api(status.message))?)
    }

    /// Waits until the driver's pools are complete, and returns their slices.
    ///
    /// # Errors
    /// They are not in time.
    pub async fn published(&self) -> Result<Vec<ResourceSlice>, TestError> {
        self.published_with(|_| Ok(())).await
    }

    /// Like [`TestNode::published`], until the slices are as the test wants them: `check` says what is missing.
    ///
    /// # Errors
    /// They are not in time.
    pub async fn published_with(
        &self,
        check: impl Fn(&[ResourceSlice]) -> Result<(), String>,
    ) -> Result<Vec<ResourceSlice>, TestError> {
        let mut revisions = self.objects.revisions();
        let mut why = String::new();
        let wait = async {
            loop {
                revisions.borrow_and_update();
                let slices = self.slices()?;
                match published::complete(&slices).and_then(|()| check(&slices)) {
                    Ok(()) => return Ok(slices),
                    Err(reason) => why = reason,
                }
                if revisions.changed().await.is_err() {
                    // The sender is in `self`.
                    std::future::pending::<()>().await;
                }
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.unwrap_or(Err(TestError::Timeout {
            what: "publishing",
            why,
        }))
    }

    /// The slices of the driver as they are now.
    fn slices(&self) -> Result<Vec<ResourceSlice>, TestError> {
        let slices = GroupVersionResource::new(allot_model::GROUP, "v1", "resourceslices");
        let (slices, _) = self.objects.list(&slices, "");
        let ours = |slice: &Value| slice["spec"]["driver"] == self.driver;
        slices.into_iter().filter(ours).map(decode).collect()
    }

    /// Ends the driver and the kubelet, and waits for that. Dropping the node ends them as well.
    pub async fn stop(mut self) {
        self.stop_driver().await;
        self.kubelet.stop().await;
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        boot::simulated::forget(self.directory.path());
    }
}

fn claims() -> GroupVersionResource {
    GroupVersionResource::new(allot_model::GROUP, "v1", "resourceclaims")
}

fn key(claim: &ClaimRef) -> Key {
    Key {
        resource: claims(),
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
    }
}

fn named(claim: &ClaimRef) -> allot_kubelet::ClaimRef {
    allot_kubelet::ClaimRef {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        uid: claim.uid.clone(),
    }
}

/// What the driver answered about the claim of a call.
fn answer<T>(answers: Answers<T>, claim: &ClaimRef) -> Result<T, TestError> {
    let answer = answers.map_err(TestError::Driver)?.remove(&claim.uid);
    let missing = || TestError::Answer("the driver's answer lacks the claim".to_owned());
    answer.ok_or_else(missing)?.map_err(TestError::Driver)
}

fn decode<T: DeserializeOwned>(object: Value) -> Result<T, TestError> {
    serde_json::from_value(object).map_err(|error| TestError::Api(error.to_string()))
}
