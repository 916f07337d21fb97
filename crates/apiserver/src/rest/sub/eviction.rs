//! `pods/eviction`: delete a pod if its disruption budget allows it.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, Path};
use allot_apimachinery::gvk::{GroupKind, GroupResource};
use allot_apimachinery::labels::LabelSelector;
use allot_apimachinery::status::{Cause, Details};
use allot_apimachinery::well_known::is_terminal_phase;
use allot_store::{Entry, Error as StoreError, Expect, ListOptions, Write};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::success;
use crate::admission::Operation;
use crate::body::Body;
use crate::context::Call;
use crate::error::{ApiError, Result};
use crate::object::{self, child_mut, meta, string_map, text};
use crate::request::{DeleteOptions, Part, Query};
use crate::rest::delete::check_preconditions;
use crate::rest::options::parse_delete_options;
use crate::rest::stored::Stored;
use crate::storage;

const BUDGETS: &str = "policy/poddisruptionbudgets";
const RETRY_SECONDS: i32 = 10;
/// How often is tried again what others change at the same time.
const ATTEMPTS: usize = 20;
/// More evictions than these are not under way, as far as the budget's controller has noticed.
const MAX_DISRUPTED: usize = 2000;

/// The body as an eviction of `policy/v1`. Clients may still send v1beta1, which has the same form.
fn in_first_version(body: &Bytes) -> Bytes {
    match serde_json::from_slice::<Value>(body) {
        Ok(mut eviction) if eviction["apiVersion"] == "policy/v1beta1" => {
            eviction["apiVersion"] = "policy/v1".into();
            eviction.to_string().into()
        }
        _ => body.clone(),
    }
}

