//! Resource quotas: a write that would use more than a namespace may use is refused.
//!
//! The usage of an object and its limits are in [`allot_model::quota`]. The amounts in use are kept in the quota's
//! `status.used` and raised here, one compare-and-swap per quota, before the object is stored; the quota controller
//! recounts from the stored objects.

mod coverage;

use allot_apimachinery::Status;
use allot_model::quota::{self, FirstClaims, Lookups, Usage};
use allot_store::{Error as StoreError, Expect, ListOptions, Write};
use serde_json::{Value, json};

use super::Admission;
use super::{Attributes, Operation, forbidden};
use crate::error::{ApiError, Result};
use crate::storage;
use coverage::Coverage;

const QUOTAS: &str = "resourcequotas";
const CLASSES: &str = "resource.k8s.io/deviceclasses";
const CLAIMS: &str = "resource.k8s.io/resourceclaims";
/// Attempts when quotas change at the same time; upstream gives up after three.
const ATTEMPTS: usize = 16;

/// Kinds whose updates can use more than before.
fn counts_updates(attributes: &Attributes<'_>, object: &Value) -> bool {
    let resource = attributes.resource;
    if resource.is("", "pods") {
        let old = attributes.old.unwrap_or(&Value::Null);
        return quota::changes_scope(old, object);
    }
    resource.is("", "services")
        || resource.is("", "persistentvolumeclaims")
        || resource.is("resource.k8s.io", "resourceclaims")
}

/// Rejects the write if it exceeds a quota of its namespace, else adds it to the used amounts.
///
/// # Errors
/// 403 with the quota's name and numbers.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<()> {
    let relevant = match attributes.operation {
        Operation::Create => attributes.subresource.is_empty(),
        Operation::Update if attributes.subresource == "resize" => {
            attributes.resource.is("", "pods")
        }
        Operation::Update => {
            attributes.subresource.is_empty() && counts_updates(attributes, object)
        }
        Operation::Delete | Operation::Connect => false,
    };
    if !relevant || attributes.namespace.is_empty() || attributes.resource.is("", QUOTAS) {
        return Ok(());
    }
    let limited = &core.config.admission.limited_resources;
    let prefix = format!("{}/", attributes.namespace);
    for _ in 0..ATTEMPTS {
        let options = ListOptions {
            prefix: &prefix,
            ..ListOptions::default()
        };
        let page = core.backend.list(QUOTAS, options).await?;
        if page.entries.is_empty() && limited.is_empty() {
            return Ok(());
        }
        let change = change(core, attributes, object).await?;
        let mut coverage = Coverage::new(limited, attributes, object, &change);
        let mut concerned = Vec::new();
        for entry in &page.entries {
            // What the store holds was written by this server as JSON.
            let quota: Value = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
            coverage.add_scopes(&quota, object);
            if let Some(delta) = concerns(&quota, attributes, object, &change)? {
                coverage.add_limits(&quota, attributes, delta);
                concerned.push((entry, quota, delta));
            }
        }
        coverage.check(attributes, concerned.is_empty(), &change)?;
        let mut writes = Vec::new();
        for (entry, mut quota, delta) in concerned {
            let used = quota::admit(&quota, delta).map_err(|it| refuse(attributes, it))?;
            if let Some(used) = used {
                quota["status"]["used"] = json!(used);
                writes.push((entry.key.clone(), entry.revision, quota));
            }
        }
        if attributes.dry_run || commit(core, writes).await? {
            return Ok(());
        }
    }
    Err(Status::failure(409, "Conflict", "quotas change too fast, try again").into())
}

/// What an object will count for, and how much that is more than before.
struct Change {
    whole: Usage,
    more: Usage,
}

