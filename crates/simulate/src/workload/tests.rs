use super::*;

fn add(objects: Vec<Value>) -> anyhow::Result<Workload> {
    let mut workload = Workload::default();
    let nodes = [
        json!({"kind": "Node", "metadata": {"name": "a", "labels": {"gpu": "yes"}}}),
        json!({"kind": "Node", "metadata": {"name": "b"}}),
    ];
    let (features, now) = (Features::default(), Timestamp::UNIX_EPOCH);
    workload.add(objects, "team", &nodes, &features, now)?;
    Ok(workload)
}

fn names(workload: &Workload) -> Vec<&str> {
    workload.arrivals.iter().map(|a| &*a.name).collect()
}

fn set(kind: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

#[test]
fn workloads_become_pods() {
    let workload = add(vec![set("Deployment", json!({"replicas": 2}))]).expect("a workload");
    assert_eq!(names(&workload), ["w-0", "w-1"]);
    let pod = &workload.drafts[0].pod;
    assert_eq!(pod.metadata.namespace.as_deref(), Some("team"));
    let owner = &pod.metadata.owner_references.as_ref().expect("an owner")[0];
    assert_eq!(owner.kind, "ReplicaSet");
    let workload = add(vec![set("StatefulSet", json!({}))]).expect("a workload");
    assert_eq!(names(&workload), ["w-0"]);
}

#[test]
fn a_job_starts_as_many_as_run_side_by_side() {
    let job = set("Job", json!({"parallelism": 2, "completions": 5}));
    let workload = add(vec![job]).expect("a workload");
    assert_eq!(names(&workload), ["w-0", "w-1"]);
    assert_eq!((workload.jobs[0].left, workload.jobs[0].next), (3, 2));
    assert!(workload.arrivals.iter().all(|a| a.job == Some(0)));
}

#[test]
fn a_daemon_set_has_a_pod_for_each_node_that_it_selects() {
    let mut object = set("DaemonSet", json!({}));
    assert_eq!(
        names(&add(vec![object.clone()]).expect("a workload")),
        ["w-a", "w-b"]
    );
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"gpu": "yes"});
    let workload = add(vec![object]).expect("a workload");
    assert_eq!(names(&workload), ["w-a"]);
    let pod = &workload.drafts[workload.arrivals[0].draft as usize].pod;
    assert!(pod.spec.as_ref().is_some_and(|s| s.affinity.is_some()));
}

#[test]
fn annotations_say_when_and_how_long() {
    let mut object = set("Deployment", json!({}));
    object["metadata"]["annotations"] = json!({DURATION: "2h", ARRIVAL: "30"});
    let workload = add(vec![object.clone()]).expect("a workload");
    assert_eq!(workload.arrivals[0].at, Duration::from_secs(30));
    assert_eq!(
        workload.arrivals[0].duration,
        Some(Duration::from_secs(7200))
    );
    object["metadata"]["annotations"] = json!({DURATION: "long"});
    let error = format!("{:#}", add(vec![object]).expect_err("no duration"));
    assert!(
        error.starts_with("Deployment w: annotation simulate.allot.dev/duration: "),
        "{error}"
    );
}

#[test]
fn what_is_not_simulated_is_told_and_nonsense_refused() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
    let workload = add(vec![service.clone(), service]).expect("a workload");
    assert_eq!(workload.notes, ["Service is not simulated"]);
    let error = add(vec![set("Deployment", json!({"replicas": -1}))]).expect_err("no number");
    assert_eq!(
        error.to_string(),
        "Deployment w: /spec/replicas is no number of pods: -1"
    );
    assert!(add(vec![set("Deployment", json!({"replicas": 1e15}))]).is_err());
}
