//! A pod's way to its node: its claims, its status, its binding.

use super::*;

impl Writer {
    pub(super) async fn bind(&self, job: BindJob) {
        let pod = job.pod.uid.clone();
        self.rejections.written(&pod).await;
        let outcome = match self.write_claims(&job).await {
            Ok(()) if job.wait => {
                if job.announce && proceed(&job.cancel).is_ok() {
                    self.write_nomination(&job).await;
                }
                return self.report(Input::ClaimsReady(pod));
            }
            Ok(()) => self.bind_pod(&job.pod, &job.node).await,
            Err(error) => Err(error),
        };
        self.report(Input::Bound { pod, outcome });
    }

    /// Publishes the node of a pod whose binding may take long as its nomination, so that other components do not free
    /// capacity elsewhere. Upstream does so for every pod with claims; a nomination that ends at once is not worth a
    /// write.
    async fn write_nomination(&self, job: &BindJob) {
        let pod = &job.pod;
        if pod.nominated_node() == Some(&*job.node) {
            return;
        }
        let status = json!({"nominatedNodeName": &*job.node});
        let patch = json!({"metadata": {"uid": &*pod.uid}, "status": status});
        let written = self.patch_pod_status(&pod.key, &patch).await;
        let written = written.map(|version| self.versions.note(&pod.uid, version));
        log("nominate", &pod.key, written);
    }

    /// Writes all claims of a pod. All writes run to their end, so that none is left half done; when the binding cycle is
    /// canceled, no other write is begun.
    async fn write_claims(&self, job: &BindJob) -> Result<(), BindError> {
        let pod = &job.pod;
        let existing = futures::future::join_all(job.claims.iter().map(async |task| {
            let claim = self.claims.reserve(task, &job.cancel).await?;
            let (pod, in_flight) = (pod.uid.clone(), task.uid.clone());
            self.report(Input::ClaimWritten {
                pod,
                in_flight,
                claim,
            });
            Ok::<(), BindError>(())
        }));
        let extended = async {
            let Some(task) = &job.extended else {
                return Ok(None);
            };
            proceed(&job.cancel)?;
            let claim = self
                .claims
                .create_extended_resource_claim(task, pod, &job.cancel)
                .await?;
            let name = claim.metadata.name.clone().unwrap_or_default();
            let (uid, in_flight) = (pod.uid.clone(), task.uid.clone());
            self.report(Input::ClaimWritten {
                pod: uid,
                in_flight,
                claim,
            });
            let status = json!({"resourceClaimName": name, "requestMappings": task.mappings});
            proceed(&job.cancel)?;
            let recorded = self.record_extended_resource_claim(pod, &status).await;
            recorded.map_err(|e| not_recorded(&e))?;
            Ok(Some(name))
        };
        let (plugin, volumes) = (self.write_plugin_claims(job), self.write_volumes(job));
        let (existing, extended, plugin, volumes) =
            futures::join!(existing, extended, plugin, volumes);
        let of_claims = |e: BindError| e.before_binding(Plugin::DynamicResources);
        let claims = existing.into_iter().chain([plugin]);
        claims
            .collect::<Result<(), BindError>>()
            .map_err(of_claims)?;
        volumes.map_err(|e| e.before_binding(Plugin::VolumeBinding))?;
        let extended = extended.map_err(of_claims)?;
        if job.node_allocatable.0.is_empty() {
            return Ok(());
        }
        let _turn = self.demands.of(&pod.uid).lock_owned().await;
        proceed(&job.cancel)?;
        let node_allocatable = job.node_allocatable.clone().named(extended.as_deref());
        let written = self.record_node_allocatable(pod, &node_allocatable).await;
        written.map_err(|e| of_claims(not_recorded(&e)))
    }

