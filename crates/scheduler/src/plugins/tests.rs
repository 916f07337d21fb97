//! Filters and scores on small clusters.

use std::sync::Arc;

use serde_json::{Value, json};

use super::affinity::NodeAffinity;
use super::interpod::InterPodAffinity;
use super::spread::{self, DefaultConstraint, Defaults, Spread};
use super::*;
use crate::cache::{Cache, Snapshot};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::{Code, Rejection};

mod fit;
mod image;

fn pod(name: &str, labels: Value, spec: Value) -> Arc<PodInfo> {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([]);
    }
    let value = json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels}, "spec": spec});
    Arc::new(PodInfo::new(Arc::new(
        serde_json::from_value(value).expect("fixture"),
    )))
}

fn requests(requests: Value) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
}

/// Nodes as (name, labels) with four CPUs, 4Gi and ten pods each; pods as (pod, node).
fn cluster(nodes: &[(&str, Value)], pods: &[(Arc<PodInfo>, &str)]) -> Snapshot {
    let mut cache = Cache::default();
    for (name, labels) in nodes {
        let value = json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10", "x.example/gpu": "2"}},
        });
        cache.set_node(Arc::new(serde_json::from_value(value).expect("fixture")));
    }
    for (pod, node) in pods {
        cache.assume(pod.clone(), &(*node).into());
    }
    cache.snapshot().clone()
}

fn tainted(spec: Value) -> NodeInfo {
    let mut info = NodeInfo::new("n".into());
    let value = json!({"metadata": {"name": "n"}, "spec": spec});
    info.set_node(Arc::new(serde_json::from_value(value).expect("fixture")));
    info
}

fn check(result: Result<(), Rejection>, expected: Option<(Code, &[&str])>) {
    let got = result.err().map(|r| {
        (
            r.code,
            r.reasons.iter().map(|r| r.to_string()).collect::<Vec<_>>(),
        )
    });
    let expected =
        expected.map(|(c, r)| (c, r.iter().map(|r| (*r).to_owned()).collect::<Vec<_>>()));
    assert_eq!(got, expected);
}

#[test]
fn taints_and_cordons() {
    let node = tainted(
        json!({"unschedulable": true, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
    );
    let with = |tolerations: Value| pod("p", json!({}), json!({"tolerations": tolerations}));
    let none = with(json!([]));
    check(
        taints::filter(none.tolerations(), &node),
        Some((Code::Unresolvable, &["node(s) had untolerated taint(s)"])),
    );
    check(
        simple::unschedulable(none.tolerations(), &node),
        Some((Code::Unresolvable, &["node(s) were unschedulable"])),
    );
    for tolerations in [
        json!([{"operator": "Exists"}]),
        json!([{"key": "k", "value": "v"}, {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
    ] {
        let all = with(tolerations);
        check(taints::filter(all.tolerations(), &node), None);
        check(simple::unschedulable(all.tolerations(), &node), None);
    }
    let other_effect = with(json!([{"key": "k", "operator": "Exists", "effect": "NoExecute"}]));
    assert!(taints::filter(other_effect.tolerations(), &node).is_err());
    let soft = tainted(json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}));
    check(taints::filter(none.tolerations(), &soft), None);
    assert_eq!(taints::score(none.tolerations(), &soft), 1);
}

#[test]
fn host_ports() {
    let with = |name: &str, port: Value| {
        pod(
            name,
            json!({}),
            json!({"containers": [{"name": "c", "ports": [port]}]}),
        )
    };
    let s = cluster(
        &[("a", json!({}))],
        &[(
            with(
                "x",
                json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}),
            ),
            "a",
        )],
    );
    let conflict = Some((
        Code::Unschedulable,
        &["node(s) didn't have free ports for the requested pod ports"][..],
    ));
    check(
        ports::filter(
            &with("p", json!({"containerPort": 1, "hostPort": 80})),
            &s.nodes[0],
        ),
        conflict,
    );
    check(
        ports::filter(
            &with(
                "p",
                json!({"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.2"}),
            ),
            &s.nodes[0],
        ),
        None,
    );
    check(
        ports::filter(
            &with(
                "p",
                json!({"containerPort": 1, "hostPort": 80, "protocol": "UDP"}),
            ),
            &s.nodes[0],
        ),
        None,
    );
}

fn spread_over(key: &str, skew: i32, extra: Value) -> Value {
    let mut c = json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}});
    for (k, v) in extra.as_object().into_iter().flatten() {
        c[k] = v.clone();
    }
    json!({"topologySpreadConstraints": [c]})
}

