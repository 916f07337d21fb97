//! Volumes: what is written about them before a binding, and the controllers that bind and provision at once. Volumes that
//! are provisioned here can be reached from every node: without the provisioner, nothing else is known of them.

use allot_scheduler::actions::BindJob;
use allot_scheduler::core::{BindError, Input};
use allot_scheduler::pod::Key;
use allot_scheduler::storage::SELECTED_NODE;
use serde_json::{Value, json};

use crate::prepare::text;
use crate::show::{self, Seen};
use crate::simulation::Simulation;

impl Simulation {
    /// Binds the volumes of a pod, and provisions those that do not exist yet.
    pub(crate) fn write_volumes(&mut self, job: &BindJob) -> Result<(), BindError> {
        if job.volumes.is_empty() {
            return Ok(());
        }
        let (mut volumes, mut claims) = (Vec::new(), Vec::new());
        let mut shown = Vec::new();
        for task in &job.volumes.volumes {
            let (key, ..) = &task.claim;
            let volume = self.change_volume(&task.volume, |volume| {
                volume["spec"]["claimRef"] = reference(key, &task.claim.1);
                volume["status"]["phase"] = json!("Bound");
            })?;
            if task.version.is_some() {
                volumes.push((task.volume.clone(), version_of(&volume)));
            }
            shown.push(volume);
            shown.push(self.bind_volume_claim(key, &task.volume)?);
        }
        for (key, uid, _) in &job.volumes.claims {
            let name = format!("pvc-{uid}");
            let mut claim = self.bind_volume_claim(key, &name)?;
            claim["metadata"]["annotations"][SELECTED_NODE] = json!(&*job.node);
            claims.push((key.clone(), version_of(&claim)));
            let volume = json!({
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {
                    "name": name,
                    "uid": self.objects.next_uid(),
                    "resourceVersion": self.objects.next_version(),
                },
                "spec": {
                    "capacity": claim["spec"]["resources"]["requests"],
                    "accessModes": claim["spec"]["accessModes"],
                    "storageClassName": claim["spec"]["storageClassName"],
                    "claimRef": reference(key, uid),
                },
                "status": {"phase": "Bound"},
            });
            shown.extend([volume, claim]);
        }
        self.deliver(Input::VolumesWritten {
            pod: job.pod.uid.clone(),
            volumes,
            claims,
        });
        for object in shown {
            self.store(object)
                .map_err(|error| BindError::new(error.to_string()))?;
        }
        Ok(())
    }

    fn bind_volume_claim(&mut self, key: &Key, volume: &str) -> Result<Value, BindError> {
        let identity = (
            "PersistentVolumeClaim".to_owned(),
            key.namespace.to_string(),
            key.name.to_string(),
        );
        let claim = self.objects.others.get(&identity).cloned();
        let mut claim = claim.ok_or_else(|| missing("persistentvolumeclaims", &key.name))?;
        claim["spec"]["volumeName"] = json!(volume);
        claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
        claim["status"]["phase"] = json!("Bound");
        claim["metadata"]["resourceVersion"] = self.objects.next_version().into();
        Ok(claim)
    }

    fn change_volume(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Value, BindError> {
        let identity = (
            "PersistentVolume".to_owned(),
            String::new(),
            name.to_owned(),
        );
        let volume = self.objects.others.get(&identity).cloned();
        let mut volume = volume.ok_or_else(|| missing("persistentvolumes", name))?;
        change(&mut volume);
        volume["metadata"]["resourceVersion"] = self.objects.next_version().into();
        Ok(volume)
    }

    /// Stores an object that has its version, and shows it.
    fn store(&mut self, object: Value) -> anyhow::Result<()> {
        let identity = crate::objects::identity(&object);
        if let Some(input) = show::input(&identity.0, Seen::Applied(object.clone()))? {
            self.deliver(input);
        }
        self.objects.others.insert(identity, object);
        Ok(())
    }
}

fn version_of(object: &Value) -> String {
    text(object, "/metadata/resourceVersion").to_owned()
}

fn reference(key: &Key, uid: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": &*key.namespace,
        "name": &*key.name,
        "uid": uid,
    })
}

fn missing(plural: &str, name: &str) -> BindError {
    BindError::new(format!("{plural} {name:?} not found"))
}
