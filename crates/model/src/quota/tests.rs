use serde_json::{Value, json};

use super::*;

static NO_CLAIMS: FirstClaims = FirstClaims(BTreeMap::new());

/// Nothing else is there.
const NOTHING: Lookups<'static> = Lookups {
    extended: &|_| None,
    pod: &|_| None,
    first: &NO_CLAIMS,
};

fn shown(usage: &Usage) -> Vec<String> {
    usage.iter().map(|(n, q)| format!("{n}={q}")).collect()
}

fn claim_with(requests: Value) -> Value {
    json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
}

#[test]
fn claims_count_devices_per_class() {
    let claim = claim_with(json!([
        {"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3}},
        {"name": "b", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
        {"name": "c", "firstAvailable": [
            {"name": "x", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
            {"name": "y", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 4},
            {"name": "z", "deviceClassName": "mig", "allocationMode": "ExactCount", "count": 1},
        ]},
    ]));
    let extended = |class: &str| (class == "nic").then(|| "example.com/nic".to_owned());
    let lookups = Lookups {
        extended: &extended,
        ..NOTHING
    };
    let usage = usage("resource.k8s.io", "resourceclaims", &claim, lookups);
    assert_eq!(
        shown(&usage),
        [
            "count/resourceclaims.resource.k8s.io=1",
            "gpu.deviceclass.resource.k8s.io/devices=7",
            "mig.deviceclass.resource.k8s.io/devices=1",
            "nic.deviceclass.resource.k8s.io/devices=32",
            "requests.deviceclass.resource.kubernetes.io/gpu=7",
            "requests.deviceclass.resource.kubernetes.io/mig=1",
            "requests.deviceclass.resource.kubernetes.io/nic=32",
            "requests.example.com/nic=32",
        ]
    );
}

#[test]
fn a_claim_for_extended_resources_counts_less_what_its_pod_asks_for() {
    let mut claim = claim_with(json!([
        {"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
        {"name": "b", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}},
    ]));
    claim["metadata"]["annotations"] =
        json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    claim["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
    ]);
    // Two by the name that the class gives, one by the name of the class.
    let requests = json!({"example.com/gpu": "2", "deviceclass.resource.kubernetes.io/gpu": "1"});
    let pod = json!({
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"resources": {"requests": requests}}]},
    });
    assert_eq!(special_owner(&claim), Some("p"));
    let counted = |pod: Value| {
        let lookups = Lookups {
            extended: &|_| Some("example.com/gpu".to_owned()),
            pod: &|name| (name == "p").then(|| pod.clone()),
            ..NOTHING
        };
        let usage = usage("resource.k8s.io", "resourceclaims", &claim, lookups);
        shown(&usage).join(" ")
    };
    let devices =
        "count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=3";
    let of_pod = format!(
        "{devices} requests.deviceclass.resource.kubernetes.io/gpu=2 requests.example.com/gpu=1"
    );
    let whole = format!(
        "{devices} requests.deviceclass.resource.kubernetes.io/gpu=3 requests.example.com/gpu=3"
    );
    assert_eq!(counted(pod.clone()), of_pod);
    let with = |field: &str, value: Value| {
        let mut pod = pod.clone();
        pod[field] = value;
        pod
    };
    let status = |claim: &str| json!({"extendedResourceClaimStatus": {"resourceClaimName": claim}});
    assert_eq!(counted(with("status", status("c"))), of_pod);
    // It belongs to another pod of that name, is not the claim of this pod, or the pod is done.
    assert_eq!(
        counted(with("metadata", json!({"name": "p", "uid": "v"}))),
        whole
    );
    assert_eq!(counted(with("status", status("d"))), whole);
    assert_eq!(
        counted(with("status", json!({"phase": "Succeeded"}))),
        whole
    );
}

