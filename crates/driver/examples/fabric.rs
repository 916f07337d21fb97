//! A driver whose devices are attached to a node through a fabric, which takes its time: pods are bound when their device is there
//! (binding conditions, KEP-5007). One program in two parts: a plugin on each node, and a controller, once in the cluster.
//!
//! ```console
//! $ allot up --data-dir D --no-driver &
//! $ export KUBECONFIG=D/kubeconfig
//! $ NODE_NAME=node-0 KUBELET_DIR=D/nodes/node-0 cargo run -p allot-driver --example fabric -- node &
//! $ cargo run -p allot-driver --example fabric -- controller
//! ```

use std::path::PathBuf;
use std::time::Duration;

use allot_driver::binding::{Binder, BindingConditions, Readiness, WaitingDevice};
use allot_driver::k8s_openapi::api::resource::v1::Device;
use allot_driver::{
    Claim, ContainerEdits, Driver, Failure, Plugin, Pool, Prepared, PreparedClaim, PreparedDevice,
    Resources, kube,
};

const DRIVER: &str = "fabric.example.com";
/// A pod waits for this condition.
const ATTACHED: &str = "fabric.example.com/attached";
/// With this condition the scheduler looks for another device.
const BROKEN: &str = "fabric.example.com/broken";

/// The part on the node. When a claim gets here its devices are attached.
struct Node;

impl Driver for Node {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let results = claim.results(DRIVER);
        let prepared = results.map(|result| {
            let env = vec![format!("PORT={}", result.device)];
            PreparedDevice::from_result(result).edits(ContainerEdits {
                env,
                ..Default::default()
            })
        });
        Ok(prepared.collect())
    }

    async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> {
        Ok(())
    }
}

/// The controller, which talks to the fabric's manager.
struct Fabric;

impl Binder for Fabric {
    async fn make_ready(&self, device: &WaitingDevice) -> Result<Readiness, Failure> {
        let node = device.node().ok_or("the device is not for one node")?;
        let port = &device.result().device;
        println!(
            "attaching {port} to {node} for {}",
            device.claim().reference()
        );
        // A real fabric is asked here; to ask it again, after a restart, must do no harm.
        tokio::time::sleep(Duration::from_secs(3)).await;
        match port.as_str() {
            "port-3" => Ok(Readiness::failed("NoLink", "port-3 has no link")),
            _ => Ok(Readiness::Ready),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = kube::Client::try_default().await?;
    match std::env::args().nth(1).as_deref() {
        Some("node") => {
            let node = std::env::var("NODE_NAME")?;
            let kubelet =
                std::env::var_os("KUBELET_DIR").map_or("/var/lib/kubelet".into(), PathBuf::from);
            let plugin = Plugin::builder(DRIVER, Node)
                .client(client)
                .node_name(&node)
                .cdi_dir(kubelet.join("cdi"))
                .kubelet_dir(kubelet)
                .cdi_kind("fabric.example.com/port")
                .start()
                .await?;
            let devices = (0..4).map(|index| Device {
                name: format!("port-{index}"),
                binding_conditions: Some(vec![ATTACHED.into()]),
                binding_failure_conditions: Some(vec![BROKEN.into()]),
                ..Default::default()
            });
            plugin.publish(Resources::pool(&node, Pool::new(devices)))?;
            plugin.wait_until(allot_driver::termination()).await?;
        }
        Some("controller") => {
            let conditions = BindingConditions::new(client, DRIVER);
            tokio::select! {
                () = conditions.run(Fabric) => {}
                () = allot_driver::termination() => {}
            }
        }
        _ => return Err("the argument is node or controller".into()),
    }
    Ok(())
}