/// What the write adds.
async fn change(core: &Admission, attributes: &Attributes<'_>, object: &Value) -> Result<Change> {
    let (group, resource) = (&attributes.resource.group, &attributes.resource.plural);
    let mut extended = std::collections::BTreeMap::new();
    if attributes.resource.is("resource.k8s.io", "resourceclaims") {
        for entry in core
            .backend
            .list(CLASSES, ListOptions::default())
            .await?
            .entries
        {
            let class: Value = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
            if let Some(name) = class["spec"]["extendedResourceName"].as_str() {
                extended.insert(entry.key.to_string(), name.to_owned());
            }
        }
    }
    let mut owner = None;
    let mut first = FirstClaims::default();
    if attributes.resource.is("resource.k8s.io", "resourceclaims")
        && let Some(name) = quota::special_owner(object)
    {
        let key = format!("{}/{name}", attributes.namespace);
        owner = core.stored("pods", &key).await?;
        if let Some(pod) = &owner {
            first = claims_of(core, attributes.namespace, pod).await?;
            if attributes.old.is_none() {
                first.precede_new();
            }
        }
    }
    let lookups = Lookups {
        extended: &|class| extended.get(class).cloned(),
        pod: &|_| owner.clone(),
        first: &first,
    };
    let whole = quota::usage(group, resource, object, lookups);
    let mut more = whole.clone();
    if let Some(old) = attributes.old {
        for (name, before) in quota::usage(group, resource, old, lookups) {
            if let Some(entry) = more.get_mut(&name) {
                let rest = entry.checked_sub(&before).filter(|rest| rest.signum() > 0);
                *entry = rest.unwrap_or_default();
            }
        }
    }
    Ok(Change { whole, more })
}

/// The stored claims for the extended resources of a pod.
async fn claims_of(core: &Admission, namespace: &str, pod: &Value) -> Result<FirstClaims> {
    let mut first = FirstClaims::default();
    let prefix = format!("{namespace}/");
    let options = ListOptions {
        prefix: &prefix,
        ..ListOptions::default()
    };
    // Most claims are not those of the pod: no need to parse them.
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    for entry in core.backend.list(CLAIMS, options).await?.entries {
        if std::str::from_utf8(&entry.value).is_ok_and(|text| text.contains(uid)) {
            let claim: Value = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
            first.insert(&claim);
        }
    }
    Ok(first)
}

/// The refusal of a write.
fn refuse(attributes: &Attributes<'_>, exceeded: quota::Exceeded) -> ApiError {
    forbidden(attributes, &exceeded.0)
}

/// What the write adds to a quota, if the quota is about the object.
///
/// # Errors
/// 403 if the object has to state more, or it is unknown how much is in use.
fn concerns<'a>(
    quota: &Value,
    attributes: &Attributes<'_>,
    object: &Value,
    change: &'a Change,
) -> Result<Option<&'a Usage>> {
    let resource = attributes.resource;
    let is_in = |object: &Value| quota::in_scopes(quota, &resource.group, &resource.plural, object);
    if !is_in(object) {
        return Ok(None);
    }
    let refuse = |exceeded| refuse(attributes, exceeded);
    if resource.is("", "pods") {
        quota::must_specify(quota, object).map_err(refuse)?;
    }
    quota::must_be_known(quota, &resource.group, &resource.plural).map_err(refuse)?;
    // A quota that did not take in the object before gets all of it.
    Ok(Some(match attributes.old {
        Some(old) if is_in(old) => &change.more,
        _ => &change.whole,
    }))
}

/// Writes the new usage; returns whether there was no conflict. Quotas written before a conflict keep the usage, and the
/// next attempt charges it again: the recount corrects that, and until then less is permitted, never more.
async fn commit(core: &Admission, writes: Vec<(std::sync::Arc<str>, u64, Value)>) -> Result<bool> {
    for (key, revision, quota) in writes {
        let write = Write::put(
            QUOTAS,
            key,
            Expect::Revision(revision),
            storage::draft(&quota),
        );
        match core.backend.commit(write).await {
            Ok(_) => {}
            Err(StoreError::Conflict(_) | StoreError::NotFound) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
