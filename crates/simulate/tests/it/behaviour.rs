//! What happens in a simulation is what would happen in a cluster.

use allot_model::features::Feature;
use allot_scheduler::Config;
use allot_simulate::{Options, Order};
use serde_json::{Value, json};

use crate::fixtures::*;

fn for_seconds(seconds: u64) -> Value {
    json!({"duration": seconds.to_string()})
}

#[test]
fn a_pod_waits_for_a_device_until_another_pod_has_ended() {
    let cluster = vec![
        node("n", "8"),
        slice("n", devices(1)),
        class(),
        template("one", 1, Value::Null),
    ];
    let mut second = pod("b", "template:one", for_seconds(5), Value::Null);
    second["metadata"]["annotations"]["simulate.allot.dev/arrival"] = json!("10");
    let report = simulate(
        cluster,
        vec![
            pod("a", "template:one", for_seconds(60), Value::Null),
            second,
        ],
    );
    assert_eq!(
        lines(&report),
        ["a n 0 60 gpu/n/gpu-0", "b n 60 65 gpu/n/gpu-0"]
    );
    assert_eq!(report.summary.wait.max, 50.0);
    assert_eq!((report.summary.placed, report.summary.completed), (2, 2));
    let refusal = report.summary.first_refusal.as_ref().expect("a refusal");
    assert_eq!((&*refusal.pod, refusal.placed_before), ("default/b", 1));
    assert!(
        refusal.message.contains("cannot allocate all claims"),
        "{}",
        refusal.message
    );
    assert_eq!(report.summary.devices_in_use.end, 0.0);
    assert_eq!(report.summary.devices_in_use.peak, 1.0);
}

#[test]
fn pods_that_wait_in_the_end_are_told_with_the_reason() {
    let cluster = vec![
        node("n", "8"),
        slice("n", devices(1)),
        class(),
        template("two", 2, Value::Null),
    ];
    let gated = json!({"schedulingGates": [{"name": "g"}]});
    let report = simulate(
        cluster,
        vec![
            pod("a", "template:two", Value::Null, Value::Null),
            pod("b", "template:two", Value::Null, Value::Null),
            pod("c", "", Value::Null, gated),
            pod("d", "template:missing", Value::Null, Value::Null),
        ],
    );
    assert_eq!(report.waiting[0].count, 2);
    assert_eq!(report.waiting[0].pods, ["default/a", "default/b"]);
    assert!(
        report.waiting[0]
            .message
            .starts_with("0/1 nodes are available"),
        "{:?}",
        report.waiting
    );
    assert_eq!(
        (&*report.waiting[1].message, report.waiting[1].count),
        ("", 2)
    );
    assert_eq!(report.summary.waiting, 4);
}

#[test]
fn a_quota_on_allocated_devices_holds_pods_back_until_devices_of_their_namespace_are_free() {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team", "namespace": "default"},
        "spec": {"hard": {"gpu.deviceclass.allot.dev/allocated-devices": "3", "pods": "1"}},
    });
    let cluster = vec![
        node("n", "8"),
        slice("n", devices(8)),
        class(),
        template("two", 2, Value::Null),
    ];
    let of =
        |name: &str, seconds: u64| pod(name, "template:two", for_seconds(seconds), Value::Null);
    let report = simulate(cluster, vec![quota, of("a", 60), of("b", 5)]);
    assert_eq!(
        lines(&report),
        [
            "a n 0 60 gpu/n/gpu-0 gpu/n/gpu-1",
            "b n 60 65 gpu/n/gpu-0 gpu/n/gpu-1"
        ]
    );
    let refusal = report.summary.first_refusal.as_ref().expect("a refusal");
    assert!(
        refusal.message.contains("exceeded quota: team"),
        "{}",
        refusal.message
    );
    // What admission counts is not simulated.
    assert_eq!(
        report.notes,
        ["ResourceQuota is simulated for allocated devices only"]
    );
}

#[test]
fn a_shared_claim_is_free_when_its_last_user_has_ended() {
    let cluster = vec![
        node("n", "8"),
        slice("n", devices(1)),
        class(),
        claim("shared", 1),
        template("one", 1, Value::Null),
    ];
    let report = simulate(
        cluster,
        vec![
            pod("a", "claim:shared", for_seconds(10), Value::Null),
            pod("b", "claim:shared", for_seconds(30), Value::Null),
            pod("c", "template:one", for_seconds(1), Value::Null),
        ],
    );
    assert_eq!(
        lines(&report),
        [
            "a n 0 10 gpu/n/gpu-0",
            "b n 0 30 gpu/n/gpu-0",
            "c n 30 31 gpu/n/gpu-0",
        ]
    );
}

