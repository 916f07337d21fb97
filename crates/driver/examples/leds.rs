//! A complete driver: two LEDs, and an environment variable with the LED of a container.
//!
//! ```console
//! $ allot up --data-dir D --no-driver &
//! $ KUBECONFIG=D/kubeconfig NODE_NAME=node-0 KUBELET_DIR=D/nodes/node-0 cargo run -p allot-driver --example leds
//! ```

use std::path::PathBuf;

use allot_driver::k8s_openapi::api::resource::v1::Device;
use allot_driver::{
    Claim, ContainerEdits, Driver, Failure, Plugin, Pool, Prepared, PreparedClaim, PreparedDevice,
    Resources, kube,
};

const DRIVER: &str = "leds.example.com";

struct Leds;

impl Driver for Leds {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let results = claim.results(DRIVER);
        let prepared = results.map(|result| {
            let env = vec![format!("LED={}", result.device)];
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

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = std::env::var("NODE_NAME")?;
    let kubelet = std::env::var_os("KUBELET_DIR").map_or("/var/lib/kubelet".into(), PathBuf::from);
    let plugin = Plugin::builder(DRIVER, Leds)
        .client(kube::Client::try_default().await?)
        .node_name(&node)
        .cdi_dir(kubelet.join("cdi"))
        .kubelet_dir(kubelet)
        .cdi_kind("leds.example.com/led")
        .start()
        .await?;
    let devices = ["red", "green"].map(|name| Device {
        name: name.into(),
        ..Default::default()
    });
    plugin.publish(Resources::pool(&node, Pool::new(devices)))?;
    plugin.wait_until(allot_driver::termination()).await?;
    Ok(())
}
