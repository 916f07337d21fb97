//! Device metadata: a file for each request, which a CDI device mounts.

use std::path::PathBuf;

use allot_cdi::{ContainerEdits, Device as CdiDevice, Mount, Spec};
use serde_json::json;

use super::{Entry, NAME, Raw};

const KIND: &str = "raw.example.com/metadata";
const DIRECTORY: &str = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims";

/// The CDI device of a request.
pub fn id(entry: &Entry, request: &str) -> String {
    format!("{KIND}={}_{}", entry.uid, base(request))
}

fn base(request: &str) -> &str {
    request.split('/').next().unwrap_or_default()
}

impl Raw {
    fn metadata_files(&self, entry: &Entry) -> PathBuf {
        self.data().join("metadata").join(&entry.uid)
    }

    fn metadata_spec(&self, entry: &Entry) -> PathBuf {
        self.settings
            .cdi
            .join(format!("{NAME}_metadata_{}.json", entry.uid))
    }

    /// Writes the files of a claim and the CDI file that mounts them.
    pub(super) fn write_metadata(&self, entry: &Entry) -> Result<(), String> {
        let mut devices: Vec<CdiDevice> = Vec::new();
        for request in entry.devices.iter().map(|device| base(&device.request)) {
            let name = format!("{}_{request}", entry.uid);
            if devices.iter().any(|device| device.name == name) {
                continue;
            }
            let own = entry
                .devices
                .iter()
                .filter(|device| base(&device.request) == request);
            let own: Vec<_> = own
                .map(|it| json!({"driver": NAME, "pool": it.pool, "name": it.device}))
                .collect();
            let uid = match self.fault("metadata-by-name") {
                true => "",
                false => &entry.uid,
            };
            let object = json!({"apiVersion": "metadata.resource.k8s.io/v1beta1", "kind": "DeviceMetadata",
                "metadata": {"name": entry.name, "namespace": entry.namespace, "uid": uid},
                "requests": [{"name": request, "devices": own}]});
            let file = self.metadata_files(entry).join(format!("{request}.json"));
            allot_cdi::file::write_atomic(&file, object.to_string().as_bytes(), 0o644)
                .map_err(|error| error.to_string())?;
            let mount = Mount {
                host_path: file.display().to_string(),
                container_path: format!(
                    "{DIRECTORY}/{}/{request}/{NAME}-metadata.json",
                    entry.name
                ),
                options: vec!["ro".into(), "bind".into()],
                ..Default::default()
            };
            devices.push(CdiDevice {
                name,
                edits: ContainerEdits {
                    mounts: vec![mount],
                    ..Default::default()
                },
                ..Default::default()
            });
        }
        let spec = Spec::new(KIND, devices);
        let written = spec.write(&self.metadata_spec(entry));
        written.map_err(|error| error.to_string())
    }

    pub(super) fn remove_metadata(&self, entry: &Entry) {
        // They need not exist.
        let spec = self.metadata_spec(entry);
        let _ = std::fs::remove_file(&spec);
        let _ = allot_cdi::file::remove_unfinished(&spec);
        if !self.fault("metadata-left") {
            let _ = std::fs::remove_dir_all(self.metadata_files(entry));
        }
    }
}