#[test]
fn a_pod_of_higher_priority_makes_room() {
    let priority = |name: &str, value: i64| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
    let cpu = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "6"}}}]);
    let of = |class: &str| json!({"containers": cpu, "priorityClassName": class});
    let mut urgent = pod("urgent", "", for_seconds(5), of("high"));
    urgent["metadata"]["annotations"]["simulate.allot.dev/arrival"] = json!("10");
    let cluster = vec![node("n", "8"), priority("low", 1), priority("high", 100)];
    let report = simulate(
        cluster,
        vec![pod("idle", "", Value::Null, of("low")), urgent],
    );
    assert_eq!(lines(&report), ["idle n 0 11", "urgent n 11 16"]);
    assert_eq!(report.pods[0].end, "preempted");
    let preemption = &report.preemptions[0];
    assert_eq!(
        (&*preemption.victim, &*preemption.preemptor),
        ("default/idle", "default/urgent")
    );
}

#[test]
fn a_job_goes_on_until_all_its_pods_have_run() {
    let cluster = vec![
        node("n", "8"),
        slice("n", devices(2)),
        class(),
        template("one", 1, Value::Null),
    ];
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "annotations": {"simulate.allot.dev/duration": "10"}},
        "spec": {"parallelism": 2, "completions": 5, "template": {"spec": {
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "d", "resourceClaimTemplateName": "one"}],
        }}},
    });
    let report = simulate(cluster, vec![job]);
    assert_eq!(report.summary.completed, 5);
    let ended: Vec<Option<f64>> = report.pods.iter().map(|p| p.ended).collect();
    assert_eq!(
        ended,
        [Some(10.0), Some(10.0), Some(20.0), Some(20.0), Some(30.0)]
    );
}

#[test]
fn what_runs_in_the_cluster_keeps_what_it_has() {
    let mut running = pod(
        "old",
        "",
        Value::Null,
        json!({
            "nodeName": "n", "resourceClaims": [{"name": "d", "resourceClaimName": "mine"}],
        }),
    );
    running["metadata"]["namespace"] = json!("default");
    running["metadata"]["uid"] = json!("u1");
    running["status"] = json!({"phase": "Running"});
    let mut held = claim("mine", 1);
    held["metadata"]["namespace"] = json!("default");
    held["metadata"]["uid"] = json!("c1");
    held["metadata"]["resourceVersion"] = json!("1000");
    held["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    let result =
        |device: &str| json!({"request": "r", "driver": "gpu", "pool": "n", "device": device});
    held["status"] = json!({
        "allocation": {"devices": {"results": [result("gpu-0")]}},
        "reservedFor": [{"resource": "pods", "name": "old", "uid": "u1"}],
    });
    // Its pod is gone: the claim controller releases it.
    let mut left = held.clone();
    left["metadata"]["name"] = json!("left");
    left["metadata"]["uid"] = json!("c2");
    left["status"]["allocation"]["devices"]["results"] = json!([result("gpu-1")]);
    left["status"]["reservedFor"][0]["uid"] = json!("u2");
    let cluster = vec![
        node("n", "8"),
        slice("n", devices(2)),
        class(),
        running,
        held,
        left,
    ];
    let workload = vec![
        template("one", 1, Value::Null),
        pod("new", "template:one", Value::Null, Value::Null),
    ];
    let report = simulate(cluster, workload);
    assert_eq!(
        lines(&report),
        ["old n 0 - gpu/n/gpu-0", "new n 0 - gpu/n/gpu-1"]
    );
    assert_eq!((report.summary.found, report.summary.placed), (1, 1));
}

#[test]
fn devices_with_binding_conditions_get_ready() {
    let conditions = json!([{
        "name": "gpu-0", "bindsToNode": true,
        "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"],
    }]);
    let cluster = || {
        vec![
            node("n", "8"),
            slice("n", conditions.clone()),
            class(),
            template("one", 1, Value::Null),
        ]
    };
    let workload = || vec![pod("a", "template:one", Value::Null, Value::Null)];
    let report = simulate(cluster(), workload());
    assert_eq!(lines(&report), ["a n 0 - gpu/n/gpu-0"]);
    // Without a driver the pod waits until it is too late, again and again, and the simulation ends nevertheless.
    let options = Options {
        devices_ready: false,
        ..Options::default()
    };
    let report = simulate_with(Config::default(), options, cluster(), workload());
    assert_eq!(report.summary.placed, 0);
    assert_eq!(report.summary.waiting, 1);
}

