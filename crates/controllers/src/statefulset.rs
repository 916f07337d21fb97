//! StatefulSets: pods with stable names and volumes, started and replaced in order.

mod plan;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Delete};
use crate::controller::clock::Clock;
use crate::controller::context::{Context, Task};
use crate::controller::events::{Level, reference};
use crate::controller::informer::{Informer, Key};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::workload::revision::{History, REVISION_HASH, Revision, SET_REVISION_HASH, hash_of};
use crate::workload::sets::{PodSet, Sets};
use crate::workload::{BY_CONTROLLER, PodControl, controller_uid, pod_from_template, write_status};

use plan::{Action, Member, Rules};
use volumes::Volumes;

type Object = Whole<StatefulSet>;

struct StatefulSets {
    control: PodControl,
    sets: Informer<Object>,
    revisions: Informer<Revision>,
    volumes: Volumes,
    clock: Clock,
    queue: Queue<Key>,
}

impl PodSet for Object {
    const KIND: &'static str = "StatefulSet";

    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.as_ref().map(|s| &s.selector)
    }

    fn adopts(&self, pod: &Pod) -> bool {
        ordinal_of(meta::name(self), meta::name(pod)).is_some()
            && self
                .selector()
                .is_some_and(|s| meta::selects(s, pod.metadata.labels.as_ref()))
    }
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let revisions = context.informer::<Revision>();
    revisions.index(BY_CONTROLLER, controller_uid);
    let Sets {
        control,
        sets,
        clock,
        queue,
    } = Sets::new(context, "statefulset-controller", "statefulset");
    let volumes = Volumes {
        client: control.client.clone(),
        claims: context.informer::<PersistentVolumeClaim>(),
        events: control.events.clone(),
    };
    let this = Arc::new(StatefulSets {
        control,
        sets,
        revisions,
        volumes,
        clock,
        queue,
    });
    let queue = this.queue.clone();
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

/// A pod by its ordinal; `None` if its name is not one of the set's.
fn ordinal_of(set: &str, pod: &str) -> Option<i32> {
    let number = pod.strip_prefix(set)?.strip_prefix('-')?;
    // "07" or "+7" is not a name that the controller generates.
    let parsed: i32 = number.parse().ok()?;
    (parsed.to_string() == number).then_some(parsed)
}

impl StatefulSets {
    fn members(&self, set: &Object, min_ready: i32) -> Vec<Member> {
        let now = self.clock.now();
        let pods = self.control.pods.by_index(BY_CONTROLLER, meta::uid(set));
        let mut members: Vec<Member> = pods
            .into_iter()
            .filter_map(|pod| {
                let ordinal = ordinal_of(meta::name(set), meta::name(&*pod))?;
                let available = meta::is_available(&pod, min_ready, now);
                Some(Member {
                    ordinal,
                    revision: hash_of(&*pod).to_owned(),
                    deleting: meta::deleting(&*pod),
                    finished: meta::is_finished(&pod),
                    running: meta::phase(&pod) == "Running",
                    ready: meta::is_ready(&pod) && meta::phase(&pod) == "Running",
                    available: available.is_ok() && meta::phase(&pod) == "Running",
                    wait: available.err().flatten(),
                    pod,
                })
            })
            .collect();
        members.sort_by_key(|m| m.ordinal);
        members
    }

    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(set) = self.sets.get(key) else {
            return Ok(Next::Done);
        };
        let Some(spec) = set.spec.clone() else {
            return Ok(Next::Done);
        };
        if meta::is_empty_selector(&spec.selector) || meta::deleting(&*set) {
            return Ok(Next::Done);
        }
        self.control.claim(&**set, &spec.selector).await?;
        let client = &self.control.client;
        let (history, update, collisions) =
            History::with_current(client, &self.revisions, &set, SET_REVISION_HASH).await?;
        let named = set
            .status
            .as_ref()
            .and_then(|s| s.current_revision.as_deref());
        let current = history
            .revisions
            .iter()
            .find(|r| Some(meta::name(&***r)) == named)
            .cloned()
            .unwrap_or_else(|| update.clone());

        let rules = Rules::new(&spec, meta::name(&**current), meta::name(&**update));
        let result = self.act(&set, &spec, &rules, &current, &update).await;
        if let Err(error) = &result
            && error.is_namespace_terminating()
        {
            return Ok(Next::Done);
        }
        let members = self.members(&set, rules.min_ready);
        let mut status = plan::status(&rules, &members);
        let done = plan::is_complete(&rules, &members);
        let current_name = if done {
            meta::name(&*update)
        } else {
            meta::name(&*current)
        };
        status["currentRevision"] = json!(current_name);
        status["updateRevision"] = json!(meta::name(&*update));
        status["observedGeneration"] = json!(meta::generation(&*set));
        if done {
            status["currentReplicas"] = status["updatedReplicas"].clone();
        }
        status["collisionCount"] = json!(collisions);
        let api: Api<Object> = Api::namespaced(self.control.client.clone(), meta::namespace(&*set));
        write_status(&api, &self.sets, &*set, set.at("/status"), status).await?;

