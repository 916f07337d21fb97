//! What must hold after every write, and what must hold once everything has settled.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::well_known::is_terminal_phase;
use serde_json::Value;

use super::api::{State, devices_of};
use super::cluster::CPU;
use super::ledger::{self, Left, Need, given_twice};
use super::quota;

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The UID of the pod or group that a claim was made for.
pub fn owner_of(claim: &Value) -> Option<&str> {
    claim["metadata"]["ownerReferences"][0]["uid"].as_str()
}

/// Whether a claim was made for the extended resources of a pod.
fn is_extended_resource_claim(claim: &Value) -> bool {
    claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
}

/// The claim for extended resources that a pod has, by name.
pub fn extended_resource_claim_of(pod: &Value) -> Option<&str> {
    pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str()
}

/// The UIDs in a claim's `status.reservedFor`.
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

/// Whether a pod has finished, by its phase.
pub fn is_finished(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str();
    phase.is_some_and(is_terminal_phase)
}

/// The claims of a pod or a group: names of objects, as far as they are known.
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

/// The group of a pod.
fn group_of<'a>(s: &'a State, pod: &Value) -> Option<&'a Value> {
    let group = pod["spec"]["schedulingGroup"]["podGroupName"].as_str()?;
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    s.objects
        .get(&("podgroups".to_owned(), format!("{namespace}/{group}")))
}

/// The UID that a claim at this index of a pod must be reserved for: the pod's or its group's.
fn consumer<'a>(pod: &'a Value, group: Option<&'a Value>, place: usize) -> Option<&'a str> {
    let entry = &pod["spec"]["resourceClaims"][place];
    let has = |group: &&Value| {
        let claims = group["spec"]["resourceClaims"].as_array();
        claims.into_iter().flatten().any(|c| c == entry)
    };
    let consumer = group.filter(has).unwrap_or(pod);
    consumer["metadata"]["uid"].as_str()
}

/// What is wrong with a pod on a node, which needs every claim allocated there and reserved for it.
fn broken_pod(s: &State, pod: &Value) -> Option<String> {
    let node = pod["spec"]["nodeName"].as_str()?;
    if is_finished(pod) {
        return None;
    }
    let name = &pod["metadata"]["name"];
    let group = group_of(s, pod);
    if ledger::of_pod(pod).is_some() && extended_resource_claim_of(pod).is_none() {
        return Some(format!("pod {name} runs without its extended resource"));
    }
    let mut claims = claims_of(pod);
    claims.extend(extended_resource_claim_of(pod).map(|c| Some(c.to_owned())));
    for (place, claim) in claims.iter().enumerate() {
        let Some(claim) = claim.as_ref().and_then(|c| find_claim(s, pod, c)) else {
            return Some(format!("pod {name} runs without one of its claims"));
        };
        let consumer = consumer(pod, group, place);
        let reserved = reserved_for(claim).any(|uid| Some(uid) == consumer);
        if !is_ready(claim) {
            return Some(format!(
                "pod {name} runs with a device that is not ready: {claim}"
            ));
        }
        let local = devices_of(claim).all(|d| d.starts_with(&format!("{node}-")));
        if !reserved || !local || devices_of(claim).next().is_none() {
            return Some(format!("pod {name} runs on {node} with claim {claim}"));
        }
        if claim["metadata"]["finalizers"].is_null() {
            return Some(format!("{claim} is not protected, and {name} runs"));
        }
        let own = pod["metadata"]["uid"].as_str();
        if consumer != own && reserved_for(claim).any(|uid| Some(uid) == own) {
            return Some(format!("{claim} is reserved for {name} beside its group"));
        }
    }
    None
}

/// UIDs of the pods that run, or are about to, and of their groups.
fn placed(s: &State) -> BTreeSet<&str> {
    let pods = s.objects.iter().filter(|((c, _), _)| c == "pods");
    let placed = pods
        .map(|(_, pod)| pod)
        .filter(|pod| pod["spec"]["nodeName"].is_string() && !is_finished(pod));
    placed
        .flat_map(|pod| [Some(pod), group_of(s, pod)].into_iter().flatten())
        .filter_map(|user| user["metadata"]["uid"].as_str())
        .collect()
}

