//! A driver without the SDK that keeps to every rule, unless one of its faults is switched on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_cdi::{ContainerEdits, Device as CdiDevice, Spec};
use allot_protos::dra_health_v1alpha1::dra_resource_health_server::DraResourceHealthServer;
use allot_protos::dra_v1::dra_plugin_server::DraPluginServer;
use allot_protos::dra_v1beta1::dra_plugin_server::DraPluginServer as DraPluginServerV1beta1;
use allot_protos::registration::registration_server::RegistrationServer;
use allot_protos::transport::{Incoming, Services};
use kube::Client;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::process::Settings;

mod metadata;
mod publish;
mod serve;

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

    fn data(&self) -> PathBuf {
        self.settings.kubelet.join("plugins").join(NAME)
    }

    fn key(&self, claim: &Claim) -> String {
        match self.fault("by-name") {
            true => format!("{}_{}", claim.namespace, claim.name),
            false => claim.uid.clone(),
        }
    }

    fn file(&self, entry: &Entry) -> PathBuf {
        let name = match self.fault("long-file-names") {
            true => format!("{}_{}", entry.namespace, entry.name),
            false => entry.uid.clone(),
        };
        self.settings.cdi.join(format!("{NAME}_{name}.json"))
    }

    fn device_name(&self, entry: &Entry, device: &Prepared) -> String {
        match &*self.settings.fault {
            "same-cdi-name" => "dev".to_owned(),
            "random-names" => format!("{}-{}-{}", entry.uid, device.device, self.started),
            _ => {
                let share = device
                    .share
                    .as_ref()
                    .filter(|_| !self.fault("cdi-without-share"));
                let share = share.map(|share| format!("-{share}")).unwrap_or_default();
                format!("{}-{}{share}", entry.uid, device.device)
            }
        }
    }

    fn write_common(&self) -> Result<(), String> {
        let edits = ContainerEdits {
            env: vec!["RAW=1".into()],
            ..Default::default()
        };
        let device = CdiDevice {
            name: COMMON.into(),
            edits,
            ..Default::default()
        };
        let spec = Spec::new(KIND, vec![device]);
        spec.write(&self.settings.cdi.join(format!("{NAME}_{COMMON}.json")))
            .map_err(|error| error.to_string())
    }

    async fn write_cdi(&self, entry: &Entry) -> Result<(), String> {
        match self.write_metadata(entry) {
            Err(_) if self.fault("ignores-full-disk") => {}
            written => written?,
        }
        let device = |device: &Prepared| CdiDevice {
            name: self.device_name(entry, device),
            edits: ContainerEdits {
                env: vec![format!("DEVICE={}", device.device)],
                ..Default::default()
            },
            ..Default::default()
        };
        let mut spec = Spec::new(KIND, entry.devices.iter().map(device).collect());
        if self.fault("new-cdi-version") {
            spec.cdi_version = "1.1.0".to_owned();
        }
        let path = self.file(entry);
        if self.fault("broken-file") {
            std::fs::write(self.settings.cdi.join("broken.json"), "{")
                .map_err(|error| error.to_string())?;
        }
        if self.fault("torn-cdi") {
            let text = serde_json::to_string(&spec).map_err(|error| error.to_string())?;
            std::fs::write(&path, &text[..text.len() / 2]).map_err(|error| error.to_string())?;
            tokio::time::sleep(Duration::from_millis(5)).await;
            return std::fs::write(&path, text).map_err(|error| error.to_string());
        }
        spec.write(&path).map_err(|error| error.to_string())
    }

    fn save(&self, memory: &Memory) -> Result<(), String> {
        if self.fault("forgets") {
            return Ok(());
        }
        let text = serde_json::to_vec(&memory.entries).map_err(|error| error.to_string())?;
        match allot_cdi::file::write_atomic(&self.data().join("state.json"), &text, 0o600) {
            Err(_) if self.fault("dies-when-full") => std::process::exit(4),
            Err(_) if self.fault("ignores-full-disk") => Ok(()),
            saved => saved.map_err(|error| error.to_string()),
        }
    }

    fn load(&self) -> BTreeMap<String, Entry> {
        let path = self.data().join("state.json");
        let Ok(bytes) = std::fs::read(&path) else {
            return BTreeMap::new();
        };
        match serde_json::from_slice::<BTreeMap<String, Entry>>(&bytes) {
            Ok(entries) => entries,
            Err(_) if self.fault("silent-crash") => std::process::exit(3),
            Err(error) => {
                eprintln!("{} is damaged and set aside: {error}", path.display());
                std::fs::rename(&path, path.with_extension("damaged")).unwrap();
                BTreeMap::new()
            }
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

    pub async fn prepare(&self, claim: &Claim) -> Result<Vec<(Prepared, Vec<String>)>, String> {
        let early = match self.fault("reads-before-lock") {
            true => Some(self.get(claim).await?),
            false => None,
        };
        let mut memory = match self.fault("one-at-a-time") {
            true => self.memory.try_lock().map_err(|_| "busy".to_owned())?,
            false => self.memory.lock().await,
        };
        if self.fault("one-at-a-time") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if memory.marked.contains(&claim.uid) {
            return Err("this claim had its chance".to_owned());
        }
        let asked = Instant::now();
        let object = match early {
            Some(object) => object,
            None => self.get(claim).await?,
        };
        if self.fault("gives-up") && asked.elapsed() > Duration::from_millis(500) {
            memory.marked.insert(claim.uid.clone());
            return Err("too slow".to_owned());
        }
        let key = self.key(claim);
        if let Some(entry) = memory.entries.get(&key) {
            if self.fault("not-idempotent") {
                return Err("already prepared".to_owned());
            }
            if !self.fault("cdi-once") && !self.fault("cdi-once-ever") {
                self.write_cdi(entry).await?;
            }
            if !self.fault("common-at-start") {
                self.write_common()?;
            }
            return Ok(self.answer(entry));
        }
        let Some(object) = object else {
            if self.fault("failed-blocks") {
                memory.marked.insert(claim.uid.clone());
            }
            return match self.fault("invents-claims") {
                true => Ok(Vec::new()),
                false => Err(format!(
                    "claim {}/{} with UID {} not found",
                    claim.namespace, claim.name, claim.uid
                )),
            };
        };
        let allocation = &object["status"]["allocation"]["devices"];
        if object["status"]["allocation"].is_null() && !self.fault("unallocated") {
            return Err("the claim is not allocated".to_owned());
        }
        let results = allocation["results"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let ours = |result: &Value| result["driver"] == NAME || self.fault("answers-foreign");
        let mut devices = Vec::new();
        for result in results.into_iter().filter(ours) {
            let text = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
            let known = (0..DEVICES).any(|index| text("device") == format!("dev-{index}"))
                || text("device") == SHARED;
            if !known && !self.fault("any-device") && result["driver"] == NAME {
                return Err(format!("device {} is not known", text("device")));
            }
            let request = text("request");
            let request = match self.fault("sub-request") {
                true => request,
                false => request.split('/').next().unwrap_or_default().to_owned(),
            };
            let request = if self.fault("wrong-request") {
                "x".to_owned()
            } else {
                request
            };
            devices.push(Prepared {
                request,
                pool: text("pool"),
                device: text("device"),
                admin: result["adminAccess"] == true && !self.fault("admin-exclusive"),
                share: result["shareID"].as_str().map(str::to_owned),
            });
            for amount in result["consumedCapacity"].as_object().into_iter().flatten() {
                let amount = amount.1.as_str().unwrap_or_default();
                if self.fault("whole-amounts") && amount.parse::<u64>().is_err() {
                    return Err(format!("{amount:?} is no number"));
                }
            }
        }
        let entry = Entry {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            devices,
        };
        if self.fault("holds-refused") {
            memory.entries.insert(key.clone(), entry.clone());
        }
        self.check_config(allocation)?;
        self.make_free(&mut memory, &entry).await?;
        let busy = self.data().join(format!("busy-{}", claim.uid));
        if self.fault("busy-prepare") {
            if busy.exists() {
                return Err("another process works on this claim".to_owned());
            }
            std::fs::write(&busy, "").unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if self.fault("leaks-descriptors") {
            std::mem::forget(std::fs::File::open("/dev/null").unwrap());
        }
        if !self.fault("common-at-start") {
            self.write_common()?;
        }
        // A claim that is not in the state yet has no file with references.
        memory.entries.insert(key.clone(), entry.clone());
        if let Err(error) = self.save(&memory) {
            memory.entries.remove(&key);
            return Err(error);
        }
        if !entry.devices.is_empty() {
            self.write_cdi(&entry).await?;
        }
        if self.fault("busy-prepare") {
            std::fs::remove_file(&busy).unwrap();
        }
        Ok(self.answer(&entry))
    }

    fn answer(&self, entry: &Entry) -> Vec<(Prepared, Vec<String>)> {
        let ids = |device: &Prepared| {
            let own = format!("{KIND}={}", self.device_name(entry, device));
            vec![
                own,
                format!("{KIND}={COMMON}"),
                metadata::id(entry, &device.request),
            ]
        };
        entry
            .devices
            .iter()
            .map(|device| (device.clone(), ids(device)))
            .collect()
    }

    fn check_config(&self, allocation: &Value) -> Result<(), String> {
        if self.fault("ignores-config") {
            return Ok(());
        }
        for config in allocation["config"].as_array().into_iter().flatten() {
            let opaque = &config["opaque"];
            if config["source"] == "FromClass" && self.fault("ignores-class-config") {
                continue;
            }
            if opaque["driver"] != NAME && !self.fault("reads-all-config") {
                continue;
            }
            let requests = config["requests"].as_array().cloned().unwrap_or_default();
            if self.fault("first-request-config")
                && !requests.is_empty()
                && !requests.contains(&json!("r0"))
            {
                continue;
            }
            if self.fault("refuses-config") {
                return Err("no parameters are supported".to_owned());
            }
            let parameters = opaque["parameters"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            if parameters.get("kind") != Some(&json!("RawConfig")) {
                return Err(format!(
                    "unknown kind of parameters {:?}",
                    parameters.get("kind")
                ));
            }
            let known = ["apiVersion", "kind", "brightness"];
            if let Some(field) = parameters
                .keys()
                .find(|field| !known.contains(&field.as_str()))
                && !self.fault("lax-config")
            {
                return Err(format!("unknown field {field:?}"));
            }
        }
        Ok(())
    }

    /// No other claim may have the devices, unless it was deleted.
    async fn make_free(&self, memory: &mut Memory, entry: &Entry) -> Result<(), String> {
        if self.fault("hands-out-twice") {
            return Ok(());
        }
        let holds = |other: &Entry| {
            let same = |a: &Prepared, b: &Prepared| {
                let shared =
                    a.share.is_some() && b.share.is_some() && !self.fault("share-exclusive");
                a.pool == b.pool && a.device == b.device && !a.admin && !b.admin && !shared
            };
            other.uid != entry.uid
                && other
                    .devices
                    .iter()
                    .any(|a| entry.devices.iter().any(|b| same(a, b)))
        };
        let holders: Vec<(String, Entry)> = memory
            .entries
            .iter()
            .filter(|(_, other)| holds(other))
            .map(|(key, other)| (key.clone(), other.clone()))
            .collect();
        for (key, holder) in holders {
            let claim = Claim {
                namespace: holder.namespace.clone(),
                name: holder.name.clone(),
                uid: holder.uid.clone(),
            };
            if self.fault("keeps-dead-claims") || self.get(&claim).await?.is_some() {
                return Err(format!(
                    "the device is prepared for claim {}/{}",
                    holder.namespace, holder.name
                ));
            }
            let _ = std::fs::remove_file(self.file(&holder));
            self.remove_metadata(&holder);
            memory.entries.remove(&key);
        }
        Ok(())
    }

    pub async fn unprepare(&self, claim: &Claim) -> Result<(), String> {
        let mut memory = self.memory.lock().await;
        if memory.marked.contains(&claim.uid) && self.fault("failed-blocks") {
            return Err("this claim failed".to_owned());
        }
        if self.fault("unprepare-reads-claim") && self.get(claim).await?.is_none() {
            return Err("no such claim".to_owned());
        }
        let busy = self.data().join(format!("gone-{}", claim.uid));
        if self.fault("busy-unprepare") {
            if busy.exists() {
                return Err("another process works on this claim".to_owned());
            }
            std::fs::write(&busy, "").unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let entry = memory.entries.remove(&self.key(claim));
        match entry {
            Some(_)
                if self.fault("holds-refused")
                    && !self
                        .settings
                        .cdi
                        .join(format!("{NAME}_{}.json", claim.uid))
                        .exists() =>
            {
                return Err("it is not prepared".to_owned());
            }
            None if self.fault("unprepare-once") => return Err("it is not prepared".to_owned()),
            None if self.fault("forgets") || self.fault("leaves-unknown") => return Ok(()),
            _ => {}
        }
        if self.fault("remembers-unprepared") {
            memory.marked.insert(claim.uid.clone());
        }
        let entry = entry.unwrap_or_else(|| Entry {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            devices: Vec::new(),
        });
        if self.fault("mixes-claims") {
            for other in memory.entries.values() {
                let _ = std::fs::remove_file(self.file(other));
            }
        }
        if !self.fault("leaves-cdi") {
            let file = self.file(&entry);
            let _ = std::fs::remove_file(&file);
            let _ = allot_cdi::file::remove_unfinished(&file);
            self.remove_metadata(&entry);
        }
        if self.fault("busy-unprepare") {
            let _ = std::fs::remove_file(&busy);
        }
        self.save(&memory)
    }
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
    let socket = match driver.fault("stale-sockets") {
        true => registry.join(format!("raw-{}-reg.sock", std::process::id())),
        false => registry.join(format!("{NAME}-reg.sock")),
    };
    let registrar = serve::Registrar::new(Arc::clone(&driver), &endpoint);
    let registered = registrar.registered();
    let incoming = Incoming::bind(&socket).unwrap();
    let services = Services::new().with(RegistrationServer::new(registrar));
    let registering = tokio::spawn(services.serve(incoming, stop.clone().cancelled_owned()));
    if driver.fault("needs-kubelet") {
        let mut registered = registered;
        tokio::spawn(async move {
            let waited =
                tokio::time::timeout(Duration::from_millis(1500), registered.wait_for(|yes| *yes))
                    .await;
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
