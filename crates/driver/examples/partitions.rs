//! A driver that creates a resource for each claim, here a directory in place of a partition of a device, and recovers
//! it after a crash or a reboot.
//!
//! ```console
//! $ allot up --data-dir D --no-driver &
//! $ KUBECONFIG=D/kubeconfig NODE_NAME=node-0 KUBELET_DIR=D/nodes/node-0 cargo run -p allot-driver --example partitions
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use allot_driver::k8s_openapi::api::resource::v1::Device;
use allot_driver::{
    Boot, Claim, ContainerEdits, Driver, Failure, Mount, Plugin, Pool, Prepared, PreparedClaim,
    PreparedDevice, Resources, kube,
};
use serde::{Deserialize, Serialize};

const DRIVER: &str = "scratch.example.com";

/// The state of a claim: what was created for it.
#[derive(Serialize, Deserialize)]
struct Partition {
    directory: PathBuf,
}

struct Scratch {
    /// Below it are the partitions. On a temporary file system it is empty after a reboot.
    root: PathBuf,
}

impl Driver for Scratch {
    const STATE_VERSION: u32 = 1;

    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let partition = match claim.saved_state::<Partition>().await? {
            // An earlier call did not get to its end.
            Some(partition) => partition,
            None => Partition {
                directory: self.root.join(&claim.reference().uid),
            },
        };
        // Before it is created: a process that is killed after the next line leaves nothing unknown behind.
        claim.save_state(&partition).await?;
        std::fs::create_dir_all(&partition.directory)?;
        let edits = ContainerEdits {
            mounts: vec![Mount {
                host_path: partition.directory.display().to_string(),
                container_path: "/scratch".into(),
                options: vec!["rw".into(), "bind".into()],
                ..Default::default()
            }],
            ..Default::default()
        };
        let results = claim.results(DRIVER);
        let prepared = results.map(|r| PreparedDevice::from_result(r).edits(edits.clone()));
        Ok(prepared.collect())
    }

    async fn unprepare(&self, claim: &PreparedClaim) -> Result<(), Failure> {
        let Some(partition) = claim.state::<Partition>()? else {
            return Ok(());
        };
        remove(&partition.directory)
    }

    async fn restore(&self, claims: &[PreparedClaim], boot: Boot) -> Result<(), Failure> {
        if boot != Boot::Same {
            for claim in claims {
                if let Some(partition) = claim.state::<Partition>()? {
                    std::fs::create_dir_all(partition.directory)?;
                }
            }
        }
        Ok(())
    }
}

/// Also succeeds when there is nothing to remove.
fn remove(directory: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = std::env::var("NODE_NAME")?;
    let kubelet = std::env::var_os("KUBELET_DIR").map_or("/var/lib/kubelet".into(), PathBuf::from);
    let scratch = Scratch {
        root: kubelet.join("plugins").join(DRIVER).join("partitions"),
    };
    let plugin = Plugin::builder(DRIVER, scratch)
        .client(kube::Client::try_default().await?)
        .node_name(&node)
        .cdi_dir(kubelet.join("cdi"))
        .kubelet_dir(kubelet)
        .cdi_kind("scratch.example.com/partition")
        .diagnostics(([127, 0, 0, 1], 0).into())
        .start()
        .await?;
    if let Some(address) = plugin.diagnostics_address() {
        println!("probes and metrics: http://{address}/metrics");
    }
    let devices = (0..4).map(|index| Device {
        name: format!("partition-{index}"),
        ..Default::default()
    });
    plugin.publish(Resources::pool(&node, Pool::new(devices)))?;
    plugin.wait_until(allot_driver::termination()).await?;
    Ok(())
}
