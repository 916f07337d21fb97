//! SDK for DRA drivers: everything between the kubelet, the API server and the vendor's code for the hardware.
//!
//! A driver implements [`Driver`]: what to do when a claim is prepared, and when it is unprepared. The SDK owns
//! registration with the kubelet, the DRA services (v1 and v1beta1) and the health service, ResourceSlices with their pool generations,
//! CDI spec files, a checkpoint, and restarts.
//!
//! Invariants:
//! - [`Driver::prepare`] succeeds once per claim, also over restarts: the result is in a checkpoint before the kubelet
//!   sees it, and a repeated call is answered from there (the CDI file is written again, since it may be on a
//!   temporary file system);
//! - a claim that [`Driver::prepare`] was called for is also unprepared through [`Driver::unprepare`], whether the
//!   driver failed, or was killed in the middle of it, which receives the returned or saved state;
//! - a device is prepared for one claim at a time, unless the allocation says that it is shared or for an administrator;
//! - the CDI and metadata files of prepared claims exist, also after a restart, and are restored when they are removed;
//! - one instance uses a data directory, or several of a rolling update;
//! - the DRA service is up before the kubelet learns of it;
//! - slices of one pool are never seen in a mixture of generations that claims to be complete.
//!
//! It must not depend on particular hardware, nor on the implementation of the node agent.
//!
//! ```no_run
//! use allot_driver::k8s_openapi::api::resource::v1::Device;
//! use allot_driver::{Claim, ContainerEdits, Driver, Failure, Plugin, Pool, Prepared, PreparedClaim, PreparedDevice, Resources};
//!
//! struct Leds;
//!
//! impl Driver for Leds {
//!     async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
//!         let results = claim.results("leds.example.com");
//!         Ok(results
//!             .map(|result| {
//!                 let env = vec![format!("LED={}", result.device)];
//!                 PreparedDevice::from_result(result).edits(ContainerEdits { env, ..Default::default() })
//!             })
//!             .collect())
//!     }
//!
//!     async fn unprepare(&self, _claim: &PreparedClaim) -> Result<(), Failure> {
//!         Ok(())
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let node = std::env::var("NODE_NAME")?;
//!     let plugin = Plugin::builder("leds.example.com", Leds)
//!         .client(allot_driver::kube::Client::try_default().await?)
//!         .node_name(&node)
//!         .cdi_kind("leds.example.com/led")
//!         .start()
//!         .await?;
//!     let devices = ["red", "green"].map(|name| Device { name: name.into(), ..Default::default() });
//!     plugin.publish(Resources::pool(&node, Pool::new(devices)))?;
//!     plugin.wait_until(allot_driver::termination()).await?;
//!     Ok(())
//! }
//! ```
//!
//! `docs/drivers.md` of the project continues from here: dependencies, a test cluster, RBAC, restarts, and further
//! features.
//!
//! That is for a kubelet with its usual directories. A node of `allot up --data-dir DIR --no-driver` has others:
//! `.kubelet_dir("DIR/nodes/node-0").cdi_dir("DIR/nodes/node-0/cdi")`, and `.node_name("node-0")`. A plugin that no
//! kubelet registers still publishes its slices, but none of its claims is prepared: [`Plugin::registration`] reports
//! that. The SDK logs through `tracing`: without a subscriber, background errors are not visible.
//!
//! Features: `classic` (drivers of Kubernetes before 1.31, module `classic`) and `webhook` (the admission webhook for parameters,
//! module `webhook`) are on by default; `testing` (a node for the tests of a driver, module `testing`) is not.
//!
//! Sockets created here accept Go clients without a patched HTTP/2 implementation (see `allot_protos::transport`).

#![forbid(unsafe_code)]

mod allocated;
mod api;
pub mod attributes;
pub mod binding;
mod boot;
mod bounds;
mod builder;
mod checkpoint;
mod claim;
#[cfg(feature = "classic")]
pub mod classic;
mod controls;
mod diagnostics;
mod error;
mod health;
mod injected;
mod journal;
pub mod metadata;
mod metadata_writer;
mod metrics;
mod plugin;
mod prepared;
mod publisher;
mod registrar;
mod service;
mod status;
#[cfg(feature = "testing")]
pub mod testing;
mod unhealthy;
#[cfg(feature = "webhook")]
pub mod webhook;

