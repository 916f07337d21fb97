//! Status of PodGroups.

use kube::api::DynamicObject;
use kube::core::ApiResource;

use super::*;
use crate::podgroups::{Condition, SCHEDULED};

/// Writes the conditions of groups: of each group the newest, one after the other.
pub(super) struct GroupWriter {
    resource: ApiResource,
    turns: ClaimLocks<()>,
    next: Mutex<FxHashMap<Uid, Condition>>,
}

impl Writer {
    /// The server has groups in this version.
    #[must_use]
    pub fn with_groups(mut self, resource: Option<ApiResource>) -> Self {
        let writer = |resource| GroupWriter {
            resource,
            turns: ClaimLocks::default(),
            next: Mutex::default(),
        };
        self.groups = resource.map(|resource| Arc::new(writer(resource)));
        self
    }

    /// Reports in the status of a group whether its pods were placed.
    pub(super) fn update_pod_group_status(self, group: Key, uid: Uid, condition: Condition) {
        let Some(groups) = self.groups.clone() else {
            return;
        };
        groups.next.lock().insert(uid.clone(), condition);
        self.spawn(async move |w| {
            let turn = groups.turns.of(&uid).lock_owned().await;
            let Some(condition) = groups.next.lock().remove(&uid) else {
                return;
            };
            let api = Api::namespaced_with(w.client.clone(), &group.namespace, &groups.resource);
            if let Err(error) = w.write_condition(api, &group.name, &uid, condition).await {
                tracing::warn!(%group, error = api_message(&error), "cannot tell whether its pods were placed");
            }
            drop(turn);
        });
    }

    async fn write_condition(
        &self,
        api: Api<DynamicObject>,
        name: &str,
        uid: &Uid,
        condition: Condition,
    ) -> Result<(), kube::Error> {
        let now = || rfc3339(self.clock.now());
        let condition = json!({
            "type": SCHEDULED,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": condition.observed_generation,
            "lastTransitionTime": condition.last_transition_time.unwrap_or_else(now),
        });
        let patch = json!({"metadata": {"uid": &**uid}, "status": {"conditions": [condition]}});
        let (params, patch) = (patch_params(), Patch::Strategic(&patch));
        let (mut pause, mut conflicts) = (Pause::default(), 0);
        loop {
            match api.patch_status(name, &params, &patch).await {
                Err(error) if !answered(&error) || code(&error) == 429 => pause.wait().await,
                Err(error) if code(&error) == 404 => return Ok(()),
                Err(error) if code(&error) == 409 => match api.get_metadata_opt(name).await {
                    // The server gave up after conflicts with other writes.
                    Ok(Some(group)) if group.metadata.uid.as_deref() == Some(&**uid) => {
                        if conflicts == CONFLICTS {
                            return Err(error);
                        }
                        conflicts += 1;
                        pause.wait().await;
                    }
                    // Deleted, or replaced by another one of that name.
                    Ok(_) => return Ok(()),
                    Err(_) => pause.wait().await,
                },
                outcome => return outcome.map(drop),
            }
        }
    }
}
