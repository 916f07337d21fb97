//! What must hold after every write, and what must hold once everything has settled.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::api::{State, devices_of};
use super::world::CPU;

/// For whom a claim is reserved, by UID.
pub fn reserved_for(claim: &Value) -> impl Iterator<Item = &str> {
    claim["status"]["reservedFor"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|r| r["uid"].as_str())
}

/// What the API server's validation says about a claim: reservations need an allocation, and an allocation does not
/// change except by going away.
pub fn allow(collection: &str, _: bool, old: &Value, new: &Value) -> bool {
    if collection != "resourceclaims" {
        return true;
    }
    let (before, after) = (&old["status"]["allocation"], &new["status"]["allocation"]);
    let reserved = reserved_for(new).next().is_some();
    (before.is_null() || after.is_null() || before == after) && (!reserved || !after.is_null())
}

/// Whether a pod ran to its end.
pub fn is_finished(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

/// The claims of a pod: names of objects, as far as they are known.
pub fn claims_of(pod: &Value) -> Vec<Option<String>> {
    let entries = pod["spec"]["resourceClaims"]
        .as_array()
        .into_iter()
        .flatten();
    let statuses = pod["status"]["resourceClaimStatuses"].as_array();
    entries
        .map(|entry| {
            let generated = || {
                let mut known = statuses.into_iter().flatten();
                known
                    .find(|s| s["name"] == entry["name"])
                    .map(|s| &s["resourceClaimName"])
            };
            let direct = Some(&entry["resourceClaimName"]).filter(|n| !n.is_null());
            direct
                .or_else(generated)
                .and_then(|n| n.as_str())
                .map(str::to_owned)
        })
        .collect()
}

/// Whether the conditions of a claim's devices are true.
fn is_ready(claim: &Value) -> bool {
    let list = |v: &'_ Value| v.as_array().cloned().unwrap_or_default();
    let results = list(&claim["status"]["allocation"]["devices"]["results"]);
    let reports = list(&claim["status"]["devices"]);
    results.iter().all(|result| {
        let report = reports.iter().find(|r| r["device"] == result["device"]);
        let conditions = report.map(|r| list(&r["conditions"])).unwrap_or_default();
        let is_true = |name| {
            conditions
                .iter()
                .any(|c| c["type"] == name && c["status"] == "True")
        };
        list(&result["bindingConditions"])
            .iter()
            .all(|name| is_true(name.clone()))
    })
}

fn find_claim<'a>(s: &'a State, pod: &Value, name: &str) -> Option<&'a Value> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    s.objects
        .get(&("resourceclaims".to_owned(), format!("{namespace}/{name}")))
}

/// What is wrong with a pod on a node, which needs every claim allocated there and reserved for it.
fn broken_pod(s: &State, pod: &Value) -> Option<String> {
    let node = pod["spec"]["nodeName"].as_str()?;
    if is_finished(pod) {
        return None;
    }
    let name = &pod["metadata"]["name"];
    for claim in claims_of(pod) {
        let Some(claim) = claim.and_then(|c| find_claim(s, pod, &c)) else {
            return Some(format!("pod {name} runs without one of its claims"));
        };
        let reserved = reserved_for(claim).any(|uid| pod["metadata"]["uid"] == *uid);
        if !is_ready(claim) {
            return Some(format!(
                "pod {name} runs with a device that is not ready: {claim}"
            ));
        }
        let local = devices_of(claim).all(|d| d.starts_with(&format!("{node}-")));
        if !reserved || !local || devices_of(claim).next().is_none() {
            return Some(format!("pod {name} runs on {node} with claim {claim}"));
        }
    }
    None
}

/// A device that two claims hold; of these only the ones that `counts` takes into account.
fn held_twice(s: &State, counts: impl Fn(&Value) -> bool) -> Option<String> {
    let mut held: BTreeMap<&str, &str> = BTreeMap::new();
    let claims = s.objects.iter().filter(|((c, _), _)| c == "resourceclaims");
    for ((_, name), claim) in claims.filter(|(_, claim)| counts(claim)) {
        for device in devices_of(claim) {
            if let Some(other) = held.insert(device, name) {
                return Some(format!("{device} is in {other} and in {name}"));
            }
        }
    }
    None
}

/// UIDs of the pods that run, or are about to.
fn placed(s: &State) -> BTreeSet<&str> {
    let pods = s.objects.iter().filter(|((c, _), _)| c == "pods");
    pods.filter(|(_, pod)| pod["spec"]["nodeName"].is_string() && !is_finished(pod))
        .filter_map(|(_, pod)| pod["metadata"]["uid"].as_str())
        .collect()
}

/// The first invariant that does not hold.
pub fn broken(s: &State) -> Option<String> {
    held_twice(s, |_| true).or_else(|| broken_object(s))
}

/// As [`broken`], where schedulers know nothing of each other, or of requests of their predecessors: two claims may hold
/// a device for a moment, but not for two pods.
pub fn broken_among_rivals(s: &State) -> Option<String> {
    let placed = placed(s);
    let serves = |claim: &Value| reserved_for(claim).any(|uid| placed.contains(uid));
    held_twice(s, serves).or_else(|| broken_object(s))
}