        let limit = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(10);
        let in_use = |r: &Revision| {
            [&current, &update]
                .iter()
                .any(|x| meta::name(&***x) == meta::name(r))
                || members.iter().any(|m| m.revision == meta::name(r))
        };
        history
            .prune(
                &self.control.client,
                &self.revisions,
                meta::namespace(&*set),
                in_use,
                limit,
            )
            .await?;
        result?;
        Ok(members
            .iter()
            .filter_map(|m| m.wait)
            .min()
            .map_or(Next::Done, Next::After))
    }

    async fn act(
        &self,
        set: &Object,
        spec: &StatefulSetSpec,
        rules: &Rules,
        current: &Revision,
        update: &Revision,
    ) -> Result<(), Error> {
        let members = self.members(set, rules.min_ready);
        let by_ordinal: BTreeMap<i32, &Arc<Pod>> =
            members.iter().map(|m| (m.ordinal, &m.pod)).collect();
        for member in &members {
            let wanted = rules.wants(member.ordinal);
            self.volumes.follow(set, &member.pod, wanted).await?;
        }
        for action in plan::actions(rules, &members) {
            match action {
                Action::Create { ordinal, updated } => {
                    let revision = if updated { update } else { current };
                    self.create(set, spec, ordinal, revision).await?;
                }
                Action::Delete(ordinal) => {
                    let Some(pod) = by_ordinal.get(&ordinal) else {
                        continue;
                    };
                    let pods: Api<Pod> =
                        Api::namespaced(self.control.client.clone(), meta::namespace(set));
                    let deleted =
                        api::delete_cached(&self.control.pods, &pods, pod, Delete::default()).await;
                    self.record_event(set, Done::Delete, meta::name(&***pod), &deleted);
                    deleted?;
                }
            }
        }
        Ok(())
    }

    /// Records an event about an action on a pod.
    fn record_event<T>(&self, set: &Object, done: Done, pod: &str, result: &Result<T, Error>) {
        let error = result.as_ref().err().map(ToString::to_string);
        let (level, reason) = match error {
            None => (Level::Normal, done.reasons()[0]),
            Some(_) => (Level::Warning, done.reasons()[1]),
        };
        let message = done.message(pod, meta::name(set), error.as_deref());
        let events = &self.control.events;
        events.event(reference(&**set), level, reason, message);
    }

    async fn create(
        &self,
        set: &Object,
        spec: &StatefulSetSpec,
        ordinal: i32,
        revision: &Revision,
    ) -> Result<(), Error> {
        let name = format!("{}-{ordinal}", meta::name(set));
        let volumes = self.volumes.ensure(set, ordinal).await;
        if volumes.is_err() {
            self.record_event(set, Done::Create, &name, &volumes);
        }
        volumes?;
        let pod = new_pod(set, spec, ordinal, revision);
        let pods: Api<Pod> = Api::namespaced(self.control.client.clone(), meta::namespace(set));
        match api::create(&self.control.client, &pods, &pod).await {
            // The old pod of that name still exists, or one of another owner.
            Err(error) if error.is_already_exists() => Ok(()),
            created => {
                self.record_event(set, Done::Create, &name, &created);
                self.control.pods.assume(created?);
                Ok(())
            }
        }
    }
}

/// An action on a pod.
#[derive(Debug, Clone, Copy)]
enum Done {
    Create,
    Delete,
}

impl Done {
    fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }

    /// The message of an event; its verb is in lower case, as in upstream.
    fn message(self, pod: &str, set: &str, error: Option<&str>) -> String {
        let verb = self.verb();
        match error {
            None => format!("{verb} Pod {pod} in StatefulSet {set} successful"),
            Some(error) => format!("{verb} Pod {pod} in StatefulSet {set} failed error: {error}"),
        }
    }

    /// Reasons of events about success and failure.
    fn reasons(self) -> [&'static str; 2] {
        match self {
            Self::Create => ["SuccessfulCreate", "FailedCreate"],
            Self::Delete => ["SuccessfulDelete", "FailedDelete"],
        }
    }
}

fn new_pod(set: &Object, spec: &StatefulSetSpec, ordinal: i32, revision: &Revision) -> Value {
    let template = match revision.at("/data/spec/template") {
        Value::Null => set.at("/spec/template"),
        template => template,
    };
    let mut pod = pod_from_template(
        template,
        meta::namespace(set),
        &format!("{}-", meta::name(set)),
        meta::controller_ref(&**set),
    );
    let name = format!("{}-{ordinal}", meta::name(set));
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["labels"][REVISION_HASH] = json!(meta::name(revision));
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
    pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    pod["spec"]["hostname"] = json!(name);
    if let Some(service) = spec.service_name.as_deref().filter(|s| !s.is_empty()) {
        pod["spec"]["subdomain"] = json!(service);
    }
    let templates = spec.volume_claim_templates.as_deref().unwrap_or_default();
    if !templates.is_empty() {
        let mut volumes = pod["spec"]["volumes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for claim in templates {
            let volume = meta::name(claim);
            volumes.retain(|v| v["name"] != volume);
            volumes.push(json!({
                "name": volume,
                "persistentVolumeClaim": {"claimName": format!("{volume}-{name}"), "readOnly": false},
            }));
        }
        pod["spec"]["volumes"] = json!(volumes);
    }
    pod
}
