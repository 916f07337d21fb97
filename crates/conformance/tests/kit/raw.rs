//! A driver without the SDK that keeps to every rule, unless one of its faults is switched on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allot_protos::dra_health_v1alpha1::dra_resource_health_server::DraResourceHealthServer;
use allot_protos::dra_v1::dra_plugin_server::DraPluginServer;
use allot_protos::dra_v1beta1::dra_plugin_server::DraPluginServer as DraPluginServerV1beta1;
use allot_protos::registration::registration_server::RegistrationServer;
use allot_protos::transport::{Incoming, Services};
use kube::Client;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::process::Settings;

mod calls;
mod files;
mod metadata;
mod publish;
mod serve;
mod status;

pub const NAME: &str = "raw.example.com";
const KIND: &str = "raw.example.com/dev";
const COMMON: &str = "common";
pub const DEVICES: usize = 4;
/// One more, which claims share.
pub const SHARED: &str = "shared-0";

/// What is known of a prepared claim.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    namespace: String,
    name: String,
    uid: String,
    devices: Vec<Prepared>,
    /// The boot in which it was prepared.
    #[serde(default)]
    boot: String,
    /// What its parameters say.
    #[serde(default)]
    brightness: Option<Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prepared {
    request: String,
    pool: String,
    device: String,
    /// Others may have it too.
    admin: bool,
    share: Option<String>,
}

#[derive(Default)]
struct Memory {
    entries: BTreeMap<String, Entry>,
    /// For faults: claims that the driver remembers something about.
    marked: BTreeSet<String>,
}

pub struct Raw {
    settings: Settings,
    client: Client,
    memory: tokio::sync::Mutex<Memory>,
    busy: Mutex<BTreeSet<String>>,
    started: String,
}

/// Which claim: namespace, name, UID.
#[derive(Debug, Clone)]
pub struct Claim {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Raw {
    pub fn fault(&self, name: &str) -> bool {
        self.settings.fault == name
    }

    /// No fault: it injects its devices without CDI, as a plugin of NRI does, and has nothing to tell the kubelet.
    fn injects(&self) -> bool {
        self.fault("injects")
    }

    fn data(&self) -> PathBuf {
        self.settings.kubelet.join("plugins").join(NAME)
    }

    fn key(&self, claim: &Claim) -> String {
        match self.fault("by-name") {
            true => format!("{}_{}", claim.namespace, claim.name),
            false => claim.uid.clone(),
        }
    }

    /// The claim in the API server; `None` if it was deleted.
    async fn get(&self, claim: &Claim) -> Result<Option<Value>, String> {
        let path = format!(
            "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}",
            claim.namespace, claim.name
        );
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        match self.client.request::<Value>(request).await {
            Ok(object) if self.fault("any-uid") || object["metadata"]["uid"] == claim.uid => {
                Ok(Some(object))
            }
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The ID of the boot: the kernel's, unless the kit gives another one.
fn boot() -> String {
    let given = std::env::var(allot_conformance::BOOT_ID_VARIABLE);
    let id = given.or_else(|_| std::fs::read_to_string("/proc/sys/kernel/random/boot_id"));
    id.unwrap().trim().to_owned()
}

/// The lock of a directory, which the kernel releases when the process ends.
async fn lock(path: &Path) -> std::fs::File {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .unwrap();
    for _ in 0..50 {
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok() {
            return file;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eprintln!("another instance is running");
    std::process::exit(1);
}

/// Runs the driver until a signal ends it.
pub async fn run(settings: Settings, client: Client) {
    let driver = Raw {
        settings,
        client,
        memory: tokio::sync::Mutex::default(),
        busy: Mutex::default(),
        started: uuid::Uuid::new_v4().to_string(),
    };
    let data = driver.data();
    std::fs::create_dir_all(&data).unwrap();
    let starting = data.join("starting");
    if driver.fault("start-marker") {
        if starting.exists() {
            eprintln!("another process is starting");
            std::process::exit(1);
        }
        std::fs::write(&starting, "").unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
        std::fs::remove_file(&starting).unwrap();
    }
    let _lock = match driver.fault("steals-sockets") {
        true => None,
        false => Some(lock(&data.join("lock")).await),
    };
    if driver.fault("installs") {
        driver.install();
    }
    let entries = driver.load();
    driver.write_common().unwrap();
    if !driver.fault("no-restore") && !driver.fault("cdi-once-ever") {
        for entry in entries.values() {
            let _ = driver.write_cdi(entry).await;
        }
    }
    driver.memory.lock().await.entries = entries;
    let driver = Arc::new(driver);
    let stop = tokio_util::sync::CancellationToken::new();
    let endpoint = data.join("dra.sock");
    let incoming = Incoming::bind(&endpoint).unwrap();
    let services = Services::new()
        .with(DraPluginServer::new(serve::Service(Arc::clone(&driver))))
        .with(DraPluginServerV1beta1::new(serve::Service(Arc::clone(
            &driver,
        ))))
        .with(DraResourceHealthServer::new(serve::Health::new(&driver)));
    let serving = tokio::spawn(services.serve(incoming, stop.clone().cancelled_owned()));
    let registry = driver.settings.kubelet.join("plugins_registry");
    let socket = registry.join(match driver.settings.fault.as_str() {
        "stale-sockets" => format!("raw-{}-reg.sock", std::process::id()),
        "usual-socket-name" => "driver-reg.sock".to_owned(),
        _ => format!("{NAME}-reg.sock"),
    });
    let registrar = serve::Registrar::new(Arc::clone(&driver), &endpoint);
    let registered = registrar.registered();
    let services = Services::new().with(RegistrationServer::new(registrar));
    let once = driver.fault("socket-once");
    let registering = tokio::spawn(register(socket, services, once, stop.clone()));
    if driver.fault("needs-kubelet") {
        let mut registered = registered;
        tokio::spawn(async move {
            let waited =
                tokio::time::timeout(Duration::from_secs(5), registered.wait_for(|yes| *yes)).await;
            if waited.is_err() {
                eprintln!("no kubelet");
                std::process::exit(1);
            }
        });
    }
    let publishing = tokio::spawn(publish::run(Arc::clone(&driver)));
    let mut terminate =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    terminate.recv().await;
    while driver.fault("ignores-term") {
        terminate.recv().await;
    }
    if driver.fault("removes-at-exit") || driver.fault("empties-at-exit") {
        publishing.abort();
        publish::leave(&driver).await;
    }
    if driver.fault("cleans-at-exit") {
        for entry in driver.memory.lock().await.entries.values() {
            let _ = std::fs::remove_file(driver.file(entry));
        }
    }
    publishing.abort();
    stop.cancel();
    let _ = tokio::join!(serving, registering);
    std::process::exit(0);
}

/// Serves the registration until the end, and makes its socket again when that was deleted; `once`: it does not.
async fn register(
    socket: PathBuf,
    services: Services,
    once: bool,
    stop: tokio_util::sync::CancellationToken,
) {
    while !stop.is_cancelled() {
        let incoming = Incoming::bind(&socket).unwrap();
        let gone = async {
            while once || socket.exists() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let serving = services
            .clone()
            .serve(incoming, stop.clone().cancelled_owned());
        tokio::select! {
            result = serving => return result.unwrap(),
            () = gone => {}
        }
    }
}
