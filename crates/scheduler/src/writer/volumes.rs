//! Writes about volumes: which claim a volume is reserved for, and on which node to provision one. The persistent
//! volume controller and the provisioners do the rest.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::*;
use crate::actions::VolumeTask;
use crate::storage::{BOUND_BY_CONTROLLER, SELECTED_NODE, Volume, VolumeClaim};

impl Writer {
    /// Writes the decisions about the volumes of a pod, and reports the versions.
    pub(super) async fn write_volumes(&self, job: &BindJob) -> Result<(), BindError> {
        let tasks = &job.volumes;
        if tasks.is_empty() {
            return Ok(());
        }
        let (mut volumes, mut claims) = (Vec::new(), Vec::new());
        for task in &tasks.volumes {
            if let Some(version) = &task.version {
                proceed(&job.cancel)?;
                let version = self.bind_volume(task, version).await?;
                volumes.push((task.volume.clone(), version));
            }
        }
        for (key, uid, version) in &tasks.claims {
            proceed(&job.cancel)?;
            let version = self.select_node(key, uid, version, &job.node).await?;
            claims.push((key.clone(), version));
        }
        self.report(Input::VolumesWritten {
            pod: job.pod.uid.clone(),
            volumes,
            claims,
        });
        Ok(())
    }

    /// Writes which claim a volume is for.
    async fn bind_volume(&self, task: &VolumeTask, version: &str) -> Result<String, BindError> {
        let (key, uid, claim_version) = &task.claim;
        let mut metadata = json!({"resourceVersion": version});
        if task.by_controller {
            metadata["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
        }
        let reference = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": &*key.namespace,
            "name": &*key.name,
            "uid": &**uid,
            "resourceVersion": claim_version,
        });
        let patch = json!({"metadata": metadata, "spec": {"claimRef": reference}});
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let request = || {
            Request::new(api.resource_url()).patch(
                &task.volume,
                &patch_params(),
                &Patch::Merge(&patch),
            )
        };
        let found = self
            .until_written(request, || observe::get(&api, &task.volume))
            .await?;
        let volume = Volume::new(&found);
        match &volume.claim {
            Some(claim) if claim.uid == *uid => Ok(volume.version),
            _ => Err(BindError::new(format!(
                "Operation cannot be fulfilled on persistentvolumes {:?}: the object has been modified; please apply your changes to the latest version and try again",
                task.volume
            ))),
        }
    }

    /// Writes for which node a volume is to be provisioned.
    async fn select_node(
        &self,
        key: &Key,
        uid: &Uid,
        version: &str,
        node: &str,
    ) -> Result<String, BindError> {
        let patch = json!({
            "metadata": {"uid": &**uid, "resourceVersion": version, "annotations": {SELECTED_NODE: node}},
        });
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let request = || {
            Request::new(api.resource_url()).patch(
                &key.name,
                &patch_params(),
                &Patch::Merge(&patch),
            )
        };
        let found = self
            .until_written(request, || observe::get(&api, &key.name))
            .await?;
        let claim = VolumeClaim::new(&found);
        if claim.uid == *uid && claim.selected_node.as_deref() == Some(node) {
            return Ok(claim.version);
        }
        Err(BindError::new(format!(
            "Operation cannot be fulfilled on persistentvolumeclaims {:?}: the object has been modified; please apply your changes to the latest version and try again",
            key.name
        )))
    }

    /// Repeats a write until it succeeds; returns the current object, whichever component wrote it last.
    async fn until_written<K, R>(
        &self,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        read: impl Fn() -> R,
    ) -> Result<K, BindError>
    where
        K: observe::Observe,
        R: Future<Output = Result<Option<K>, kube::Error>>,
    {
        let write = async || {
            let request = request().map_err(kube::Error::BuildRequest)?;
            observe::request(&self.client, request).await
        };
        match until_known(write, read).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(BindError::new("not found".to_owned())),
            Err(error) => Err(BindError::new(api_message(&error))),
        }
    }
}