/// The first invariant that does not hold.
pub fn broken(s: &State) -> Option<String> {
    given_twice(s, |_| true)
        .or_else(|| quota::exceeded(s, |_| true))
        .or_else(|| broken_object(s))
}

/// As [`broken`], where schedulers know nothing of each other, or of requests of their predecessors: two claims may hold
/// a device for a moment, but not for two pods.
pub fn broken_among_rivals(s: &State) -> Option<String> {
    let placed = placed(s);
    let serves = |claim: &Value| reserved_for(claim).any(|uid| placed.contains(uid));
    given_twice(s, serves)
        .or_else(|| quota::exceeded(s, serves))
        .or_else(|| broken_object(s))
}

/// The error of an extended resource claim, which must belong to exactly its pod.
fn broken_extended_resource_claim(s: &State, claim: &Value) -> Option<String> {
    let name = name(claim);
    let owner = owner_of(claim).filter(|uid| s.born.contains(*uid));
    if owner.is_none() || claim["metadata"]["ownerReferences"][0]["kind"] != "Pod" {
        return Some(format!("{name} is for extended resources of no pod"));
    }
    let other = reserved_for(claim).find(|uid| Some(*uid) != owner)?;
    Some(format!("{name} is for one pod, and reserved for {other}"))
}

/// What a claim was generated for: a pod or a group, and the entry of it.
fn generated_for(claim: &Value) -> Option<(&str, &str)> {
    let entry = &claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"];
    Some((owner_of(claim)?, entry.as_str()?)).filter(|_| !is_deleting(claim))
}

/// Two claims for one entry, of which one would be unused.
fn generated_twice(s: &State) -> Option<String> {
    let mut seen = BTreeSet::new();
    let claims = s.objects.iter().filter(|((c, _), _)| c == "resourceclaims");
    let mut made = claims.filter_map(|(_, claim)| generated_for(claim));
    let (owner, entry) = made.find(|made| !seen.insert(*made))?;
    Some(format!("{owner} has two claims for its entry {entry}"))
}

