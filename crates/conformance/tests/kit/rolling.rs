//! A driver on the SDK for rolling updates: two instances run while one replaces the other.

use allot_driver::k8s_openapi::api::resource::v1::Device;
use allot_driver::{
    Claim, ContainerEdits, Driver, Failure, Plugin, Pool, Prepared, PreparedClaim, PreparedDevice,
    Resources,
};

use super::process::Settings;

const NAME: &str = "rolling.example.com";

struct Rolling;

impl Driver for Rolling {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let prepared = |result: &_| {
            let env = vec!["ROLLING=1".to_owned()];
            PreparedDevice::from_result(result).edits(ContainerEdits {
                env,
                ..Default::default()
            })
        };
        Ok(claim.results(NAME).map(prepared).collect())
    }

    async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> {
        Ok(())
    }
}

/// Runs the driver until a signal ends it. Its fault: each instance has a state of its own.
pub async fn run(settings: Settings, client: allot_driver::kube::Client) {
    let mut builder = Plugin::builder(NAME, Rolling)
        .client(client)
        .node_name(&settings.node)
        .kubelet_dir(&settings.kubelet)
        .cdi_dir(&settings.cdi)
        .cdi_kind("rolling.example.com/device")
        .rolling_update(&settings.instance);
    if settings.fault == "own-state" {
        let own = settings.kubelet.join("plugins").join(&settings.instance);
        builder = builder.data_dir(own);
    }
    let plugin = builder.start().await.unwrap();
    let devices = ["a", "b"].map(|name| Device {
        name: name.into(),
        ..Default::default()
    });
    plugin
        .publish(Resources::pool(&settings.node, Pool::new(devices)))
        .unwrap();
    plugin
        .wait_until(allot_driver::termination())
        .await
        .unwrap();
    std::process::exit(0);
}
