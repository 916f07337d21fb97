//! `allot apiserver` as a process.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use allot_testing::wait::PATIENCE;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// A running server. Killed when dropped.
pub struct Server {
    child: Child,
    client: Client,
}

impl Server {
    /// Starts on a directory and waits until it answers.
    pub async fn start(directory: &Path) -> Self {
        let kubeconfig = directory.join("kubeconfig");
        let _ = std::fs::remove_file(&kubeconfig);
        let mut child = Command::new(env!("CARGO_BIN_EXE_allot"))
            .args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(directory)
            .arg("--kubeconfig-out")
            .arg(&kubeconfig)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the server does not answer");
            assert!(
                child.try_wait().expect("waited").is_none(),
                "the server ended"
            );
            if let Some(client) = client(&kubeconfig).await
                && client.apiserver_version().await.is_ok()
            {
                return Self { child, client };
            }
            // The file tells when the server listens, but no event tells of the file.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A client of the administrator.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Ends the process at once.
    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

async fn client(kubeconfig: &Path) -> Option<Client> {
    let file = Kubeconfig::read_from(kubeconfig).ok()?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .ok()?;
    Client::try_from(config).ok()
}
