//! What can be chosen for a cluster: its driver, and what runs its containers.

use allot_node::RuntimeKind;
use anyhow::Context as _;

/// A driver that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Driver {
    /// Modelled GPUs, gpu.example.com
    Gpu,
    /// Environment variables as resources, as in the documents of 1.26 to 1.30
    Test,
    /// Networks as resources, netresources.spidernet.io, as in Spiderpool's documents; on modelled interfaces
    Net,
    /// No driver
    None,
}

/// How containers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtime {
    /// Processes where the machine permits them
    Auto,
    /// Processes of this machine
    Process,
    /// No processes: pods run in name only
    Simulated,
    /// containerd 1.7 or newer, or CRI-O
    Cri,
}

impl From<Runtime> for RuntimeKind {
    fn from(runtime: Runtime) -> Self {
        match runtime {
            Runtime::Auto => Self::Auto,
            Runtime::Process => Self::Process,
            Runtime::Simulated => Self::Simulated,
            Runtime::Cri => Self::Cri,
        }
    }
}

/// Checks that a container runtime listens at `endpoint`. A node would wait for it without end, and so would its user.
///
/// # Errors
/// It is no socket, or nothing accepts connections there.
pub(super) async fn runtime_listens(endpoint: &str) -> anyhow::Result<()> {
    let path = allot_node::cri_socket(endpoint).context("--cri-endpoint")?;
    let connected = tokio::net::UnixStream::connect(path).await;
    connected.map(drop).map_err(|error| {
        anyhow::anyhow!(
            "no container runtime listens at {endpoint}: {error}; start it, name its socket with --cri-endpoint, or \
             choose another --runtime"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endpoint without `unix://` was not checked: a path waited for its runtime without end.
    #[tokio::test]
    async fn regression_every_endpoint_is_checked_at_the_start() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("cri.sock");
        let path = socket.display().to_string();
        let check = async |endpoint: &str| {
            let error = runtime_listens(endpoint).await.err();
            error.map(|error| format!("{error:#}"))
        };
        for endpoint in ["tcp://127.0.0.1:1", "cri.sock", "unix://cri.sock", ""] {
            let error = check(endpoint).await.unwrap_or_default();
            assert!(error.contains("expected unix:///PATH"), "{error}");
        }
        for endpoint in [path.clone(), format!("unix://{path}")] {
            let error = check(&endpoint).await.unwrap_or_default();
            assert!(error.contains("no container runtime listens"), "{error}");
        }
        let _listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
        for endpoint in [path.clone(), format!("unix://{path}")] {
            assert_eq!(check(&endpoint).await, None);
        }
    }
}
