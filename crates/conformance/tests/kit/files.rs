//! The files of the driver: CDI and its own state.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use allot_cdi::{ContainerEdits, Device as CdiDevice, Mount, Spec};

use super::{COMMON, Entry, KIND, Memory, NAME, Prepared, Raw};

impl Raw {
    pub(super) fn file(&self, entry: &Entry) -> PathBuf {
        let name = match self.fault("long-file-names") {
            true => format!("{}_{}", entry.namespace, entry.name),
            false => entry.uid.clone(),
        };
        self.settings.cdi.join(format!("{NAME}_{name}.json"))
    }

    pub(super) fn device_name(&self, entry: &Entry, device: &Prepared) -> String {
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

    pub(super) fn write_common(&self) -> Result<(), String> {
        if self.injects() {
            return Ok(());
        }
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

    pub(super) async fn write_cdi(&self, entry: &Entry) -> Result<(), String> {
        if self.injects() {
            return Ok(());
        }
        match self.write_metadata(entry) {
            Err(_) if self.fault("ignores-full-disk") => {}
            written => written?,
        }
        let device = |device: &Prepared| CdiDevice {
            name: self.device_name(entry, device),
            edits: ContainerEdits {
                env: [format!("DEVICE={}", device.device)]
                    .into_iter()
                    .chain(entry.brightness.iter().map(|it| format!("BRIGHTNESS={it}")))
                    .collect(),
                mounts: self.mounts(),
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
            // Long enough to be seen by a reader that has to wait for its turn.
            tokio::time::sleep(Duration::from_millis(50)).await;
            return std::fs::write(&path, text).map_err(|error| error.to_string());
        }
        spec.write(&path).map_err(|error| error.to_string())
    }

    /// What containers mount of the host.
    fn mounts(&self) -> Vec<Mount> {
        let host_path = match &*self.settings.fault {
            "mounts-nothing" => self.data().join("none").display().to_string(),
            "mounts-relative" => "etc".to_owned(),
            _ => self.data().display().to_string(),
        };
        vec![Mount {
            host_path,
            container_path: "/run/raw".to_owned(),
            options: vec!["ro".to_owned(), "rbind".to_owned()],
            kind: None,
        }]
    }

    /// Installs a program, as for a hook of its CDI devices. One that is there is an earlier one of the same release.
    pub(super) fn install(&self) {
        let path = self.data().join("hook");
        let mut program = b"\x7fELF".to_vec();
        program.resize(6 << 20, 0);
        match std::fs::read(&path) {
            Ok(found) if found == program => {}
            Ok(_) => {
                eprintln!("the hook was changed");
                std::process::exit(5);
            }
            Err(_) => allot_cdi::file::write_atomic(&path, &program, 0o755).unwrap(),
        }
    }

    pub(super) fn save(&self, memory: &Memory) -> Result<(), String> {
        if self.fault("forgets") {
            return Ok(());
        }
        // The earlier release of the driver had a list.
        let text = match self.fault("earlier-release") {
            true => serde_json::to_vec(&Vec::from_iter(memory.entries.values())),
            false => serde_json::to_vec(&memory.entries),
        };
        let text = text.map_err(|error| error.to_string())?;
        match allot_cdi::file::write_atomic(&self.data().join("state.json"), &text, 0o600) {
            Err(_) if self.fault("dies-when-full") => std::process::exit(4),
            Err(_) if self.fault("ignores-full-disk") => Ok(()),
            saved => saved.map_err(|error| error.to_string()),
        }
    }

    pub(super) fn load(&self) -> BTreeMap<String, Entry> {
        let path = self.data().join("state.json");
        let Ok(bytes) = std::fs::read(&path) else {
            return BTreeMap::new();
        };
        if let Ok(list) = serde_json::from_slice::<Vec<Entry>>(&bytes) {
            let known = list.into_iter().filter(|_| !self.fault("forgets-earlier"));
            return known.map(|entry| (entry.uid.clone(), entry)).collect();
        }
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
}
