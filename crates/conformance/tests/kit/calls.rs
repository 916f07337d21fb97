//! The calls of the kubelet: prepare and unprepare.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{COMMON, Claim, DEVICES, Entry, KIND, Memory, NAME, Prepared, Raw, SHARED, metadata};

impl Raw {
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
            if self.fault("refuses-old-boot") && entry.boot != super::boot() {
                return Err("it was prepared before the machine was restarted".to_owned());
            }
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
            boot: super::boot(),
            brightness: None,
        };
        if self.fault("holds-refused") {
            memory.entries.insert(key.clone(), entry.clone());
        }
        let brightness = self.check_config(allocation)?;
        let entry = Entry {
            brightness,
            ..entry
        };
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
        if self.fault("leaks-memory") {
            std::mem::forget(vec![1_u8; 2 << 20]);
        }
        if self.fault("ends-in-calls") {
            std::process::exit(3);
        }
        if self.fault("leaks-directories") {
            std::fs::create_dir(self.data().join(&claim.uid)).unwrap();
        }
        if self.fault("leaks-files") {
            std::fs::write(self.data().join(&claim.uid), "").unwrap();
        }
        if self.fault("grows-state") {
            let log = self.data().join("log");
            let log = std::fs::File::options().create(true).append(true).open(log);
            log.unwrap().write_all(&[b'x'; 1 << 20]).unwrap();
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
        self.report(&entry);
        Ok(self.answer(&entry))
    }

    fn answer(&self, entry: &Entry) -> Vec<(Prepared, Vec<String>)> {
        if self.fault("names-nothing") || self.injects() {
            return Vec::new();
        }
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
            .take(if self.fault("first-device") {
                1
            } else {
                usize::MAX
            })
            .map(|device| (device.clone(), ids(device)))
            .collect()
    }

    /// Returns the parameters that decide.
    fn check_config(&self, allocation: &Value) -> Result<Option<Value>, String> {
        let mut brightness = None;
        if self.fault("ignores-config") {
            return Ok(brightness);
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
            let given = parameters.get("brightness").cloned();
            brightness = match self.fault("first-config") {
                true => brightness.or(given),
                false => given.or(brightness),
            };
        }
        Ok(brightness)
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
            boot: String::new(),
            brightness: None,
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