fn broken_object(s: &State) -> Option<String> {
    for ((collection, name), object) in &s.objects {
        if collection == "pods"
            && let Some(broken) = broken_pod(s, object)
        {
            return Some(broken);
        }
        if collection != "resourceclaims" {
            continue;
        }
        if let Some(uid) = reserved_for(object).find(|uid| !s.born.contains(*uid)) {
            return Some(format!(
                "{name} is reserved for {uid}, which never was a pod"
            ));
        }
        let protected = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|f| !f.is_empty());
        if devices_of(object).next().is_some() && !protected {
            return Some(format!("{name} is allocated without a finalizer"));
        }
    }
    None
}

/// Taints of devices by name, from slices and rules.
fn tainted(s: &State, effects: &[&str]) -> BTreeSet<String> {
    let hits = |taint: &Value| effects.iter().any(|e| taint["effect"] == **e);
    let mut found = BTreeSet::new();
    for ((collection, _), object) in &s.objects {
        match collection.as_str() {
            "resourceslices" => {
                let devices = object["spec"]["devices"].as_array().into_iter().flatten();
                let bad =
                    devices.filter(|d| d["taints"].as_array().is_some_and(|t| t.iter().any(hits)));
                found.extend(bad.filter_map(|d| d["name"].as_str()).map(str::to_owned));
            }
            "devicetaintrules" if hits(&object["spec"]["taint"]) => {
                let device = &object["spec"]["deviceSelector"]["device"];
                found.extend(device.as_str().map(str::to_owned));
            }
            _ => {}
        }
    }
    found
}

/// Processor time that a pod asks for, in thousandths.
fn cpu(pod: &Value) -> u64 {
    let text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str();
    let digits = text.and_then(|t| t.strip_suffix('m'));
    digits.and_then(|d| d.parse().ok()).unwrap_or(0)
}

/// Whether a node has room for a pod beside those that it may not drive away.
fn has_cpu(pods: &[&Value], node: usize, pod: &Value) -> bool {
    let priority = |p: &Value| p["spec"]["priority"].as_u64();
    let there = pods.iter().filter(|p| {
        p["spec"]["nodeName"] == format!("n{node}")
            && !is_finished(p)
            && priority(p) >= priority(pod)
    });
    there.map(|p| cpu(p)).sum::<u64>() + cpu(pod) <= CPU
}

/// What is wrong once nothing happens any more: somebody waits although there is room, somebody should have been
/// evicted, or something is held by nobody.
pub fn unsettled(s: &State, nodes: usize, devices: usize) -> Option<String> {
    // A claim that is being deleted keeps its pod from being tried, and what it holds, until that pod is gone.
    if let Some(twice) = held_twice(s, |claim| claim["metadata"]["deletionTimestamp"].is_null()) {
        return Some(twice);
    }
    let of = |kind: &'static str| s.objects.iter().filter(move |((c, _), _)| c == kind);
    let (claims, pods): (Vec<&Value>, Vec<&Value>) = (
        of("resourceclaims").map(|(_, o)| o).collect(),
        of("pods").map(|(_, o)| o).collect(),
    );
    let alive: BTreeSet<&str> = pods
        .iter()
        .filter(|p| !is_finished(p))
        .filter_map(|p| p["metadata"]["uid"].as_str())
        .collect();
    for claim in &claims {
        let name = &claim["metadata"]["name"];
        if let Some(uid) = reserved_for(claim).find(|uid| !alive.contains(uid)) {
            return Some(format!("{name} is still reserved for {uid}"));
        }
        if devices_of(claim).next().is_some() && reserved_for(claim).next().is_none() {
            return Some(format!("{name} holds devices for nobody"));
        }
        if !claim["metadata"]["deletionTimestamp"].is_null() && reserved_for(claim).next().is_none()
        {
            return Some(format!("{name} is not let go"));
        }
    }
    let out = tainted(s, &["NoExecute"]);
    let closed = tainted(s, &["NoExecute", "NoSchedule"]);
    let used: BTreeSet<&str> = claims.iter().flat_map(|c| devices_of(c)).collect();
    let free = |node: usize| {
        let names = (0..devices).map(|d| format!("n{node}-{d}"));
        names
            .filter(|d| !used.contains(d.as_str()) && !closed.contains(d))
            .count()
    };
    for pod in &pods {
        let name = &pod["metadata"]["name"];
        let mine: Vec<Option<&Value>> = claims_of(pod)
            .iter()
            .map(|c| find_claim(s, pod, c.as_ref()?))
            .collect();
        if pod["spec"]["nodeName"].is_string() {
            let hit = mine
                .iter()
                .flatten()
                .flat_map(|c| devices_of(c))
                .find(|d| out.contains(*d));
            match hit.filter(|_| !is_finished(pod)) {
                Some(device) => return Some(format!("{name} still runs with {device}")),
                None => continue,
            }
        }
        let templated = pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"].is_string();
        let Some(claim) = mine.first() else {
            if (0..nodes).any(|n| has_cpu(&pods, n, pod)) {
                return Some(format!("{name} needs no device and waits"));
            }
            continue;
        };
        let Some(claim) = claim else {
            if templated {
                return Some(format!("{name} has no claim"));
            }
            continue;
        };
        if !claim["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let wanted = claim["spec"]["devices"]["requests"][0]["exactly"]["count"].as_u64();
        let wanted = wanted.unwrap_or(1) as usize;
        let allocated = devices_of(claim).next().is_some();
        if allocated || (0..nodes).any(|n| free(n) >= wanted) {
            return Some(format!(
                "{name} waits although there is what it needs: {claim}"
            ));
        }
    }
    None
}
