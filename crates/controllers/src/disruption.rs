//! Status of PodDisruptionBudgets: how many pods may be taken down now.

mod plan;
mod scale;
mod stale;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client};
use serde_json::json;

use crate::Error;
use crate::controller::clock::Clock;
use crate::controller::context::{Context, Task};
use crate::controller::events::{Level, Recorder, reference};
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::workload::write_status;

use scale::Scales;

const BY_NAMESPACE: &str = "namespace";

type Object = Whole<PodDisruptionBudget>;

struct Budgets {
    client: Client,
    clock: Clock,
    events: Recorder,
    budgets: Informer<Object>,
    pods: Informer<Pod>,
    scales: Scales,
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
        scales: Scales::new(context.client.clone()),
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
    let budgets = context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    );
    let stale = stale::build(context);
    Box::pin(async move {
        tokio::join!(budgets, stale);
    })
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
        let (normal, warning) = (Level::Normal, Level::Warning);
        if pods.is_empty() {
            self.record_event(
                &budget,
                normal,
                "NoPods",
                "No matching pods found".to_owned(),
            );
        }
        let now = self.clock.now();
        let api: Api<Object> = Api::namespaced(self.client.clone(), namespace);
        let expected = if plan::needs_scale(spec) {
            match self.scales.of(&pods).await {
                Ok((expected, unmanaged)) => {
                    if unmanaged {
                        let message = plan::unmanaged(spec);
                        self.record_event(&budget, warning, "UnmanagedPods", message);
                    }
                    expected
                }
                Err(error) => {
                    let message =
                        format!("Failed to calculate the number of expected pods: {error}");
                    self.record_event(&budget, warning, "CalculateExpectedPodCountFailed", message);
                    // Nothing is evicted while the expected number is not known.
                    let status = plan::failed(&budget, &error.to_string(), now);
                    write_status(&api, &self.budgets, &*budget, budget.at("/status"), status)
                        .await?;
                    return Ok(Next::Done);
                }
            }
        } else {
            i32::try_from(pods.len()).unwrap_or(i32::MAX)
        };
        let (mut status, again) = plan::status(&budget, spec, &pods, expected, now);
        status["observedGeneration"] = json!(meta::generation(&*budget));
        write_status(&api, &self.budgets, &*budget, budget.at("/status"), status).await?;
        Ok(again.map_or(Next::Done, Next::After))
    }

    fn record_event(&self, budget: &Object, level: Level, reason: &str, message: String) {
        self.events
            .event(reference(&**budget), level, reason, message);
    }
}
