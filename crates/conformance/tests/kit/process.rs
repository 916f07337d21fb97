//! The test program run again as a driver: nothing else has to be built, and no hardware is needed.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};

/// What the driver is told through its environment.
#[derive(Debug, Clone)]
pub struct Settings {
    pub node: String,
    pub kubelet: PathBuf,
    pub cdi: PathBuf,
    pub instance: String,
    pub fault: String,
}

/// The command line of a driver in this program.
pub fn command(driver: &str, fault: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let program = program
        .display()
        .to_string()
        .replace('{', "{{")
        .replace('}', "}}");
    format!(
        "KIT_DRIVER={driver} KIT_FAULT={fault} KIT_NODE={{node}} KIT_KUBELET={{kubelet}} KIT_CDI={{cdi}} \
         KIT_KUBECONFIG={{kubeconfig}} KIT_INSTANCE={{instance}} '{program}' --exact process::driver --nocapture"
    )
}

/// Does nothing as a test; as a driver it runs until it is ended.
#[test]
fn driver() {
    let Ok(driver) = std::env::var("KIT_DRIVER") else {
        return;
    };
    let var = |name: &str| std::env::var(name).unwrap();
    let settings = Settings {
        node: var("KIT_NODE"),
        kubelet: var("KIT_KUBELET").into(),
        cdi: var("KIT_CDI").into(),
        instance: var("KIT_INSTANCE"),
        fault: var("KIT_FAULT"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = client(Path::new(&var("KIT_KUBECONFIG"))).await;
        match driver.as_str() {
            "raw" => super::raw::run(settings, client).await,
            "rolling" => super::rolling::run(settings, client).await,
            driver => gpu(settings, client, driver == "gpu-shared").await,
        }
    });
}

async fn client(kubeconfig: &Path) -> kube::Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .unwrap();
    kube::Client::try_from(config).unwrap()
}

async fn gpu(settings: Settings, client: kube::Client, shared: bool) {
    let mut config = allot_driver_gpu::Config::new(settings.node, settings.kubelet);
    config.cdi_dir = settings.cdi;
    config.profile.shared = shared;
    config.device_status = true;
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    let mut terminate =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    tokio::spawn(async move {
        terminate.recv().await;
        stopped.cancel();
    });
    if let Err(error) = allot_driver_gpu::run(client, config, stop).await {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}