fn broken_object(s: &State) -> Option<String> {
    if let Some(twice) = generated_twice(s) {
        return Some(twice);
    }
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
                "{name} is reserved for {uid}, which never was a pod or a group"
            ));
        }
        if let Some(broken) =
            broken_extended_resource_claim(s, object).filter(|_| is_extended_resource_claim(object))
        {
            return Some(broken);
        }
        let protected = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|f| !f.is_empty());
        // A claim for extended resources loses it when it is taken back, just before it is deleted.
        if devices_of(object).next().is_some() && !protected && !is_extended_resource_claim(object)
        {
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

/// Whether a node has enough CPU for a pod beside the pods that it cannot preempt.
fn has_cpu(s: &State, pods: &[&Value], node: usize, pod: &Value) -> bool {
    let priority = |p: &Value| p["spec"]["priority"].as_u64();
    let group = |p: &Value| p["spec"]["schedulingGroup"]["podGroupName"].clone();
    let is_gang =
        group_of(s, pod).is_some_and(|it| !it["spec"]["schedulingPolicy"]["gang"].is_null());
    // A pod does not preempt the pods of its own gang.
    let is_mate = |p: &Value| is_gang && group(p) == group(pod);
    // Which pod of a gang takes what is free, and which one preempts for its place, is not searched.
    let mut mates = pods.iter().filter(|p| is_mate(p));
    let preempts = mates.all(|mate| priority(mate) == priority(pod));
    // A gang preempts groups that can only be disrupted as a whole by their own priority.
    let protected = |p: &Value| {
        let group = group_of(s, p).filter(|group| group["spec"]["disruptionMode"] == "PodGroup");
        group.filter(|_| is_gang).map_or(priority(p), priority)
    };
    let there = pods.iter().filter(|p| {
        p["spec"]["nodeName"] == format!("n{node}")
            && !is_finished(p)
            && (!preempts || protected(p) >= priority(pod) || is_mate(p))
    });
    there.map(|p| cpu(p)).sum::<u64>() + cpu(pod) <= CPU
}

/// Violations once all activity has ended: a pod waits although there is capacity, a pod should have been evicted, or a
/// device is allocated without a consumer.
pub fn unsettled(s: &State, nodes: usize, devices: usize) -> Option<String> {
    // A claim that is being deleted keeps its pod from being tried, and what it holds, until that pod is gone.
    if let Some(twice) = given_twice(s, |claim| !is_deleting(claim)) {
        return Some(twice);
    }
    let of = |kind: &'static str| {
        let all = s.objects.iter().filter(move |((c, _), _)| c == kind);
        all.map(|(_, o)| o).collect::<Vec<&Value>>()
    };
    let (claims, pods, groups) = (of("resourceclaims"), of("pods"), of("podgroups"));
    let alive = pods.iter().chain(&groups).filter(|p| !is_finished(p));
    let alive: BTreeSet<&str> = alive
        .filter_map(|p| p["metadata"]["uid"].as_str())
        .collect();
    let has = |pod: &Value, name: &str| claims_of(pod).iter().flatten().any(|c| c == name);
    for claim in &claims {
        let name = name(claim);
        if let Some(uid) = reserved_for(claim).find(|uid| !alive.contains(uid)) {
            return Some(format!("{name} is still reserved for {uid}"));
        }
        let idle = devices_of(claim).next().is_some() && reserved_for(claim).next().is_none();
        if idle
            && !pods
                .iter()
                .any(|pod| has(pod, name) && is_held_back(s, pod))
        {
            return Some(format!("{name} holds devices for nobody"));
        }
        if is_deleting(claim) && reserved_for(claim).next().is_none() {
            return Some(format!("{name} is not let go"));
        }
        let owner = |p: &&&Value| p["metadata"]["uid"].as_str() == owner_of(claim);
        let uses = |p: &Value| {
            p["spec"]["nodeName"].is_string() && extended_resource_claim_of(p) == Some(name)
        };
        let allocated = devices_of(claim).next().is_some();
        if is_extended_resource_claim(claim)
            && allocated
            && !pods.iter().find(owner).is_some_and(|p| uses(p))
        {
            return Some(format!("{name} is no pod's"));
        }
    }
    let out = tainted(s, &["NoExecute"]);
    let closed = tainted(s, &["NoExecute", "NoSchedule"]);
    let left = Left::new(s, &closed, devices);
    let mut gangs: BTreeMap<&str, (usize, Vec<Vec<usize>>)> = BTreeMap::new();
    for pod in &pods {
        if let Some(wrong) = unsettled_pod(s, pod, &out) {
            return Some(wrong);
        }
        let Some((needs, on)) = waits_for(s, pod) else {
            continue;
        };
        if !quota_allows(s, pod) {
            continue;
        }
        let fits = |node: usize| {
            let name = format!("n{node}");
            let there = on.iter().all(|n| *n == name);
            there && has_cpu(s, &pods, node, pod) && left.has(&name, &needs)
        };
        let (group, missing) = missing_of_gang(s, &pods, pod);
        if missing > 1 {
            // Whether a quota leaves enough for all of them is not looked into.
            if quota::limits_anything(s) {
                continue;
            }
            let places = gangs.entry(group).or_insert_with(|| (missing, Vec::new()));
            places.1.push((0..nodes).filter(|n| fits(*n)).collect());
            continue;
        }
        if let Some(node) = (0..nodes).find(|n| fits(*n)) {
            let name = name(pod);
            return Some(format!(
                "{name} waits although there is what it needs on n{node}: {needs:?}"
            ));
        }
    }
    // At least where its pods have nodes for themselves, a gang is placed.
    let apart = |(_, (missing, places)): &(&&str, &(usize, Vec<Vec<usize>>))| {
        places.len() >= *missing && nodes_apart(places, &mut BTreeSet::new()) >= *missing
    };
    let waits = gangs.iter().find(apart);
    waits.map(|(group, places)| format!("gang {group} waits although there is room: {places:?}"))
}