fn check_spread(spec: Value, on: &[&str], fits: &[&str]) {
    let x = json!({"app": "x"});
    let pods: Vec<_> = on
        .iter()
        .enumerate()
        .map(|(i, n)| (pod(&format!("x{i}"), x.clone(), json!({})), *n))
        .collect();
    let s = cluster(
        &[
            ("a", json!({"zone": "1"})),
            ("b", json!({"zone": "2"})),
            ("c", json!({})),
        ],
        &pods,
    );
    let p = pod("p", x, spec);
    let spread =
        Spread::new(&p, &NodeAffinity::new(&p), &s, &Defaults::system()).expect("has constraints");
    let got: Vec<&str> = s
        .nodes
        .iter()
        .filter(|n| spread.filter(n).is_ok())
        .map(|n| &*n.name)
        .collect();
    assert_eq!(got, fits);
}

#[test]
fn topology_spread() {
    check_spread(spread_over("zone", 1, json!({})), &[], &["a", "b"]);
    check_spread(spread_over("zone", 1, json!({})), &["a"], &["b"]);
    check_spread(spread_over("zone", 2, json!({})), &["a"], &["a", "b"]);
    check_spread(
        spread_over("zone", 1, json!({"minDomains": 3})),
        &["a", "b"],
        &[],
    );
    let mut narrowed = spread_over("zone", 1, json!({}));
    narrowed["nodeSelector"] = json!({"zone": "1"});
    check_spread(narrowed.clone(), &["a"], &["a", "b"]);
    narrowed["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
    check_spread(narrowed, &["a"], &["b"]);
}

/// A pod of a replica set.
fn replica(name: &str, of: &str, spec: Value) -> Arc<PodInfo> {
    let mut value = json!(*pod(name, json!({}), spec).pod);
    value["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": of, "uid": of, "controller": true}]);
    Arc::new(PodInfo::new(Arc::new(
        serde_json::from_value(value).expect("fixture"),
    )))
}

#[test]
fn replicas_are_spread_over_hosts_by_default() {
    let host = |name: &str| json!({"kubernetes.io/hostname": name});
    let nodes = [("a", host("a")), ("b", host("b")), ("c", host("c"))];
    let on = [
        (replica("r0", "r", json!({})), "a"),
        (replica("r1", "r", json!({})), "a"),
        (replica("r2", "r", json!({})), "b"),
        (replica("other", "q", json!({})), "c"),
    ];
    let s = cluster(&nodes, &on);
    let score = |pod: &Arc<PodInfo>, defaults: &Defaults| {
        spread::scores(pod, &NodeAffinity::new(pod), &s, &[0, 1, 2], defaults)
    };
    let p = replica("r3", "r", json!({}));
    let scores = score(&p, &Defaults::system()).expect("spread by default");
    assert!(scores[0] < scores[1] && scores[1] < scores[2], "{scores:?}");
    // They should hold, no more.
    assert!(Spread::new(&p, &NodeAffinity::new(&p), &s, &Defaults::system()).is_none());
    // A pod without controller, or with its own constraints, is not affected.
    assert_eq!(
        score(&pod("p", json!({}), json!({})), &Defaults::system()),
        None
    );
    let own = replica("r4", "r", spread_over("zone", 1, json!({})));
    assert_eq!(score(&own, &Defaults::system()), None);
    let none = Defaults {
        constraints: Vec::new(),
        system: false,
    };
    assert_eq!(score(&p, &none), None);
}

#[test]
fn constraints_by_default_look_at_domains_and_policies() {
    let zone = |name: &str| json!({"zone": name});
    let nodes = [("a", zone("1")), ("b", zone("2"))];
    let check =
        |on: &[&str], spec: Value, change: &dyn Fn(&mut DefaultConstraint), fits: &[&str]| {
            let pods = on.iter().map(|n| (replica(n, "r", json!({})), *n));
            let s = cluster(&nodes, &pods.collect::<Vec<_>>());
            let mut constraint = DefaultConstraint {
                max_skew: 1,
                key: "zone".to_owned(),
                required: true,
                min_domains: 1,
                honor_affinity: true,
                honor_taints: false,
            };
            change(&mut constraint);
            let defaults = Defaults {
                constraints: vec![constraint],
                system: false,
            };
            let p = replica("p", "r", spec);
            let spread =
                Spread::new(&p, &NodeAffinity::new(&p), &s, &defaults).expect("constraints");
            let nodes = s.nodes.iter().filter(|n| spread.filter(n).is_ok());
            assert_eq!(nodes.map(|n| &*n.name).collect::<Vec<_>>(), fits);
        };
    check(&["a"], json!({}), &|_| {}, &["b"]);
    check(&["a"], json!({}), &|c| c.max_skew = 2, &["a", "b"]);
    check(&["a", "b"], json!({}), &|_| {}, &["a", "b"]);
    // There are two zones: with three wanted, one is empty.
    check(&["a", "b"], json!({}), &|c| c.min_domains = 3, &[]);
    let first = || json!({"nodeSelector": {"zone": "1"}});
    check(&["a"], first(), &|_| {}, &["a", "b"]);
    check(&["a"], first(), &|c| c.honor_affinity = false, &["b"]);
}

