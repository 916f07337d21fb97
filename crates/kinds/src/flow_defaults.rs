//! The default priority levels and flow schemas of kube-apiserver 1.36.

use allot_apimachinery::quote::quote;
use serde_json::{Value, json};

/// The type of the condition that reports a flow schema whose priority level does not exist.
pub const DANGLING: &str = "Dangling";

/// The field manager of the default objects.
pub const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
/// The field manager of their conditions.
pub const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

/// The default objects, with their collections and names.
pub fn objects(now: &str) -> Vec<(String, String, Value)> {
    let group = "flowcontrol.apiserver.k8s.io";
    let mut objects = Vec::new();
    for (name, spec) in levels() {
        let object = json!({
            "apiVersion": format!("{group}/v1"), "kind": "PriorityLevelConfiguration",
            "metadata": metadata(name), "spec": spec, "status": {},
        });
        let collection = format!("{group}/prioritylevelconfigurations");
        objects.push((collection, name.to_owned(), object));
    }
    for (name, level, precedence, distinguisher, rule) in schemas() {
        let mut spec = json!({
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": precedence, "rules": [rule],
        });
        if !distinguisher.is_empty() {
            spec["distinguisherMethod"] = json!({"type": distinguisher});
        }
        let object = json!({
            "apiVersion": format!("{group}/v1"), "kind": "FlowSchema",
            "metadata": metadata(name), "spec": spec,
            "status": {"conditions": [condition(level, true, now)]},
        });
        objects.push((format!("{group}/flowschemas"), name.to_owned(), object));
    }
    objects
}

/// The condition that reports whether the priority level of a flow schema is missing.
pub fn condition(level: &str, exists: bool, since: &str) -> Value {
    let (status, reason, rest) = match exists {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let level = quote(level);
    json!({
        "type": DANGLING, "status": status, "lastTransitionTime": since, "reason": reason,
        "message": format!("This FlowSchema references the PriorityLevelConfiguration object named {level} {rest}"),
    })
}

/// The spec of a mandatory object, which clients cannot change.
pub fn mandatory(plural: &str, name: &str) -> Option<Value> {
    if !matches!(name, "exempt" | "catch-all") {
        return None;
    }
    let objects = objects("").into_iter();
    let mut wanted =
        objects.filter(|(collection, named, _)| collection.ends_with(plural) && named == name);
    wanted.next().map(|(.., mut object)| object["spec"].take())
}

/// Adds mandatory objects to the stored ones if they were deleted.
pub fn add_mandatory(plural: &str, stored: &mut Vec<Value>) {
    for name in ["exempt", "catch-all"] {
        if stored
            .iter()
            .any(|object| object["metadata"]["name"] == name)
        {
            continue;
        }
        if let Some(spec) = mandatory(plural, name) {
            stored.push(json!({"metadata": {"name": name}, "spec": spec}));
        }
    }
}

/// The metadata with the annotation that marks an object as maintained by the server.
fn metadata(name: &str) -> Value {
    json!({"name": name, "generation": 1, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}})
}

fn levels() -> Vec<(&'static str, Value)> {
    let queues = |shares: u32, lendable: u32, queues: u32, hand: u32| {
        json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": {
                "type": "Queue",
                "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50},
            },
        }})
    };
    let exempt =
        json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let rest = json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"},
    }});
    vec![
        ("exempt", exempt),
        ("catch-all", rest),
        ("system", queues(30, 33, 64, 6)),
        ("node-high", queues(40, 25, 64, 6)),
        ("leader-election", queues(10, 0, 16, 4)),
        ("workload-high", queues(40, 50, 128, 6)),
        ("workload-low", queues(100, 90, 128, 6)),
        ("global-default", queues(20, 50, 128, 6)),
    ]
}

/// Name, priority level, matching precedence, distinguisher method, rule.
type Schema = (&'static str, &'static str, u32, &'static str, Value);

fn schemas() -> Vec<Schema> {
    let by_user = "ByUser";
    let by_namespace = "ByNamespace";
    let everyone = ["system:unauthenticated", "system:authenticated"];
    let change = ["get", "create", "update"];
    let leases = || resources(&change, "coordination.k8s.io", &["leases"], false);
    let manager = "system:kube-controller-manager";
    let probes = json!({
        "subjects": groups(&everyone),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    });
    let mut elected = users(&[manager, "system:kube-scheduler"]);
    elected.extend(accounts(&["*"]));
    let mut publishers = users(&[manager]);
    publishers.extend(accounts(&[
        "endpoint-controller",
        "endpointslicemirroring-controller",
    ]));
    let leaders = json!({
        "subjects": elected,
        "resourceRules": [leases()],
    });
    let endpoints = json!({
        "subjects": publishers,
        "resourceRules": [resources(&change, "", &["endpoints"], false)],
    });
    let workloads = json!({
        "subjects": accounts(&["*"]),
        "resourceRules": [resources(&change, "", &["endpoints", "configmaps"], false), leases()],
    });
    let heartbeats = json!({
        "subjects": groups(&["system:nodes"]),
        "resourceRules": [
            resources(&["*"], "", &["nodes", "nodes/status"], true),
            resources(&["*"], "coordination.k8s.io", &["leases"], false),
        ],
    });
    vec![
        ("exempt", "exempt", 1, "", all(groups(&["system:masters"]))),
        ("probes", "exempt", 2, "", probes),
        (
            "system-leader-election",
            "leader-election",
            100,
            by_user,
            leaders,
        ),
        (
            "endpoint-controller",
            "workload-high",
            150,
            by_user,
            endpoints,
        ),
        (
            "workload-leader-election",
            "leader-election",
            200,
            by_user,
            workloads,
        ),
        ("system-node-high", "node-high", 400, by_user, heartbeats),
        (
            "system-nodes",
            "system",
            500,
            by_user,
            all(groups(&["system:nodes"])),
        ),
        (
            "kube-controller-manager",
            "workload-high",
            800,
            by_namespace,
            all(users(&[manager])),
        ),
        (
            "kube-scheduler",
            "workload-high",
            800,
            by_namespace,
            all(users(&["system:kube-scheduler"])),
        ),
        (
            "kube-system-service-accounts",
            "workload-high",
            900,
            by_namespace,
            all(accounts(&["*"])),
        ),
        (
            "service-accounts",
            "workload-low",
            9000,
            by_user,
            all(groups(&["system:serviceaccounts"])),
        ),
        (
            "global-default",
            "global-default",
            9900,
            by_user,
            all(groups(&everyone)),
        ),
        (
            "catch-all",
            "catch-all",
            10000,
            by_user,
            all(groups(&everyone)),
        ),
    ]
}

/// A rule that matches all requests of the subjects.
fn all(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn resources(verbs: &[&str], group: &str, names: &[&str], cluster: bool) -> Value {
    let mut rule =
        json!({"verbs": verbs, "apiGroups": [group], "resources": names, "namespaces": ["*"]});
    if cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

fn groups(names: &[&str]) -> Vec<Value> {
    let subject = |name: &&str| json!({"kind": "Group", "group": {"name": name}});
    names.iter().map(subject).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    let subject = |name: &&str| json!({"kind": "User", "user": {"name": name}});
    names.iter().map(subject).collect()
}

/// Service accounts in `kube-system`.
fn accounts(names: &[&str]) -> Vec<Value> {
    let subject = |name: &&str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": name}});
    names.iter().map(subject).collect()
}
