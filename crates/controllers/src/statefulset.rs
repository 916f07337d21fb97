//! StatefulSets: pods with stable names and volumes, started and replaced in order.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use serde_json::{Value, json};

use crate::Error;
use crate::kit::api::{self, Delete};
use crate::kit::clock::Clock;
use crate::kit::context::Context;
use crate::kit::informer::{Informer, Key};
use crate::kit::meta;
use crate::kit::queue::{Next, Queue};
use crate::kit::whole::Whole;
use crate::registry::Task;
use crate::workload::revision::{History, REVISION_HASH, Revision, data_of, hash_of};
use crate::workload::sets::{PodSet, Sets};
use crate::workload::{
    self, BY_CONTROLLER, PodControl, controller_uid, pod_from_template, write_status,
};

use plan::{Action, Member, Rules};

type Object = Whole<StatefulSet>;

struct StatefulSets {
    control: PodControl,
    sets: Informer<Object>,
    revisions: Informer<Revision>,
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
    let this = Arc::new(StatefulSets {
        control,
        sets,
        revisions,
        clock,
        queue,
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

/// A pod by its ordinal; `None` if its name is not one of the set's.
fn ordinal_of(set: &str, pod: &str) -> Option<i32> {
    let number = pod.strip_prefix(set)?.strip_prefix('-')?;
    // "07" or "+7" is not a name that the controller makes.
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
        workload::claim(
            &self.control.client,
            &**set,
            &spec.selector,
            &self.control.pods,
        )
        .await?;
        let data = data_of(set.at("/spec/template"));
        let mut history = History::of(&self.revisions, meta::uid(&*set));
        let collisions = set
            .status
            .as_ref()
            .and_then(|s| s.collision_count)
            .unwrap_or(0);
        let labels = set.at("/spec/template/metadata/labels");
        let (update, collisions) = history
            .current(
                &self.control.client,
                &self.revisions,
                &**set,
                labels,
                &data,
                collisions,
            )
            .await?;
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

        let rules = Rules::new(&spec, hash_of(&*current), hash_of(&*update));
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
        if collisions > 0 {
            status["collisionCount"] = json!(collisions);
        }
        let api: Api<Object> = Api::namespaced(self.control.client.clone(), meta::namespace(&*set));
        write_status(&api, &self.sets, &*set, set.at("/status"), status).await?;

        let limit = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(10);
        let in_use = |r: &Revision| {
            [&current, &update]
                .iter()
                .any(|x| meta::name(&***x) == meta::name(r))
                || members.iter().any(|m| m.revision == hash_of(r))
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
        for action in plan::actions(rules, &members) {
            match action {
                Action::Create { ordinal, updated } => {
                    let revision = if updated { update } else { current };
                    self.create(set, spec, ordinal, revision).await?;
                }
                Action::Delete(ordinal) => {
                    if let Some(pod) = by_ordinal.get(&ordinal) {
                        self.control.delete(&**set, pod).await?;
                    }
                }
            }
        }
        self.retire_volumes(set, spec, rules, &members).await
    }

    async fn create(
        &self,
        set: &Object,
        spec: &StatefulSetSpec,
        ordinal: i32,
        revision: &Revision,
    ) -> Result<(), Error> {
        self.ensure_volumes(set, spec, ordinal).await?;
        let pod = new_pod(set, spec, ordinal, revision);
        match self.control.create(&**set, &pod).await {
            Ok(_) => Ok(()),
            // The old pod of that name is not gone yet, or somebody else's is in the way.
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn ensure_volumes(
        &self,
        set: &Object,
        spec: &StatefulSetSpec,
        ordinal: i32,
    ) -> Result<(), Error> {
        let templates = set
            .at("/spec/volumeClaimTemplates")
            .as_array()
            .cloned()
            .unwrap_or_default();
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.control.client.clone(), meta::namespace(set));
        for mut claim in templates {
            let base = claim["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            claim["apiVersion"] = json!("v1");
            claim["kind"] = json!("PersistentVolumeClaim");
            claim["metadata"]["name"] = json!(format!("{base}-{}-{ordinal}", meta::name(set)));
            claim["metadata"]["namespace"] = json!(meta::namespace(set));
            for (key, value) in spec.selector.match_labels.iter().flatten() {
                claim["metadata"]["labels"][key.as_str()] = json!(value);
            }
            if deletes_volumes(spec, |p| p.when_deleted.as_deref()) {
                claim["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "apps/v1", "kind": "StatefulSet",
                    "name": meta::name(set), "uid": meta::uid(set), "controller": true,
                }]);
            }
            if let Some(object) = claim.as_object_mut() {
                object.remove("status");
            }
            match api::create(&self.control.client, &api, &claim).await {
                Ok(_) => {}
                Err(error) if error.is_already_exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes the volumes of ordinals that were scaled away, if the policy says so.
    async fn retire_volumes(
        &self,
        set: &Object,
        spec: &StatefulSetSpec,
        rules: &Rules,
        members: &[Member],
    ) -> Result<(), Error> {
        if !deletes_volumes(spec, |p| p.when_scaled.as_deref()) {
            return Ok(());
        }
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.control.client.clone(), meta::namespace(set));
        for member in members
            .iter()
            .filter(|m| !rules.wants(m.ordinal) && m.deleting)
        {
            for claim in spec.volume_claim_templates.iter().flatten() {
                let name = format!("{}-{}", meta::name(claim), meta::name(&*member.pod));
                if let Some(found) = api::get(&api, &name).await? {
                    api::delete(&api, &name, meta::uid(&found), Delete::default()).await?;
                }
            }
        }
        Ok(())
    }
}

type Retention = k8s_openapi::api::apps::v1::StatefulSetPersistentVolumeClaimRetentionPolicy;

fn deletes_volumes(spec: &StatefulSetSpec, when: impl Fn(&Retention) -> Option<&str>) -> bool {
    let policy = spec.persistent_volume_claim_retention_policy.as_ref();
    policy
        .and_then(|p| when(p).map(|w| w == "Delete"))
        .unwrap_or(false)
}

fn new_pod(set: &Object, spec: &StatefulSetSpec, ordinal: i32, revision: &Revision) -> Value {
    let template = match revision.at("/data/spec/template") {
        Value::Null => set.at("/spec/template"),
        template => template,
    };
    let mut pod = pod_from_template(
        template,
        meta::namespace(set),
        "",
        meta::controller_ref(&**set),
    );
    let name = format!("{}-{ordinal}", meta::name(set));
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("generateName");
    }
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["labels"][REVISION_HASH] = json!(hash_of(revision));
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
