//! What may be reported about a pod.

use std::net::IpAddr;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_apimachinery::quote::go_json;
use allot_model::validate::pod as pod_claims;
use serde_json::{Value, json};

use crate::validate::{IMMUTABLE, between, by_name, ip, list, pod_annotations, rule, text};

const STATUSES: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

/// Checks a change of a pod's status.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (status, spec, path) = (&object["status"], &object["spec"], Path::new("status"));
    let before = &old["status"];
    pod_annotations::check_update(object, old, errors);
    conditions(status, &path, errors);
    nominated(object, old, &path, errors);
    if let Some(generation) = status["observedGeneration"].as_i64()
        && generation < 0
    {
        let at = path.child("observedGeneration");
        let detail = "must be a non-negative integer";
        errors.push(Error::invalid(&at, generation, detail));
    }
    let class = text(status, "qosClass");
    if class != text(before, "qosClass") {
        errors.push(Error::invalid(&path.child("qosClass"), class, IMMUTABLE));
    }
    for (key, of) in STATUSES {
        endings(object, old, (key, of), &path, errors);
    }
    errors.extend(pod_claims::resource_claim_statuses(status, spec, &path));
    errors.extend(pod_claims::extended_resource_claim_status(
        status, spec, &path,
    ));
    errors.extend(pod_claims::node_allocatable_statuses(status, spec, &path));
    addresses(status, "podIPs", &path, errors);
    host_addresses(status, &path, errors);
    for (key, _) in STATUSES {
        users(status, key, text(&spec["os"], "name"), &path, errors);
    }
    for (key, of) in &STATUSES[..2] {
        let (found, containers) = (list(status, key), list(spec, of));
        errors.extend(pod_claims::allocated_resources_status(
            found,
            containers,
            &path.child(key),
        ));
    }
    let key = STATUSES[2].0;
    for (index, found) in list(status, key).iter().enumerate() {
        if !list(found, "allocatedResourcesStatus").is_empty() {
            let at = path.child(key).index(index);
            errors.push(Error::forbidden(
                &at.child("allocatedResourcesStatus"),
                "must not be specified in container status",
            ));
        }
    }
}

fn conditions(status: &Value, path: &Path, errors: &mut ErrorList) {
    for (index, condition) in list(status, "conditions").iter().enumerate() {
        let at = path.child("conditions").index(index);
        if let Some(generation) = condition["observedGeneration"].as_i64()
            && generation < 0
        {
            let detail = "must be a non-negative integer";
            errors.push(Error::invalid(
                &at.child("observedGeneration"),
                generation,
                detail,
            ));
        }
        let kind = text(condition, "type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            // Upstream writes this field as its code does.
            rule(names::qualified_name(kind), kind, &at.child("Type"), errors);
        }
    }
}

fn nominated(object: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("nominatedNodeName");
    let name = text(&object["status"], "nominatedNodeName");
    if name.is_empty() || name == text(&old["status"], "nominatedNodeName") {
        return;
    }
    rule(names::dns1123_subdomain(name), name, &at, errors);
    if !text(&old["spec"], "nodeName").is_empty() {
        let detail = "may not be set on pods that are already bound to a node";
        errors.push(Error::forbidden(&at, detail));
    }
}

/// Whether a container that ended with this code is started again: by its rules, its own policy, or that of the pod.
fn restarts(container: &Value, spec: &Value, code: i64) -> bool {
    let by = |policy: &str| match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    };
    let own = text(container, "restartPolicy");
    if own.is_empty() {
        return by(text(spec, "restartPolicy"));
    }
    let matches = |rule: &Value| {
        let codes = &rule["exitCodes"];
        let listed = list(codes, "values").iter().any(|value| *value == code);
        match text(codes, "operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    };
    let first = list(container, "restartPolicyRules")
        .iter()
        .find(|rule| matches(rule));
    first.is_some_and(|rule| text(rule, "action") == "Restart") || by(own)
}

/// A terminated container stays terminated if it is not restarted.
fn endings(
    object: &Value,
    old: &Value,
    (key, of): (&str, &str),
    path: &Path,
    errors: &mut ErrorList,
) {
    let containers = by_name(list(&old["spec"], of));
    let now = list(&object["status"], key).iter();
    let going_on = by_name(now.filter(|now| !now["state"]["terminated"].is_object()));
    for (index, before) in list(&old["status"], key).iter().enumerate() {
        let ended = &before["state"]["terminated"];
        if !ended.is_object() {
            continue;
        }
        let name = text(before, "name");
        let code = ended["exitCode"].as_i64().unwrap_or_default();
        let container = containers.get(name);
        let allowed = of != "ephemeralContainers"
            && container.is_some_and(|it| restarts(it, &old["spec"], code));
        if going_on.contains_key(name) && !allowed {
            let at = path.child(key).index(index).child("state");
            let detail = "may not be transitioned to non-terminated state";
            errors.push(Error::forbidden(&at, detail));
        }
    }
}

/// Checks a list of addresses: one of each family at most.
fn addresses(status: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    let (all, path) = (list(status, key), path.child(key));
    for (index, address) in all.iter().enumerate() {
        ip::address(text(address, "ip"), &path.index(index), errors);
    }
    let families = all.iter().map(|address| {
        let parsed = text(address, "ip").parse::<IpAddr>();
        parsed.map(|address| address.is_ipv4())
    });
    let dual = match families.collect::<Vec<_>>().as_slice() {
        [] | [_] => true,
        [Ok(one), Ok(two)] => one != two,
        _ => false,
    };
    if !dual {
        let shown: Vec<_> = all.iter().map(|it| json!({"IP": text(it, "ip")})).collect();
        let detail = "may specify no more than one IP for each IP family";
        let shown = BadValue::raw(go_json(&shown.into()));
        errors.push(Error::invalid(&path, shown, detail));
    }
}

fn host_addresses(status: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(first) = list(status, "hostIPs").first() else {
        return;
    };
    if text(status, "hostIP") != text(first, "ip") {
        let at = path.child("hostIPs").index(0).child("ip");
        let detail = "must be equal to `hostIP`";
        errors.push(Error::invalid(&at, text(first, "ip"), detail));
    }
    addresses(status, "hostIPs", path, errors);
}

fn users(status: &Value, key: &str, system: &str, path: &Path, errors: &mut ErrorList) {
    for (index, found) in list(status, key).iter().enumerate() {
        let at = path.child(key).index(index).child("user").child("linux");
        let user = &found["user"]["linux"];
        if !user.is_object() {
            continue;
        }
        if system == "windows" {
            let detail = "cannot be set for a windows pod";
            errors.push(Error::forbidden(&at, detail));
            continue;
        }
        let mut number = |value: &Value, at: Path| {
            let value = value.as_i64().unwrap_or_default();
            if !(0..=i64::from(i32::MAX)).contains(&value) {
                let detail = between(0, i32::MAX.into());
                errors.push(Error::invalid(&at, value, detail));
            }
        };
        number(&user["uid"], at.child("uid"));
        number(&user["gid"], at.child("gid"));
        for (index, group) in list(user, "supplementalGroups").iter().enumerate() {
            number(group, at.child("supplementalGroups").index(index));
        }
    }
}