/// The gang of a pod, and how many of its pods have to be placed at once; one for a pod that is in no gang.
fn missing_of_gang<'a>(s: &State, pods: &[&Value], pod: &'a Value) -> (&'a str, usize) {
    let name = &pod["spec"]["schedulingGroup"]["podGroupName"];
    let group = group_of(s, pod).map(|g| &g["spec"]["schedulingPolicy"]["gang"]["minCount"]);
    let needed = group.and_then(Value::as_u64).unwrap_or(1) as usize;
    let of_group = |p: &&&Value| p["spec"]["schedulingGroup"]["podGroupName"] == *name;
    let runs = |p: &&&Value| p["spec"]["nodeName"].is_string() && !is_finished(p);
    let placed = pods.iter().filter(of_group).filter(runs).count();
    let missing = needed.saturating_sub(placed).max(1);
    (name.as_str().unwrap_or_default(), missing)
}

/// How many of the pods can be on different nodes, of those that each can be on.
fn nodes_apart(places: &[Vec<usize>], taken: &mut BTreeSet<usize>) -> usize {
    let Some((first, others)) = places.split_first() else {
        return 0;
    };
    let mut best = nodes_apart(others, taken);
    for node in first {
        if taken.insert(*node) {
            best = best.max(1 + nodes_apart(others, taken));
            taken.remove(node);
        }
    }
    best
}

/// What is wrong with a pod: it should have been evicted, or made a claim.
fn unsettled_pod(s: &State, pod: &Value, out: &BTreeSet<String>) -> Option<String> {
    // Claims for extended resources do not make a pod go, as upstream.
    let claims = claims_of(pod);
    let claims = claims.iter().map(|c| find_claim(s, pod, c.as_ref()?));
    let name = name(pod);
    if pod["spec"]["nodeName"].is_string() {
        let mut devices = claims.flatten().flat_map(devices_of);
        let hit = devices.find(|d| out.contains(*d) && !is_finished(pod))?;
        return Some(format!("{name} still runs with {hit}"));
    }
    let templated = |place: usize| {
        pod["spec"]["resourceClaims"][place]["resourceClaimTemplateName"].is_string()
    };
    let missing = claims
        .enumerate()
        .find(|(at, c)| c.is_none() && templated(*at));
    missing.map(|_| format!("{name} has no claim"))
}

/// Whether a pod is not even tried, because a claim that it shares with others that run is being deleted: what it got
/// before it keeps.
fn is_held_back(s: &State, pod: &Value) -> bool {
    let claims = claims_of(pod);
    let mut claims = claims
        .iter()
        .flatten()
        .filter_map(|c| find_claim(s, pod, c));
    claims.any(is_deleting)
}

/// Whether the quota of the namespace leaves what a pod waits for.
fn quota_allows(s: &State, pod: &Value) -> bool {
    let claims = claims_of(pod);
    let claims = claims.iter().flatten();
    let claims = claims.filter_map(|claim| find_claim(s, pod, claim));
    let open: Vec<&Value> = claims.filter(|c| devices_of(c).next().is_none()).collect();
    quota::allows(s, pod, &open)
}

/// The unsatisfied requests of a pod without a node, and the nodes on which it already has resources; `None` for a pod
/// that cannot be tried.
fn waits_for<'a>(s: &'a State, pod: &Value) -> Option<(Vec<Need>, Vec<&'a str>)> {
    if pod["spec"]["nodeName"].is_string() {
        return None;
    }
    let mut needs: Vec<Need> = ledger::of_pod(pod).into_iter().collect();
    let mut nodes = Vec::new();
    for claim in claims_of(pod) {
        let claim = find_claim(s, pod, claim.as_ref()?)?;
        if is_deleting(claim) {
            return None;
        }
        match devices_of(claim).find_map(|d| d.split_once('-')) {
            Some((node, _)) => nodes.push(node),
            None => needs.push(ledger::of_claim(claim)),
        }
    }
    Some((needs, nodes))
}
