//! Which flow and level requests get, on the objects that every server has.

use http::Method;
use serde_json::{Value, json};

use super::rules::{LevelKind, Rules};
use super::seats::Seats;
use crate::identity::{NODES, User};
use crate::request::{Query, RequestInfo};

fn stored(plural: &str) -> Vec<Value> {
    let objects = crate::flow_defaults::objects("").into_iter();
    objects
        .filter(|(collection, ..)| collection.ends_with(plural))
        .map(|(.., object)| object)
        .collect()
}

fn rules() -> (Rules, Seats) {
    let mut seats = Seats::default();
    let (levels, schemas) = (stored("prioritylevelconfigurations"), stored("flowschemas"));
    let rules = Rules::new(&levels, &schemas, 600, &mut seats);
    (rules, seats)
}

fn check(rules: &Rules, user: &User, request: &str, schema: &str, level: &str, flow: &str) {
    let (method, path) = request.split_once(' ').unwrap();
    let method: Method = method.parse().unwrap();
    let info = RequestInfo::parse(&method, path, &Query::default());
    let found = &rules.schemas[rules.find(&info, user).unwrap()];
    let what = format!("{} {request}", user.name);
    assert_eq!(&*found.name, schema, "{what}");
    assert_eq!(&*rules.levels[found.level].name, level, "{what}");
    assert_eq!(found.flow(&info, user), flow, "{what}");
}

#[test]
fn requests_find_their_schemas() {
    let (rules, _) = rules();
    let node = User::new("system:node:n", [NODES]);
    let scheduler = User::new("system:kube-scheduler", [] as [&str; 0]);
    let manager = User::new("system:kube-controller-manager", [] as [&str; 0]);
    let account = User::new(
        "system:serviceaccount:team:robot",
        ["system:serviceaccounts"],
    );
    let system = User::new(
        "system:serviceaccount:kube-system:gc",
        ["system:serviceaccounts"],
    );
    let person = User::new("jane", ["people"]);
    let pods = "GET /api/v1/namespaces/team/pods";
    for (user, request, schema, level, flow) in [
        (&User::admin(), pods, "exempt", "exempt", ""),
        (&User::anonymous(), "GET /healthz", "probes", "exempt", ""),
        (
            &User::anonymous(),
            "GET /livez/etcd",
            "probes",
            "exempt",
            "",
        ),
        (
            &person,
            "GET /version",
            "global-default",
            "global-default",
            "jane",
        ),
        (&person, pods, "global-default", "global-default", "jane"),
        (
            &account,
            pods,
            "service-accounts",
            "workload-low",
            &*account.name,
        ),
        (
            &system,
            pods,
            "kube-system-service-accounts",
            "workload-high",
            "team",
        ),
        (&scheduler, pods, "kube-scheduler", "workload-high", "team"),
        (
            &scheduler,
            "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x",
            "system-leader-election",
            "leader-election",
            &*scheduler.name,
        ),
        (
            &manager,
            "PUT /api/v1/namespaces/team/endpoints/x",
            "endpoint-controller",
            "workload-high",
            &*manager.name,
        ),
        (
            &node,
            "PATCH /api/v1/nodes/n/status",
            "system-node-high",
            "node-high",
            &*node.name,
        ),
        (&node, pods, "system-nodes", "system", &*node.name),
    ] {
        check(&rules, user, request, schema, level, flow);
    }
}

#[test]
fn levels_share_the_seats() {
    let (rules, seats) = rules();
    let most = |name: &str| {
        let level = rules.levels.iter().find(|level| &*level.name == name);
        level.unwrap().most_seats
    };
    // The numbers of upstream's metric for 600 seats.
    let nominal: Vec<(String, usize)> = seats
        .numbers()
        .map(|it| (it.name.to_string(), it.nominal))
        .collect();
    for (name, wanted) in [
        ("catch-all", 13),
        ("global-default", 49),
        ("leader-election", 25),
        ("node-high", 98),
        ("system", 74),
        ("workload-high", 98),
        ("workload-low", 245),
    ] {
        assert!(
            nominal.contains(&(name.to_owned(), wanted)),
            "{name}: {nominal:?}"
        );
    }
    assert_eq!((most("workload-low"), most("global-default")), (10, 8));
    assert!(
        rules
            .levels
            .iter()
            .any(|level| &*level.name == "exempt" && matches!(level.kind, LevelKind::Exempt(_)))
    );
}

#[test]
fn schemas_without_their_level_do_not_count() {
    let mut schemas = stored("flowschemas");
    schemas.push(json!({
        "metadata": {"name": "dangling"},
        "spec": {
            "priorityLevelConfiguration": {"name": "nowhere"}, "matchingPrecedence": 1,
            "rules": [{
                "subjects": [{"kind": "Group", "group": {"name": "*"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}],
            }],
        },
    }));
    let levels = stored("prioritylevelconfigurations");
    let rules = Rules::new(&levels, &schemas, 600, &mut Seats::default());
    let person = User::new("jane", ["people"]);
    let pods = "GET /api/v1/namespaces/team/pods";
    check(
        &rules,
        &person,
        pods,
        "global-default",
        "global-default",
        "jane",
    );
}