pub use allocated::Claim;
pub use allot_cdi::{ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice};
pub use allot_client::api_message;
pub use api::AccessError;
pub use boot::{BOOT_ID_VARIABLE, boot_id};
pub use builder::{Builder, KUBELET_TIMEOUT};
pub use claim::{ClaimRef, PreparedDevice, base_request};
pub use controls::Controls;
pub use error::{BackgroundError, Error, Failure, InvalidResources};
pub use health::{DeviceHealth, Health};
pub use injected::{
    FAILURE_TAINT, HEEDS_INJECTED_FAILURES, INJECTED_FAILURES, InjectedFailure, InjectedFailures,
};
/// The types of the API, in the version that the SDK takes and returns.
pub use k8s_openapi;
/// The client, likewise.
pub use kube;
pub use kube::runtime::events::EventType;
pub use metadata::DeviceMetadata;
pub use plugin::Plugin;
pub use prepared::{Boot, MAX_STATE_BYTES, Prepared, PreparedClaim};
pub use publisher::{Pool, Resources, Slice};
pub use registrar::RegistrationStatus;
pub use status::StatusQueue;

/// Knowledge about a kind of hardware.
///
/// Calls are serialised unless [`Builder::serialize`] is turned off: a driver needs no locks.
pub trait Driver: Send + Sync + 'static {
    /// Version of the state that [`Driver::prepare`] returns. A checkpoint of an earlier version is passed to
    /// [`Driver::migrate_state`] at the start.
    const STATE_VERSION: u32 = 0;

    /// Prepares the devices that were allocated to `claim` on this node, and returns what containers need.
    ///
    /// One [`PreparedDevice`] per allocation result of this driver is usual; fewer are allowed. Remains of an earlier
    /// call for the same claim may exist: it failed, or the process was killed. [`Claim::save_state`] records what is
    /// about to be created, and [`Claim::saved_state`] returns it in a later call.
    ///
    /// # Errors
    /// The text reaches the pod's events; the kubelet tries again later.
    fn prepare(&self, claim: &Claim) -> impl Future<Output = Result<Prepared, Failure>> + Send;

    /// Reverts [`Driver::prepare`], also one that failed or was interrupted; must succeed when there is nothing to do.
    /// It is called for claims that the SDK does not know, too: their checkpoint may be lost. For a claim that was
    /// deleted while it was prepared it is called before a device of it is prepared for another claim, at the latest
    /// some minutes after the deletion.
    ///
    /// # Errors
    /// The pod stays terminating and the kubelet retries.
    fn unprepare(&self, claim: &PreparedClaim) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Called once at the start, before the kubelet can make requests, with the claims that earlier processes prepared
    /// or began to prepare. The place to recreate what a reboot has removed ([`Boot::Changed`]), or to recover what
    /// still exists.
    ///
    /// # Errors
    /// The plugin does not start.
    fn restore(
        &self,
        claims: &[PreparedClaim],
        boot: Boot,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = (claims, boot);
        std::future::ready(Ok(()))
    }

    /// Brings a state of an earlier (or, after a downgrade, of a later) version into [`Driver::STATE_VERSION`]. The default
    /// refuses.
    ///
    /// # Errors
    /// The claim stays as it is: it is reported through [`Driver::handle_error`], and its state cannot be read.
    fn migrate_state(
        &self,
        version: u32,
        state: serde_json::Value,
    ) -> Result<serde_json::Value, Failure> {
        let _ = state;
        Err(format!(
            "there is no migration from version {version} to {}",
            Self::STATE_VERSION
        )
        .into())
    }

    /// An error outside of any call, for example while publishing. The default logs it.
    fn handle_error(&self, error: &BackgroundError) {
        tracing::error!(%error, "driver background error");
    }

    /// The health of devices, for the kubelet. Each value is the full list. `None` (the default) means no health service.
    /// [`Builder::taint_unhealthy`] also taints the devices that are unhealthy.
    fn health(&self) -> Option<tokio::sync::watch::Receiver<Vec<DeviceHealth>>> {
        None
    }
}

/// Waits until the process is told to terminate, by SIGTERM as from a kubelet, or by SIGINT; for
/// [`Plugin::wait_until`]. PID 1 of a container is not ended by these signals unless it waits for them.
///
/// # Panics
/// Outside of a tokio runtime.
pub async fn termination() {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = async |kind: SignalKind| match signal(kind) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(error) => {
            tracing::error!(%error, "no handler for a signal");
            std::future::pending().await
        }
    };
    tokio::select! {
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::interrupt()) => {}
    }
}
