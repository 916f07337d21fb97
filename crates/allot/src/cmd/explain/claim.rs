//! The state of a claim: its allocation, its consumers, and what its pods wait for.

use std::io::Write;

use allot_apimachinery::suggest;
use allot_scheduler::dra::claims::allocation_of;
use allot_scheduler::pod::Key;
use allot_scheduler::pod::claims::claim_key;
use serde_json::json;

use super::cluster_objects::LoadedScheduler;
use super::report::Report;
use super::{NotFound, Outcome, deletion};
use crate::cmd::some;

/// Explains a claim through the pods that use it.
///
/// # Errors
/// There is no such claim ([`NotFound`]), or a pod of it cannot be judged.
pub fn explain(
    loaded: &mut LoadedScheduler,
    namespace: &str,
    name: &str,
    out: &mut impl Write,
    json: bool,
) -> anyhow::Result<Outcome> {
    let key = Key::new(namespace, name);
    let Some(claim) = loaded.core.claims().get(&key).map(|c| (**c).clone()) else {
        if let Some(claims) = loaded.unseen("ResourceClaim", namespace) {
            anyhow::bail!("claim {key} is not shown: no right to list {claims}");
        }
        let hint = suggest::hint(name, loaded.names_of("ResourceClaim", namespace));
        return Err(NotFound(format!("there is no claim {key}{hint}")).into());
    };
    let results = allocation_of(&claim).and_then(|a| a.devices.as_ref()?.results.as_ref());
    let results = results.into_iter().flatten();
    let devices: Vec<String> = results
        .map(|r| format!("{}: {}/{}/{}", r.request, r.driver, r.pool, r.device))
        .collect();
    let reserved = loaded
        .reserved
        .get(&key.to_string())
        .cloned()
        .unwrap_or_default();
    let mut pods: Vec<(String, String)> = Vec::new();
    for (pod_key, pod) in &loaded.pods {
        let mut entries = pod.spec().resource_claims.iter().flatten();
        let uses = entries.any(|e| claim_key(pod, e).ok().flatten().as_ref() == Some(&key));
        if uses && !pod.is_finished() && pod_key.0 == namespace {
            pods.push(pod_key.clone());
        }
    }
    pods.sort();
    let is_allocated = allocation_of(&claim).is_some();
    let deleted = deletion::kept(&claim.metadata, loaded.time.wall);
    if json {
        let mut line = json!({"claim": key.to_string(), "allocated": is_allocated, "devices": devices,
            "reservedFor": reserved, "pods": pods.iter().map(|(n, p)| format!("{n}/{p}")).collect::<Vec<_>>()});
        if let Some(deleted) = &deleted {
            line["deleted"] = json!(deleted);
        }
        writeln!(out, "{line}")?;
    } else {
        match (is_allocated, reserved.is_empty()) {
            (true, false) => {
                let consumers = loaded.consumer_list(&key.to_string());
                writeln!(out, "claim {key} is allocated, for {}", some(&consumers))?;
            }
            (true, true) => match loaded.waits_for(&key.to_string()).strip_prefix(" of ") {
                Some(owner) => {
                    // A relative clause ends with a comma.
                    let comma = if owner.contains(',') { "," } else { "" };
                    writeln!(out, "claim {key} of {owner}{comma} is allocated")?;
                }
                None => writeln!(out, "claim {key} is allocated, and reserved for no pod")?,
            },
            (false, _) if pods.is_empty() && deleted.is_none() => writeln!(
                out,
                "claim {key} waits for a pod that uses it: that is when it gets its devices"
            )?,
            (false, _) => writeln!(out, "claim {key} is not allocated")?,
        }
        for device in &devices {
            writeln!(out, "    request {device}")?;
        }
        if let Some(deleted) = &deleted {
            writeln!(out, "  {deleted}")?;
        }
    }
    let mut outcome = Outcome::Fits;
    for (namespace, pod) in &pods {
        let report = Report::new(loaded, namespace, pod)?;
        report.print(out, json)?;
        outcome = outcome.max(Outcome::of(report.lacks_nothing()));
    }
    Ok(outcome)
}