    pub(super) async fn bind_pod(&self, pod: &PodInfo, node: &str) -> Result<(), BindError> {
        let mut version = self.versions.take(pod);
        let url = format!(
            "/api/v1/namespaces/{}/pods/{}/binding",
            pod.key.namespace, pod.key.name
        );
        let mut failures = Failures::default();
        // Whether a request is under way that may still be carried out.
        let mut unknown = false;
        loop {
            let body = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "name": &*pod.key.name, "namespace": &*pod.key.namespace, "uid": &*pod.uid,
                    "resourceVersion": version,
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            let error = match self.writes.send_only(Method::POST, &url, &body).await {
                Ok(()) => break,
                Err(error) => error,
            };
            // Another write of this scheduler, whose answer was lost, may have bound the pod already.
            let bound = loop {
                match observe::get(&self.pods(&pod.key), &pod.key.name).await {
                    Ok(current) => {
                        break current.filter(|p| p.metadata.uid.as_deref() == Some(&*pod.uid));
                    }
                    Err(_) => failures.wait().await,
                }
            };
            let on = bound
                .as_ref()
                .and_then(|p| p.spec.as_ref()?.node_name.as_deref());
            if on == Some(node) {
                break;
            }
            unknown |= !answered(&error);
            let same = bound.as_ref().is_some_and(|p| pod.has_claims_of(p));
            let now = bound.as_ref().map(|p| p.metadata.resource_version.clone());
            let changed = now.as_ref().is_some_and(|v| *v != version);
            if code(&error) == 409 && on.is_none() && changed && same {
                // The pod changed in a way that does not matter here.
                version = now.flatten();
                continue;
            }
            let given_up = failures.is_final(&error);
            if given_up && on.is_none() && bound.is_some() && std::mem::take(&mut unknown) {
                // The claims of the pod are about to be released: no earlier request may bind it from now on.
                if let Ok(true) = self.fence(pod).await {
                    continue;
                }
            }
            if given_up || on.is_some() || bound.is_none() {
                let message = format!(
                    "running Bind plugin \"DefaultBinder\": {}",
                    api_message(&error)
                );
                return Err(BindError {
                    bound_elsewhere: on.is_some(),
                    ..BindError::new(message)
                });
            }
            failures.wait().await;
        }
        tracing::info!(pod = %pod.key, node, "bound");
        self.recorder.note(PendingEvent::scheduled(pod, node));
        Ok(())
    }

    pub(super) fn pods(&self, key: &Key) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    pub(super) async fn patch_pod_status(
        &self,
        key: &Key,
        patch: &serde_json::Value,
    ) -> Result<String, kube::Error> {
        patch_pod_status(&self.client, key, patch).await
    }
}

/// Whether another write may be begun for a pod: not after its binding cycle was canceled.
pub(super) fn proceed(cancel: &CancellationToken) -> Result<(), BindError> {
    match cancel.is_cancelled() {
        true => Err(BindError::canceled()),
        false => Ok(()),
    }
}

fn not_recorded(error: &kube::Error) -> BindError {
    BindError::new(format!("update pod status: {}", api_message(error)))
}

pub(super) fn log(what: &str, pod: &Key, result: Result<(), kube::Error>) {
    if let Err(error) = result
        && code(&error) != 404
    {
        tracing::warn!(%pod, error = api_message(&error), "cannot {what}");
    }
}

/// Returns the version that the write creates.
pub(super) async fn patch_pod_status(
    client: &Client,
    key: &Key,
    patch: &serde_json::Value,
) -> Result<String, kube::Error> {
    send_pod_status(client, key, &Patch::Strategic(patch)).await
}

pub(super) async fn send_pod_status(
    client: &Client,
    key: &Key,
    patch: &Patch<&serde_json::Value>,
) -> Result<String, kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let request = Request::new(api.resource_url())
        .patch_subresource("status", &key.name, &patch_params(), patch)
        .map_err(kube::Error::BuildRequest)?;
    let written: Written = client.request(request).await?;
    Ok(written.metadata.resource_version)
}

/// The fields of a write's answer that are used.
#[derive(serde::Deserialize)]
struct Written {
    metadata: WrittenMeta,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMeta {
    #[serde(default)]
    resource_version: String,
}
