//! The part that runs on every node: reports its interfaces, and turns claims into CDI files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_driver::classic::{Handle as ClaimHandle, NodeDriver, NodePlugin};
use allot_driver::{ClaimRef, Error, Failure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::interfaces::{self, ANNOTATION, Interface};
use crate::{DRIVER_NAME, Handle};

/// Vendor and class of the CDI devices.
const CDI_KIND: &str = "k8s.netresources.spidernet.io/claim";
/// Interfaces change without an event for this process; Spiderpool's interval.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Pause before the interfaces are reported again after that failed.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// How to run the plugin.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node.
    pub node_name: String,
    /// The kubelet's root directory.
    pub kubelet_dir: PathBuf,
    /// Directory of the CDI files.
    pub cdi_dir: PathBuf,
    /// The interfaces to report; those of this machine when empty.
    pub interfaces: Vec<Interface>,
    /// The library for containers whose claim requests RDMA acceleration.
    pub host_device_path: Option<PathBuf>,
}

impl Config {
    /// A plugin for the interfaces of this machine, with everything below the kubelet's root directory.
    pub fn new(node_name: impl Into<String>, kubelet_dir: impl Into<PathBuf>) -> Self {
        let kubelet_dir = kubelet_dir.into();
        Self {
            node_name: node_name.into(),
            cdi_dir: kubelet_dir.join("cdi"),
            kubelet_dir,
            interfaces: Vec::new(),
            host_device_path: None,
        }
    }
}

/// Runs the plugin until `shutdown`.
///
/// # Errors
/// When it cannot start, or one of its servers fails.
pub async fn run(client: Client, config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let claims = Claims {
        cdi_dir: config.cdi_dir.clone(),
        library: config.host_device_path.clone(),
    };
    let plugin = NodePlugin::new(DRIVER_NAME, claims, &config.kubelet_dir);
    tokio::select! {
        ended = plugin.run(shutdown) => ended,
        never = report(client, config) => match never {},
    }
}