fn term(app: &str) -> Value {
    json!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}])
}

fn check_interpod(own: Value, there: Value, there_app: &str, fits: &[&str]) {
    let nodes = [
        ("a", json!({"zone": "1"})),
        ("b", json!({"zone": "1"})),
        ("c", json!({"zone": "2"})),
        ("d", json!({})),
    ];
    let s = cluster(
        &nodes,
        &[(
            pod("x", json!({"app": there_app}), json!({"affinity": there})),
            "a",
        )],
    );
    let p = pod("p", json!({"app": "p"}), json!({"affinity": own}));
    let got: Vec<&str> = match InterPodAffinity::new(&p, &s) {
        None => s.nodes.iter().map(|n| &*n.name).collect(),
        Some(i) => s
            .nodes
            .iter()
            .filter(|n| i.filter(&p, n, &s).is_ok())
            .map(|n| &*n.name)
            .collect(),
    };
    assert_eq!(got, fits);
}

#[test]
fn affinity_between_pods() {
    let with =
        |app| json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term(app)}});
    let against = |app| json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term(app)}});
    let none = json!({});
    check_interpod(with("x"), none.clone(), "x", &["a", "b"]);
    check_interpod(with("x"), none.clone(), "y", &[]);
    // The first of a group that wants to be together.
    check_interpod(with("p"), none.clone(), "y", &["a", "b", "c"]);
    check_interpod(against("x"), none.clone(), "x", &["c", "d"]);
    check_interpod(none.clone(), against("p"), "x", &["c", "d"]);
    check_interpod(none.clone(), against("q"), "x", &["a", "b", "c", "d"]);
}

fn check_preferences(own: Value, there: Value, ignore: bool, expected: Option<&[i64]>) {
    let nodes = [("a", json!({"zone": "1"})), ("b", json!({"zone": "2"}))];
    let other = pod("x", json!({"app": "x"}), json!({"affinity": there}));
    let s = cluster(&nodes, &[(other, "a")]);
    let p = pod("p", json!({"app": "p"}), json!({"affinity": own}));
    let got = interpod::scores(&p, &s, &[0, 1], 1, ignore);
    assert_eq!(got.as_deref(), expected);
}

#[test]
fn preferences_of_others_can_be_ignored_by_pods_without_any() {
    let likes = |app: &str| {
        let term = json!({"weight": 1, "podAffinityTerm": term(app)[0]});
        json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
    };
    check_preferences(json!({}), likes("p"), false, Some(&[100, 0]));
    check_preferences(json!({}), likes("p"), true, None);
    // A pod with preferred terms is matched against all pods.
    check_preferences(likes("nobody"), likes("p"), true, Some(&[100, 0]));
}

#[test]
fn normalized_scores() {
    let mut scores = [0, 5, 10];
    normalize(&mut scores, false);
    assert_eq!(scores, [0, 50, 100]);
    normalize(&mut scores, true);
    assert_eq!(scores, [100, 50, 0]);
    let mut equal = [0, 0];
    normalize(&mut equal, true);
    assert_eq!(equal, [100, 100]);
}

#[test]
fn rows_of_the_table_agree_with_their_extension_points() {
    use points::ExtensionPoint as Point;
    for plugin in Plugin::ALL {
        let (name, row) = (plugin.name(), plugin.definition());
        assert_eq!(Plugin::by_name(name), Some(*plugin));
        assert!(!row.points.is_empty(), "{name} has no extension point");
        let scores = row.weight > 0;
        assert!(
            !scores || plugin.extends(Point::Score),
            "{name} has a weight, and no Score"
        );
        assert!(
            scores || row.score.is_none(),
            "{name} scores without a weight"
        );
        let filters = plugin.extends(Point::Filter);
        assert!(
            filters || row.filter.is_none(),
            "{name} filters without Filter"
        );
        assert!(
            !filters || !row.events.is_empty(),
            "pods that {name} rejects are not tried again"
        );
    }
}
