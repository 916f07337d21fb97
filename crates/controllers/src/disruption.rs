//! Status of PodDisruptionBudgets: how many pods may be taken down now.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::Error;
use crate::kit::clock::Clock;
use crate::kit::context::Context;
use crate::kit::events::{Level, Recorder, reference};
use crate::kit::informer::{Informer, Key, key_of};
use crate::kit::meta;
use crate::kit::queue::{Next, Queue};
use crate::kit::whole::Whole;
use crate::registry::Task;
use crate::workload::write_status;

const BY_NAMESPACE: &str = "namespace";

type Object = Whole<PodDisruptionBudget>;

struct Budgets {
    client: Client,
    clock: Clock,
    events: Recorder,
    budgets: Informer<Object>,
    pods: Informer<Pod>,
    queue: Queue<Key>,
}

fn namespace_of(pod: &Pod) -> Vec<String> {
    vec![meta::namespace(pod).to_owned()]
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let this = Arc::new(Budgets {
        client: context.client.clone(),
        clock: context.clock.clone(),
        events: context.events.component("controllermanager"),
        budgets: context.informer::<Object>(),
        pods: context.informer::<Pod>(),
        queue: context.queue("disruption"),
    });
    this.pods.index(BY_NAMESPACE, namespace_of);
    let queue = this.queue.clone();
    this.budgets
        .on(move |change| queue.add(key_of(&**change.object())));
    let weak = Arc::downgrade(&this);
    this.pods.on(move |change| {
        let Some(this) = weak.upgrade() else { return };
        if this.budgets.is_empty() {
            return;
        }
        let pods = change.old().into_iter().chain([change.object()]);
        for pod in pods {
            for budget in this.budgets.list() {
                let spec = budget.spec.as_ref();
                let selector = spec.and_then(|s| s.selector.as_ref());
                if meta::namespace(&*budget) == meta::namespace(&**pod)
                    && selector.is_some_and(|s| meta::selects(s, pod.metadata.labels.as_ref()))
                {
                    this.queue.add(key_of(&*budget));
                }
            }
        }
    });
    let queue = this.queue.clone();
    Box::pin(queue.run(
        context.config.workers,
        context.shutdown.clone(),
        move |key| {
            let this = this.clone();
            async move { this.sync(&key).await }
        },
    ))
}

impl Budgets {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(budget) = self.budgets.get(key) else {
            return Ok(Next::Done);
        };
        let Some(spec) = &budget.spec else {
            return Ok(Next::Done);
        };
        let namespace = meta::namespace(&*budget);
        let pods: Vec<Arc<Pod>> = self
            .pods
            .by_index(BY_NAMESPACE, namespace)
            .into_iter()
            .filter(|p| {
                spec.selector
                    .as_ref()
                    .is_some_and(|s| meta::selects(s, p.metadata.labels.as_ref()))
            })
            .collect();
        let now = self.clock.now();
        let expected = if plan::needs_scale(spec) {
            match self.expected(&pods).await {
                Ok(expected) => expected,
                Err(error) => {
                    self.events.event(
                        reference(&**budget),
                        Level::Warning,
                        "CalculateExpectedPodCountFailed",
                        format!("Failed to calculate the number of expected pods: {error}"),
                    );
                    return Err(error);
                }
            }
        } else {
            i32::try_from(pods.len()).unwrap_or(i32::MAX)
        };
        let (mut status, again) = plan::status(&budget, spec, &pods, expected, now);
        status["observedGeneration"] = json!(meta::generation(&*budget));
        let api: Api<Object> = Api::namespaced(self.client.clone(), namespace);
        write_status(&api, &self.budgets, &*budget, budget.at("/status"), status).await?;
        Ok(again.map_or(Next::Done, Next::After))
    }

    /// How many pods the controllers of these pods want in all.
    async fn expected(&self, pods: &[Arc<Pod>]) -> Result<i32, Error> {
        let mut seen: Vec<String> = Vec::new();
        let mut total = 0;
        for pod in pods {
            let Some(owner) = meta::controller_of(&pod.metadata) else {
                return Err(Error::Invalid(format!(
                    "found no controller ref for pod {:?}",
                    meta::name(&**pod)
                )));
            };
            let namespace = meta::namespace(&**pod);
            let mut owner = owner.clone();
            // A replica set may be one step of a deployment, whose size counts.
            loop {
                let Some(found) = self
                    .owner(namespace, &owner.api_version, &owner.kind, &owner.name)
                    .await?
                else {
                    break;
                };
                let above: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference> =
                    serde_json::from_value(found["metadata"]["ownerReferences"].clone())
                        .unwrap_or_default();
                match above.into_iter().find(|o| o.controller == Some(true)) {
                    Some(next)
                        if next.kind == "Deployment" && next.api_version.starts_with("apps/") =>
                    {
                        owner = next
                    }
                    _ => {
                        if !seen.contains(&owner.uid) {
                            seen.push(owner.uid.clone());
                            let replicas = found["spec"]["replicas"].as_i64();
                            let parallelism = found["spec"]["parallelism"].as_i64();
                            let wanted = replicas.or(parallelism).unwrap_or(1);
                            total += i32::try_from(wanted).unwrap_or(i32::MAX);
                        }
                        break;
                    }
                }
            }
        }
        Ok(total)
    }

    async fn owner(
        &self,
        namespace: &str,
        version: &str,
        kind: &str,
        name: &str,
    ) -> Result<Option<Value>, Error> {
        let plural = match kind {
            "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => {
                format!("{}s", kind.to_ascii_lowercase())
            }
            // Without a scale there is no number to take.
            _ => return Ok(None),
        };
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: if group.is_empty() {
                version.to_owned()
            } else {
                format!("{group}/{version}")
            },
            kind: kind.to_owned(),
            plural,
        };
        let api: Api<kube::core::DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let found = api.get_opt(name).await?;
        Ok(found.map(|o| json!(o)))
    }
}