/// Keeps the annotation of the Node up to date.
async fn report(client: Client, config: Config) -> std::convert::Infallible {
    let nodes: Api<Node> = Api::all(client);
    let mut told = None;
    loop {
        let found = match config.interfaces.is_empty() {
            true => interfaces::discover(),
            false => Ok(config.interfaces.clone()),
        };
        let pause = match found {
            // Written each time: it may have been removed, or the Node created again.
            Ok(found) => {
                let text = json!(found).to_string();
                let patch = json!({"metadata": {"annotations": {ANNOTATION: text}}});
                let params = PatchParams::default();
                let patch = Patch::Merge(&patch);
                match nodes
                    .patch_metadata(&config.node_name, &params, &patch)
                    .await
                {
                    Ok(_) => {
                        if told.as_ref() != Some(&found) {
                            tracing::info!(node = config.node_name, interfaces = text, "reported");
                        }
                        told = Some(found);
                        LOOK_AGAIN
                    }
                    // A plugin may be up before its Node.
                    Err(kube::Error::Api(status)) if status.code == 404 => TRY_AGAIN,
                    Err(error) => {
                        tracing::warn!(node = config.node_name, %error, "cannot report interfaces");
                        TRY_AGAIN
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list the interfaces of this machine");
                LOOK_AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Claims as CDI files.
struct Claims {
    cdi_dir: PathBuf,
    library: Option<PathBuf>,
}

impl Claims {
    fn file(&self, claim: &ClaimRef) -> PathBuf {
        let name = format!("{}_{}.yaml", CDI_KIND.replace('/', "-"), claim.uid);
        self.cdi_dir.join(name)
    }

    fn library(&self) -> Result<&Path, Failure> {
        let missing = "the claim asks for the acceleration of RDMA (rdmaAcc), and this node has no library for it: \
                       see --host-device-path";
        let library = self.library.as_deref().ok_or(missing)?;
        match library.is_file() {
            true => Ok(library),
            false => Err(format!("{} is no file", library.display()).into()),
        }
    }
}

impl NodeDriver for Claims {
    async fn prepare(
        &self,
        claim: &ClaimRef,
        handle: &ClaimHandle,
    ) -> Result<Vec<String>, Failure> {
        let ClaimHandle::Opaque(data) = handle else {
            return Err("the scheduler allocated the claim, which only this driver can".into());
        };
        let handle: Handle = serde_json::from_str(data)?;
        let library = match handle.rdma_acc {
            true => Some(self.library()?),
            false => None,
        };
        let text = cdi_file(&claim.uid, &handle.cdi_version, library);
        std::fs::create_dir_all(&self.cdi_dir)?;
        allot_cdi::file::write_atomic(&self.file(claim), text.as_bytes(), 0o600)?;
        tracing::info!(%claim, uid = claim.uid, "prepared");
        Ok(vec![format!("{CDI_KIND}={}", claim.uid)])
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Failure> {
        allot_cdi::file::remove(&self.file(claim))?;
        tracing::info!(%claim, uid = claim.uid, "given back");
        Ok(())
    }
}

/// The CDI file of a claim, in the form in which Spiderpool writes it.
fn cdi_file(uid: &str, version: &str, library: Option<&Path>) -> String {
    let mut text = format!(
        "---\n\
         cdiVersion: {version}\n\
         containerEdits: {{}}\n\
         devices:\n\
         - containerEdits:\n    \
             env:\n    \
             - DRA_CLAIM_UID={uid}\n"
    );
    if let Some(library) = library {
        let name = library.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(text, "    - LD_PRELOAD={name}\n    mounts:");
        for directory in ["/usr/lib", "/usr/lib64"] {
            let _ = writeln!(
                text,
                "    - containerPath: {directory}/{name}\n      hostPath: {}\n      options: [ro, nosuid, nodev, bind]",
                library.display()
            );
        }
    }
    let _ = writeln!(text, "  name: {uid}\nkind: {CDI_KIND}");
    text
}

#[cfg(test)]
mod tests {
    use allot_cdi::Spec;

    use super::*;

    fn claim(uid: &str) -> ClaimRef {
        ClaimRef {
            namespace: "ns".into(),
            name: "c".into(),
            uid: uid.into(),
        }
    }

    fn handle(rdma_acc: bool) -> ClaimHandle {
        let handle = Handle {
            cdi_version: "0.5.0".into(),
            rdma_acc,
        };
        ClaimHandle::Opaque(serde_json::to_string(&handle).expect("JSON"))
    }

    #[tokio::test]
    async fn a_claim_is_a_file_until_it_is_given_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let claims = Claims {
            cdi_dir: directory.path().join("cdi"),
            library: None,
        };
        let claim = claim("1e15705a-62fe-4694-8535-93a5f0ccf996");
        for _ in 0..2 {
            let devices = claims
                .prepare(&claim, &handle(false))
                .await
                .expect("prepared");
            let id = "k8s.netresources.spidernet.io/claim=1e15705a-62fe-4694-8535-93a5f0ccf996";
            assert_eq!(devices, [id]);
        }
        let file = claims.file(&claim);
        let name = "k8s.netresources.spidernet.io-claim_1e15705a-62fe-4694-8535-93a5f0ccf996.yaml";
        assert_eq!(file.file_name().expect("a name"), name);
        let expected = "\
---
cdiVersion: 0.5.0
containerEdits: {}
devices:
- containerEdits:
    env:
    - DRA_CLAIM_UID=1e15705a-62fe-4694-8535-93a5f0ccf996
  name: 1e15705a-62fe-4694-8535-93a5f0ccf996
kind: k8s.netresources.spidernet.io/claim
";
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), expected);
        Spec::read(&file).expect("valid").validate().expect("valid");
        for _ in 0..2 {
            claims.unprepare(&claim).await.expect("given back");
            assert!(!file.exists());
        }
    }

    #[tokio::test]
    async fn acceleration_mounts_the_library_or_says_that_there_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut claims = Claims {
            cdi_dir: directory.path().to_owned(),
            library: None,
        };
        let claim = claim("a");
        let refused = claims
            .prepare(&claim, &handle(true))
            .await
            .expect_err("refused");
        assert!(
            refused.to_string().contains("--host-device-path"),
            "{refused}"
        );
        let library = directory.path().join("librdma.so");
        claims.library = Some(library.clone());
        let refused = claims
            .prepare(&claim, &handle(true))
            .await
            .expect_err("refused");
        assert!(
            refused.to_string().ends_with("librdma.so is no file"),
            "{refused}"
        );
        std::fs::write(&library, "").expect("written");
        claims
            .prepare(&claim, &handle(true))
            .await
            .expect("prepared");
        let spec = Spec::read(&claims.file(&claim)).expect("valid");
        spec.validate().expect("valid");
        let edits = &spec.devices[0].edits;
        assert_eq!(edits.env, ["DRA_CLAIM_UID=a", "LD_PRELOAD=librdma.so"]);
        assert_eq!(edits.mounts.len(), 2);
    }
}
