//! Fans: parameters, state, health with taints, metadata, probes, and with the argument `webhook` the admission webhook.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use allot_driver::k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use allot_driver::webhook::Webhook;
use allot_driver::{
    Boot, Claim, ContainerEdits, DeviceHealth, DeviceMetadata, Driver, Failure, Health, Plugin,
    Pool, Prepared, PreparedClaim, PreparedDevice, Resources,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

const NAME: &str = "fans.example.com";
const FANS: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code)]
struct FanConfig {
    api_version: String,
    kind: String,
    rpm: u32,
}

impl FanConfig {
    fn parse(parameters: &Value) -> Result<Self, Failure> {
        let config = Self::deserialize(parameters)?;
        match (&*config.api_version, &*config.kind, config.rpm) {
            ("fans.example.com/v1", "FanConfig", 100..=9000) => Ok(config),
            ("fans.example.com/v1", "FanConfig", rpm) => {
                Err(format!("rpm: {rpm} is not from 100 to 9000").into())
            }
            (version, kind, _) => Err(format!("{version} {kind} is not known").into()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Speeds(BTreeMap<String, u32>);

struct Fans {
    health: watch::Receiver<Vec<DeviceHealth>>,
}

impl Driver for Fans {
    const STATE_VERSION: u32 = 1;

    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let mut speeds = BTreeMap::new();
        for result in claim.results(NAME) {
            if !(0..FANS).any(|index| fan(index).name == result.device) {
                return Err(format!("there is no fan {}", result.device).into());
            }
            // In rising priority: those of the class, then those of the claim. All are checked.
            let configs = claim.configs(NAME, result).map(FanConfig::parse);
            let config = configs.collect::<Result<Vec<_>, _>>()?.pop();
            speeds.insert(
                result.device.clone(),
                config.map_or(1000, |config| config.rpm),
            );
        }
        claim.save_state(&Speeds(speeds.clone())).await?;
        let device = |result| {
            let device = PreparedDevice::from_result(result);
            let env = vec![format!("FAN_RPM={}", speeds[device.device()])];
            let metadata = DeviceMetadata::default();
            device
                .edits(ContainerEdits {
                    env,
                    ..Default::default()
                })
                .metadata(metadata)
        };
        Ok(claim.results(NAME).map(device).collect())
    }

    async fn unprepare(&self, claim: &PreparedClaim) -> Result<(), Failure> {
        if let Some(Speeds(speeds)) = claim.state()? {
            tracing::info!(fans = speeds.len(), "slowing down");
        }
        Ok(())
    }

    async fn restore(&self, claims: &[PreparedClaim], boot: Boot) -> Result<(), Failure> {
        tracing::info!(claims = claims.len(), ?boot, "restored");
        Ok(())
    }

    fn health(&self) -> Option<watch::Receiver<Vec<DeviceHealth>>> {
        Some(self.health.clone())
    }
}

fn fan(index: usize) -> Device {
    let blades = DeviceAttribute {
        int: Some(5),
        ..Default::default()
    };
    Device {
        name: format!("fan-{index}"),
        attributes: Some(BTreeMap::from([("blades".to_owned(), blades)])),
        ..Default::default()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("webhook") {
        let webhook = Webhook::new()
            .driver(NAME, FanConfig::parse)
            .certificate("tls.crt", "tls.key");
        webhook
            .start()
            .await?
            .serve_until(allot_driver::termination())
            .await;
        return Ok(());
    }
    let node = std::env::var("NODE_NAME")?;
    let root = std::env::var("KUBELET_DIR")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    // The last fan is broken.
    let report = |index| DeviceHealth {
        pool: node.clone(),
        device: format!("fan-{index}"),
        health: if index == FANS - 1 {
            Health::Unhealthy
        } else {
            Health::Healthy
        },
        updated: now as i64,
        ..Default::default()
    };
    let (_keep, health) = watch::channel((0..FANS).map(report).collect());
    let plugin = Plugin::builder(NAME, Fans { health })
        .client(allot_driver::kube::Client::try_default().await?)
        .node_name(&node)
        .kubelet_dir(&root)
        .cdi_dir(format!("{root}/cdi"))
        .cdi_kind("fans.example.com/fan")
        .device_metadata(true)
        .taint_unhealthy("NoSchedule")
        .diagnostics(([127, 0, 0, 1], 0).into())
        .start()
        .await?;
    plugin.publish(Resources::pool(&node, Pool::new((0..FANS).map(fan))))?;
    plugin.wait_until(allot_driver::termination()).await?;
    Ok(())
}