/// A tenant can create claims that look like those which the scheduler creates for a pod.
#[test]
fn regression_a_pod_pays_for_one_claim() {
    let claim = |name: &str, created: &str| {
        let mut claim = claim_with(json!([{"name": "a",
            "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]));
        claim["metadata"] = json!({"name": name, "creationTimestamp": created,
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]});
        claim
    };
    let pod = |status: Value| {
        json!({"metadata": {"name": "p", "uid": "u"}, "status": status,
            "spec": {"containers": [{"resources": {"requests": {"example.com/gpu": "1"}}}]}})
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    let claims = [
        claim("c", late),
        claim("b", early),
        claim("a", late),
        claim("d", early),
    ];
    let mut first = FirstClaims::default();
    claims.iter().for_each(|it| first.insert(it));
    let free = |status: &Value| -> Vec<&str> {
        let lookups = Lookups {
            extended: &|_| Some("example.com/gpu".to_owned()),
            pod: &|_| Some(pod(status.clone())),
            first: &first,
        };
        let counts = |it: &Value| {
            usage("resource.k8s.io", "resourceclaims", it, lookups)
                .contains_key("requests.example.com/gpu")
        };
        let free = claims.iter().filter(|it| !counts(it));
        free.map(|it| it["metadata"]["name"].as_str().unwrap())
            .collect()
    };
    assert_eq!(free(&json!({})), ["b"]);
    let named = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c"}});
    assert_eq!(free(&named), ["c"]);
}

#[test]
fn regression_more_devices_than_64_bits_are_counted() {
    let requests = ["a", "b"].map(|name| {
        json!({"name": name, "exactly":
            {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": i64::MAX}})
    });
    let claim = claim_with(json!(requests));
    let usage = usage("resource.k8s.io", "resourceclaims", &claim, NOTHING);
    let devices = &usage["gpu.deviceclass.resource.k8s.io/devices"];
    assert_eq!(devices.to_string(), "18446744073709551614");
}

/// A number of thousands of digits cannot be added to others.
#[test]
fn regression_amounts_that_are_too_far_apart_count() {
    let of = |amount: &str| json!({"resources": {"requests": {"cpu": amount}}});
    let pod = json!({"spec": {"containers": [of("1"), of("1e100000")]}});
    let usage = usage("", "pods", &pod, NOTHING);
    let name = "requests.cpu";
    let quota =
        json!({"metadata": {"name": "q"}, "status": {"hard": {name: "2"}, "used": {name: "1"}}});
    assert!(usage[name] > Quantity::from(2));
    admit(&quota, &usage).unwrap_err();
}

#[test]
fn pods_count_by_their_effective_requests() {
    let pod = json!({"spec": {
        "containers": [
            {"resources": {"requests": {"cpu": "100m", "memory": "1Gi", "example.com/gpu": "1"}, "limits": {"cpu": "1"}}},
            {"resources": {"requests": {"cpu": "200m"}}},
        ],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
            {"resources": {"requests": {"cpu": "500m"}}},
        ],
        "overhead": {"cpu": "10m"},
    }});
    let usage = usage("", "pods", &pod, NOTHING);
    assert_eq!(
        shown(&usage),
        [
            "count/pods=1",
            "cpu=560m",
            "limits.cpu=1010m",
            "memory=1Gi",
            "pods=1",
            "requests.cpu=560m",
            "requests.example.com/gpu=1",
            "requests.memory=1Gi",
        ]
    );
    let mut done = pod;
    done["status"] = json!({"phase": "Succeeded"});
    assert_eq!(
        shown(&super::usage("", "pods", &done, NOTHING)),
        ["count/pods=1"]
    );
}

#[test]
fn admission_refuses_in_upstreams_words() {
    let quota = json!({
        "metadata": {"name": "q"},
        "spec": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "3"}},
        "status": {
            "hard": {"gpu.deviceclass.resource.k8s.io/devices": "3"},
            "used": {"gpu.deviceclass.resource.k8s.io/devices": "2"},
        },
    });
    let delta = |n: i64| {
        Usage::from([(
            "gpu.deviceclass.resource.k8s.io/devices".to_owned(),
            n.into(),
        )])
    };
    let used = admit(&quota, &delta(1)).unwrap().unwrap();
    assert_eq!(shown(&used), ["gpu.deviceclass.resource.k8s.io/devices=3"]);
    assert_eq!(
        admit(&quota, &delta(2)).unwrap_err().0,
        "exceeded quota: q, requested: gpu.deviceclass.resource.k8s.io/devices=2, \
         used: gpu.deviceclass.resource.k8s.io/devices=2, limited: gpu.deviceclass.resource.k8s.io/devices=3"
    );
    let other = Usage::from([("pods".to_owned(), 1.into())]);
    assert_eq!(admit(&quota, &other), Ok(None));
}

#[test]
fn scopes_select_pods() {
    let quota = json!({"spec": {"scopes": ["BestEffort", "NotTerminating"]}});
    let pod = json!({"spec": {"containers": [{}]}});
    let busy = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
    assert!(in_scopes(&quota, "", "pods", &pod));
    assert!(!in_scopes(&quota, "", "pods", &busy));
    assert!(!in_scopes(&quota, "", "configmaps", &json!({})));
}

#[test]
fn names_in_hard_tell_which_objects_count() {
    let check = |name: &str, wanted: &[(&str, &str)]| {
        let found = constrained(name);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(g, r)| (g.as_str(), r.as_str()))
            .collect();
        assert_eq!(found, wanted, "{name}");
    };
    check("count/deployments.apps", &[("apps", "deployments")]);
    check(
        "count/resourceclaims.resource.k8s.io",
        &[("resource.k8s.io", "resourceclaims")],
    );
    check(
        "gpu.deviceclass.resource.k8s.io/devices",
        &[("resource.k8s.io", "resourceclaims")],
    );
    check(
        "requests.example.com/gpu",
        &[("", "pods"), ("resource.k8s.io", "resourceclaims")],
    );
    check("requests.cpu", &[("", "pods")]);
    check("requests.storage", &[("", "persistentvolumeclaims")]);
    check(
        "gold.storageclass.storage.k8s.io/requests.storage",
        &[("", "persistentvolumeclaims")],
    );
    check("services.nodeports", &[("", "services")]);
}

#[test]
fn a_limited_resource_has_to_be_stated() {
    let hard = json!({"limits.cpu": "4", "memory": "1Gi", "requests.memory": "1Gi"});
    let quota = json!({"metadata": {"name": "q"}, "status": {"hard": hard}});
    let stated = json!({"requests": {"memory": "1"}});
    let mut pod = json!({"spec": {
        "initContainers": [{"name": "b"}],
        "containers": [{"name": "a", "resources": stated}],
    }});
    assert_eq!(
        must_specify(&quota, &pod).unwrap_err().0,
        "failed quota: q: must specify limits.cpu for: a,b; memory for: b; requests.memory for: b"
    );
    pod["spec"]["resources"] = json!({"limits": {"cpu": "1"}});
    assert_eq!(must_specify(&quota, &pod), Ok(()));
}

#[test]
fn what_is_limited_has_to_be_counted() {
    let hard = json!({"pods": "4", "limits.cpu": "4", "count/configmaps": "1"});
    let quota = json!({"metadata": {"name": "q"}, "status": {"hard": hard, "used": {"pods": "0"}}});
    assert_eq!(
        must_be_known(&quota, "", "pods").unwrap_err().0,
        "status unknown for quota: q, resources: limits.cpu,pods"
    );
    assert_eq!(must_be_known(&quota, "", "secrets"), Ok(()));
}