#[test]
fn extended_resources_are_had_from_devices() {
    let mut class = class();
    class["spec"]["extendedResourceName"] = json!("example.com/gpu");
    let wants = json!([{"name": "c", "image": "i", "resources": {
        "requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"},
    }}]);
    let cluster = vec![node("n", "8"), slice("n", devices(1)), class];
    let mut config = Config::default();
    config.features = config.features.with(Feature::DRAExtendedResource, true);
    let workload = vec![
        pod("a", "", for_seconds(10), json!({"containers": wants})),
        pod("b", "", for_seconds(10), json!({"containers": wants})),
    ];
    let report = simulate_with(config, Options::default(), cluster, workload);
    assert_eq!(
        lines(&report),
        ["a n 0 10 gpu/n/gpu-0", "b n 10 20 gpu/n/gpu-0"]
    );
}

#[test]
fn a_volume_is_provisioned_with_the_first_pod() {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"},
        "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let wanted = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "v"},
        "spec": {"storageClassName": "s", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let uses = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]});
    let workload = vec![
        wanted,
        pod("a", "", for_seconds(10), uses.clone()),
        pod("b", "", for_seconds(10), uses),
    ];
    let report = simulate(vec![node("n", "8"), class], workload);
    assert_eq!(lines(&report), ["a n 0 10", "b n 0 10"]);
}

#[test]
fn a_simulation_ends_when_the_options_say() {
    let cluster = || {
        vec![
            node("n", "8"),
            slice("n", devices(3)),
            class(),
            template("one", 1, Value::Null),
        ]
    };
    let workload = || vec![pod("a", "template:one", for_seconds(1), Value::Null)];
    let options = Options {
        order: Order::Fill,
        ..Options::default()
    };
    let report = simulate_with(Config::default(), options, cluster(), workload());
    assert_eq!((report.summary.placed, report.summary.waiting), (3, 1));
    assert_eq!(
        report
            .summary
            .first_refusal
            .expect("a refusal")
            .placed_before,
        3
    );
    let options = Options {
        until: Some(std::time::Duration::from_millis(500)),
        ..Options::default()
    };
    let report = simulate_with(Config::default(), options, cluster(), workload());
    assert_eq!(
        (report.summary.duration, report.summary.completed),
        (0.5, 0)
    );
}

#[test]
fn pods_that_can_not_be_created_are_an_error() {
    let twice = || pod("a", "", Value::Null, Value::Null);
    let mut workload = allot_simulate::Workload::default();
    let features = allot_model::features::Features::default();
    let now = jiff::Timestamp::UNIX_EPOCH;
    workload
        .add(vec![twice(), twice()], "default", &[], &features, now)
        .expect("a workload");
    let simulation = allot_simulate::Simulation::new(Config::default(), Options::default(), vec![]);
    let mut simulation = simulation.expect("a cluster");
    simulation.add_workload(workload).expect("no objects");
    let error = simulation.run().expect_err("the same name");
    assert_eq!(error.to_string(), "there is a pod default/a already");
}

/// Pods that are never tried would be generated forever.
#[test]
fn filling_ends_where_nothing_is_placed() {
    let options = Options {
        order: Order::Fill,
        ..Options::default()
    };
    let workload = vec![pod("a", "template:missing", Value::Null, Value::Null)];
    let report = simulate_with(Config::default(), options, vec![node("n", "8")], workload);
    assert_eq!(report.summary.placed, 0);
    assert!(report.summary.arrived < 2000, "{}", report.summary.arrived);
}

/// A pod that runs forever and pods that cannot be placed must not keep the simulation running forever.
#[test]
fn waiting_for_nothing_takes_no_time() {
    let report = simulate(
        vec![node("n", "1")],
        vec![
            pod("forever", "", Value::Null, Value::Null),
            pod(
                "large",
                "",
                Value::Null,
                json!({"containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100"}}},
                ]}),
            ),
            {
                let mut late = pod("late", "", for_seconds(1), Value::Null);
                late["metadata"]["annotations"]["simulate.allot.dev/arrival"] = json!("3650d");
                late
            },
        ],
    );
    assert_eq!(report.summary.waiting, 1);
    assert!(report.summary.attempts < 50, "{}", report.summary.attempts);
}
