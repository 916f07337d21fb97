//! Credentials of pods, from the secrets that they or their service accounts name.

use allot_images::{Error, Keyring, PullSecret};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, Client, ResourceExt};

use crate::events::{Kind, Recorder};

/// Most secrets that are read for one pod.
const MOST: usize = 100;

/// The credentials of a pod. Admission has added the secrets of its service account. Secrets that cannot be read are
/// left out, with an event, as in the kubelet: the image may need none.
///
/// # Errors
/// A secret whose content cannot be parsed.
pub(super) async fn keyring(
    client: &Client,
    events: &Recorder,
    pod: &Pod,
) -> Result<Keyring, Error> {
    let spec = pod.spec.iter();
    let wanted = spec.flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let wanted = wanted
        .filter(|secret| !secret.name.is_empty())
        .map(|secret| secret.name.as_str());
    let namespace = pod.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in wanted.take(MOST) {
        match api.get(name).await {
            Ok(secret) => found.push(PullSecret {
                uid: secret.uid().unwrap_or_default(),
                namespace: namespace.clone(),
                name: name.to_owned(),
                kind: secret.type_.unwrap_or_default(),
                data: secret
                    .data
                    .into_iter()
                    .flatten()
                    .map(|(key, value)| (key, value.0))
                    .collect(),
            }),
            Err(error) => {
                tracing::debug!(namespace, name, %error, "pull secret");
                missing.push(name);
            }
        }
    }
    if !missing.is_empty() {
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            missing.join(", ")
        );
        events.pod(
            pod,
            None,
            Kind::Warning,
            "FailedToRetrieveImagePullSecret",
            message,
        );
    }
    Keyring::from_secrets(&found)
}
