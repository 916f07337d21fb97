//! What can be chosen for a cluster: its driver, and what runs its containers.

use allot_node::RuntimeKind;

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
/// Nothing accepts connections there.
pub(super) async fn runtime_listens(endpoint: &str) -> anyhow::Result<()> {
    let Some(path) = endpoint.strip_prefix("unix://") else {
        // The node agent refuses it with its own message.
        return Ok(());
    };
    let connected = tokio::net::UnixStream::connect(path).await;
    connected.map(drop).map_err(|error| {
        anyhow::anyhow!(
            "no container runtime listens at {endpoint}: {error}; start it, name its socket with --cri-endpoint, or \
             choose another --runtime"
        )
    })
}