pub(super) async fn create(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let body = in_first_version(&body);
    let mut eviction = call.object_of(&body, "policy/v1", "Eviction")?;
    call.check_namespace(&mut eviction)?;
    call.admit_sent(Operation::Create, &mut eviction).await?;
    if meta(&eviction, "name") != call.name() {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    const UNREADABLE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if eviction["deleteOptions"][UNREADABLE] == true {
        let at = Path::new("deleteOptions").child(UNREADABLE);
        let detail = "can not be set for pod eviction, try after removing the option";
        let error = Error::invalid(&at, true, detail);
        let kind = GroupKind::new("policy", "Eviction");
        return Err(Status::invalid(&kind, call.name(), &[error].into()).into());
    }
    let mut options = match &eviction["deleteOptions"] {
        Value::Null => DeleteOptions::default(),
        options => {
            let mut options = options.clone();
            options["kind"] = "DeleteOptions".into();
            let parsed = parse_delete_options(options.to_string().as_bytes(), &Query::default());
            match parsed {
                Ok(options) => options,
                // They are checked when the pod is deleted.
                Err(error) => {
                    let found = call.core.backend.get("pods", &call.key()?).await?;
                    return Err(found.map_or_else(|| call.not_found(), |_| error));
                }
            }
        }
    };
    options.dry_run |= call.dry_run;
    let asked = options.preconditions.resource_version.is_some();
    let wanted = options.preconditions.uid.clone();
    for _ in 0..ATTEMPTS {
        let found = call.core.backend.get("pods", &call.key()?).await?;
        let entry = found.ok_or_else(|| call.not_found())?;
        let pod: Value = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
        let version = entry.revision.to_string();
        if !ignores_budget(&pod) {
            evict_guarded(&call, &pod, version, options).await?;
            return Ok(success(&call));
        }
        let mut options = options.clone();
        if !asked && !has_ended(&pod) {
            // It may get ready at any time, and then its budget counts it.
            options.preconditions.resource_version = Some(version);
        }
        match evict(&call, options).await {
            // Another pod stays another one.
            Err(error) if wanted.as_ref().is_some_and(|uid| uid != meta(&pod, "uid")) => {
                return Err(error);
            }
            Err(error) if error.code() == 409 && !asked => {}
            result => return result.map(|()| success(&call)),
        }
    }
    Err(call.modified())
}

/// Evicts a pod if its PodDisruptionBudget permits it.
async fn evict_guarded(
    call: &Call<'_>,
    pod: &Value,
    version: String,
    mut options: DeleteOptions,
) -> Result<()> {
    let Some(budget) = Budget::of(call, pod).await? else {
        return evict(call, options).await;
    };
    if is_ready(pod) || !budget.lets_unhealthy_go() {
        budget.use_up(call, options.dry_run).await?;
        return evict(call, options).await;
    }
    // Only as it was seen: ready, it would count.
    let asked = options.preconditions.resource_version.is_some();
    options
        .preconditions
        .resource_version
        .get_or_insert(version);
    match evict(call, options).await {
        Err(error) if error.code() == 409 && !asked => Err(budget.being_processed()),
        result => result,
    }
}

/// Sets the pod's DisruptionTarget condition, and deletes it.
async fn evict(call: &Call<'_>, mut options: DeleteOptions) -> Result<()> {
    if !options.dry_run {
        let marked = call.modify(Part::Sub, |pod| {
            check_preconditions(&call.resource, call.name(), pod, &options.preconditions)?;
            Ok(disrupted(pod))
        });
        if let Stored::Entry(entry) = marked.await?
            && let Some(version) = &mut options.preconditions.resource_version
        {
            *version = entry.revision.to_string();
        }
    }
    call.delete_one(call.name(), call.namespace(), &options)
        .await?;
    Ok(())
}

/// The pod with the DisruptionTarget condition.
fn disrupted(pod: &Value) -> Value {
    let mut pod = pod.clone();
    object::metadata_mut(&mut pod).remove("resourceVersion");
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": object::now(),
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    object::set_condition(&mut pod, condition);
    pod
}

/// Pods that have finished, have not started, or are being deleted do not count for budgets.
fn ignores_budget(pod: &Value) -> bool {
    has_ended(pod) || text(pod, &["status", "phase"]) == "Pending"
}

fn has_ended(pod: &Value) -> bool {
    is_terminal_phase(text(pod, &["status", "phase"]))
        || pod["metadata"]["deletionTimestamp"].is_string()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// The one budget of a pod, as it is stored.
struct Budget {
    entry: Arc<Entry>,
    object: Value,
}

impl Budget {
    /// # Errors
    /// When more than one selects the pod.
    async fn of(call: &Call<'_>, pod: &Value) -> Result<Option<Self>> {
        let prefix = format!("{}/", call.namespace());
        let options = ListOptions {
            prefix: &prefix,
            ..ListOptions::default()
        };
        let page = call.core.backend.list(BUDGETS, options).await?;
        let labels = string_map(&pod["metadata"]["labels"]);
        let mut budgets = page.entries.into_iter().filter_map(|entry| {
            let object: Value = serde_json::from_slice(&entry.value).ok()?;
            let selector = LabelSelector::from_json(&object["spec"]["selector"])
                .and_then(|it| it.to_selector())
                .ok()?;
            selector
                .matches(&labels)
                .then_some(Budget { entry, object })
        });
        let first = budgets.next();
        if budgets.next().is_some() {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::failure(500, "", message).into());
        }
        Ok(first)
    }

    fn name(&self) -> &str {
        meta(&self.object, "name")
    }

    /// A number of the status.
    fn number(&self, field: &str) -> i64 {
        self.object["status"][field].as_i64().unwrap_or(0)
    }

    /// Whether an unhealthy pod may be evicted without being counted (KEP-3017).
    fn lets_unhealthy_go(&self) -> bool {
        let wanted = self.number("desiredHealthy");
        text(&self.object, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
            || wanted > 0 && self.number("currentHealthy") >= wanted
    }

    /// Takes one disruption off the budget, and notes the pod so that its controller expects its end.
    async fn use_up(mut self, call: &Call<'_>, dry_run: bool) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let draft = self.with_one_less(call.name())?;
            if dry_run {
                return Ok(());
            }
            let (key, seen) = (
                self.entry.key.clone(),
                Expect::Revision(self.entry.revision),
            );
            let write = Write::put(BUDGETS, key.clone(), seen, storage::draft(&draft));
            match call.core.backend.commit(write).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict(_) | StoreError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
            match call.core.backend.get(BUDGETS, &key).await? {
                Some(entry) => {
                    self.object = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
                    self.entry = entry;
                }
                None => return Ok(()),
            }
        }
        Err(self.being_processed())
    }

    fn with_one_less(&self, pod: &str) -> Result<Value> {
        let generation = self.object["metadata"]["generation"].as_i64().unwrap_or(0);
        if self.number("observedGeneration") < generation {
            return Err(self.being_processed());
        }
        let forbidden = |why: &str| {
            let kind = GroupResource::new("policy", "poddisruptionbudget");
            Err(Status::forbidden(&kind, self.name(), why).into())
        };
        let allowed = self.number("disruptionsAllowed");
        if allowed < 0 {
            return forbidden("pdb disruptions allowed is negative");
        }
        let disrupted = self.object["status"]["disruptedPods"].as_object();
        if disrupted.is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
            return forbidden(
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            );
        }
        if allowed == 0 {
            return Err(too_many(self.why_none(), 0));
        }
        let mut budget = self.object.clone();
        let status = child_mut(&mut budget, "status");
        status.insert("disruptionsAllowed".to_owned(), (allowed - 1).into());
        if allowed == 1 {
            let condition = json!({
                "type": "DisruptionAllowed", "status": "False", "observedGeneration": self.number("observedGeneration"),
                "lastTransitionTime": object::now(), "reason": "InsufficientPods", "message": "",
            });
            object::set_condition(&mut budget, condition);
        }
        child_mut(&mut budget["status"], "disruptedPods")
            .insert(pod.to_owned(), object::now().into());
        Ok(budget)
    }

    /// The reason why no pod can be evicted now.
    fn why_none(&self) -> String {
        let name = self.name();
        let conditions = self.object["status"]["conditions"].as_array();
        let refusal = conditions.into_iter().flatten().find(|it| {
            it["type"] == "DisruptionAllowed" && it["status"] == "False" && it["message"] != ""
        });
        let (reason, message) = match refusal {
            Some(it) => (text(it, &["reason"]), text(it, &["message"])),
            None => ("", ""),
        };
        let (wanted, healthy) = (self.number("desiredHealthy"), self.number("currentHealthy"));
        if reason == "SyncFailed" {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        } else if healthy <= wanted {
            format!(
                "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
            )
        } else if refusal.is_some() {
            format!(
                "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
            )
        } else {
            format!("The disruption budget {name} does not allow evicting pods currently")
        }
    }

    fn being_processed(&self) -> ApiError {
        let name = self.name();
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        too_many(cause, RETRY_SECONDS)
    }
}

fn too_many(cause: String, retry_after_seconds: i32) -> ApiError {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = Status::failure(429, "TooManyRequests", message);
    let cause = Cause {
        reason: "DisruptionBudget".to_owned(),
        message: cause,
        field: String::new(),
    };
    status.details = Some(Box::new(Details {
        causes: vec![cause],
        retry_after_seconds,
        ..Details::default()
    }));
    status.into()
}
