//! `pods/eviction`: delete a pod if its disruption budget allows it.

use allot_apimachinery::Status;
use allot_apimachinery::labels::LabelSelector;
use allot_apimachinery::status::{Cause, Details};
use allot_store::{Expect, ListOptions, Write};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::success;
use crate::admission::{self, Operation};
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::object::{self, child_mut, meta, string_map, text};
use crate::request::Query;
use crate::rest::{Call, DeleteOptions};
use crate::strategy::Part;

const BUDGETS: &str = "policy/poddisruptionbudgets";
const RETRY_SECONDS: i32 = 10;

pub(super) async fn create(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let mut eviction = call.object_of(&body, "policy/v1", "Eviction")?;
    if meta(&eviction, "name") != call.name() {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    admission::admit_sent(&call, Operation::Create, &mut eviction).await?;
    let entry = call
        .core
        .backend
        .get("pods", &call.key())
        .await?
        .ok_or_else(|| call.not_found())?;
    let pod: Value = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
    let mut options = match &eviction["deleteOptions"] {
        Value::Null => DeleteOptions::default(),
        options => {
            let mut options = options.clone();
            options["kind"] = "DeleteOptions".into();
            DeleteOptions::parse(options.to_string().as_bytes(), &Query::default())?
        }
    };
    options.dry_run |= call.dry_run;
    if !ignores_budget(&pod) {
        check_budgets(&call, &pod, options.dry_run).await?;
    }
    if !options.dry_run {
        call.modify(Part::Sub, |pod| Ok(disrupted(pod))).await?;
    }
    call.delete_one(call.name(), call.namespace(), &options)
        .await?;
    Ok(success(&call))
}

/// The pod with the condition that says why it goes.
fn disrupted(pod: &Value) -> Value {
    let mut pod = pod.clone();
    object::metadata_mut(&mut pod).remove("resourceVersion");
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": object::now(),
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    let conditions = child_mut(&mut pod, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if let Value::Array(list) = conditions {
        list.retain(|it| it["type"] != "DisruptionTarget");
        list.push(condition);
    }
    pod
}

/// Pods that have ended, have not started, or are on their way out disturb nobody.
fn ignores_budget(pod: &Value) -> bool {
    matches!(
        text(pod, &["status", "phase"]),
        "Succeeded" | "Failed" | "Pending"
    ) || pod["metadata"]["deletionTimestamp"].is_string()
}

async fn check_budgets(call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<()> {
    let prefix = format!("{}/", call.namespace());
    let page = call
        .core
        .backend
        .list(
            BUDGETS,
            ListOptions {
                prefix: &prefix,
                ..ListOptions::default()
            },
        )
        .await?;
    let labels = string_map(&pod["metadata"]["labels"]);
    let mut budgets = page.entries.iter().filter_map(|entry| {
        let budget: Value = serde_json::from_slice(&entry.value).ok()?;
        let selector = &budget["spec"]["selector"];
        let selector = LabelSelector::from_json(selector)
            .and_then(|it| it.to_selector())
            .ok()?;
        selector.matches(&labels).then_some((entry, budget))
    });
    let Some((entry, budget)) = budgets.next() else {
        return Ok(());
    };
    if budgets.next().is_some() {
        let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::internal(message).into());
    }
    let name = meta(&budget, "name").to_owned();
    let status = &budget["status"];
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if status["observedGeneration"].as_i64().unwrap_or(0) < generation {
        return Err(too_many(format!(
            "The disruption budget {name} is still being processed by the server."
        )));
    }
    let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
    if allowed <= 0 {
        return Err(too_many(format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            status["desiredHealthy"].as_i64().unwrap_or(0),
            status["currentHealthy"].as_i64().unwrap_or(0),
        )));
    }
    if dry_run {
        return Ok(());
    }
    let mut budget = budget;
    budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
    child_mut(&mut budget["status"], "disruptedPods")
        .insert(call.name().to_owned(), object::now().into());
    let write = Write::put(
        BUDGETS,
        entry.key.clone(),
        Expect::Revision(entry.revision),
        object::draft(&budget),
    );
    // Somebody else has changed the budget: the client tries again with what is left of it.
    call.core.backend.commit(write).await.map_err(|_| {
        too_many(format!(
            "The disruption budget {name} is still being processed by the server."
        ))
    })?;
    Ok(())
}

fn too_many(cause: String) -> ApiError {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = Status::failure(429, "TooManyRequests", message);
    let cause = Cause {
        reason: "DisruptionBudget".to_owned(),
        message: cause,
        field: String::new(),
    };
    status.details = Some(Box::new(Details {
        causes: vec![cause],
        retry_after_seconds: RETRY_SECONDS,
        ..Details::default()
    }));
    status.into()
}
