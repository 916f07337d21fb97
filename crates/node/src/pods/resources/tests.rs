use super::*;

fn pod(spec: Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(json!({"spec": spec})).expect("a pod"))
}

fn container(value: Value) -> Container {
    serde_json::from_value(value).expect("a container")
}

#[test]
fn amounts_are_the_same_in_any_notation() {
    let of = |cpu: &str, memory: &str| {
        pod(json!({"containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}))
    };
    let allocated = Allocation::of(&of("1", "1Gi"));
    assert!(allocated.is_of(&of("1000m", "1024Mi")));
    assert!(!allocated.is_of(&of("1001m", "1Gi")));
    assert!(!allocated.is_of(&of("1", "1025Mi")));
    let without = pod(json!({"containers": [{"name": "c"}]}));
    assert!(!allocated.is_of(&without));
    let none = Allocation::of(&without);
    assert!(none.is_of(&pod(
        json!({"containers": [{"name": "c", "resources": {}}]})
    )));
    // The same object, and not a copy, where there is no difference.
    let same = of("1000m", "1Gi");
    assert!(Arc::ptr_eq(&allocated.applied_to(&same), &same));
    let applied = allocated.applied_to(&of("2", "1Gi"));
    assert!(allocated.is_of(&applied));
}

#[test]
fn a_pod_as_a_whole_has_an_allocation() {
    let of = |cpu: &str| {
        pod(
            json!({"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": "4", "memory": "1Gi"}},
            "containers": [{"name": "c"}, {"name": "d", "resources": {"limits": {"memory": "1Mi"}}}]}),
        )
    };
    let allocated = Allocation::of(&of("1"));
    assert!(!allocated.is_of(&of("2")));
    let applied = allocated.applied_to(&of("2"));
    assert_eq!(requests(&applied, &BTreeMap::new()).cpu, 1000);
    // Containers without limits have those of the pod.
    let spec = applied.spec.clone().expect("a spec");
    let budgets: Vec<Budget> = spec
        .containers
        .iter()
        .map(|it| Budget::of(&applied, it))
        .collect();
    let limits: Vec<_> = budgets
        .iter()
        .map(|it| (it.cpu_limit, it.memory_limit))
        .collect();
    assert_eq!(limits, [(4000, 1 << 30), (4000, 1 << 20)]);
    let (actual, allocated) = of_pod(&applied).expect("resources");
    assert_eq!(allocated, json!({"cpu": "1"}));
    assert_eq!(
        actual,
        json!({"requests": {"cpu": "1"}, "limits": {"cpu": "4", "memory": "1Gi"}})
    );
    assert_eq!(of_pod(&pod(json!({"containers": []}))), None);
}

#[test]
fn a_pod_takes_what_it_was_given_until_that_is_given_back() {
    let pod = pod(json!({
        "overhead": {"cpu": "10m"},
        "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
            {"name": "i", "resources": {"requests": {"memory": "1Gi"}}},
        ],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Mi"}}}],
    }));
    let sizes = |cpu, memory| Sizes { cpu, memory };
    assert_eq!(requests(&pod, &BTreeMap::new()), sizes(1110, 1 << 30));
    let held = Budget {
        cpu_request: 500,
        memory_request: 2 << 30,
        ..Budget::default()
    };
    let held = BTreeMap::from([("c".to_owned(), held)]);
    assert_eq!(requests(&pod, &held), sizes(1510, 2 << 30));
    // One that is to have more takes that from the beginning.
    let less = BTreeMap::from([("c".to_owned(), Budget::default())]);
    assert_eq!(requests(&pod, &less), sizes(1110, 1 << 30));
    assert_eq!(requests(&Pod::default(), &held), Sizes::default());
}

#[test]
fn policies_are_about_one_resource_each() {
    let policy = |resource: &str| {
        container(json!({"name": "c", "resizePolicy": [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": resource, "restartPolicy": "RestartContainer"}]}))
    };
    let now = Budget {
        cpu_request: 1,
        memory_limit: 1,
        ..Budget::default()
    };
    let more_cpu = Budget {
        cpu_limit: 5,
        ..now
    };
    let more_memory = Budget {
        memory_limit: 2,
        ..now
    };
    assert!(now.needs_restart(&more_memory, &policy("memory")));
    assert!(!now.needs_restart(&more_cpu, &policy("memory")));
    assert!(now.needs_restart(&more_cpu, &policy("cpu")));
    assert!(!now.needs_restart(&more_memory, &container(json!({"name": "c"}))));
    let unlimited = Budget::default();
    assert!(now.has_less_memory(&unlimited) && now.has_less_memory(&more_memory));
    assert!(!more_memory.has_less_memory(&now) && !unlimited.has_less_memory(&now));
}

#[test]
fn the_status_shows_what_a_container_has() {
    let container = container(json!({"name": "c", "resources": {
        "requests": {"cpu": "1000m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "128Mi"}}}));
    let whole = |request: (&str, &str), limit: (&str, &str)| {
        json!({"requests": {"cpu": request.0, "memory": request.1},
            "limits": {"cpu": limit.0, "memory": limit.1}})
    };
    let allocated = whole(("1000m", "64Mi"), ("2", "128Mi"));
    assert_eq!(actual(&container, None), allocated);
    let budget = Budget::of(&Pod::default(), &container);
    assert_eq!(actual(&container, Some((budget, None))), allocated);
    // It does not have it yet.
    let before = Budget {
        cpu_request: 500,
        cpu_limit: 1000,
        memory_request: 32 << 20,
        memory_limit: 64 << 20,
    };
    let expected = whole(("500m", "32Mi"), ("1", "64Mi"));
    assert_eq!(actual(&container, Some((before, None))), expected);
    // What the runtime reports has precedence; it reports no requested memory.
    let given = ReportedResources {
        cpu_request: Some(700),
        cpu_limit: None,
        memory_limit: Some(96 << 20),
    };
    let expected = whole(("700m", "32Mi"), ("2", "96Mi"));
    assert_eq!(actual(&container, Some((before, Some(given)))), expected);
}

/// Amounts that are the same to the kernel are shown as they were requested, and resources that were not requested are not shown.
#[test]
fn the_least_amounts_are_shown_as_allocated() {
    let shown = |resources: Value, given: ReportedResources| {
        let container = container(json!({"name": "c", "resources": resources}));
        actual(&container, Some((Budget::default(), Some(given))))
    };
    let given = |cpu_request, cpu_limit| ReportedResources {
        cpu_request: Some(cpu_request),
        cpu_limit: Some(cpu_limit),
        memory_limit: None,
    };
    let least = json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}});
    assert_eq!(shown(least.clone(), given(2, 10)), least);
    let more = json!({"requests": {"cpu": "3m"}, "limits": {"cpu": "11m"}});
    assert_eq!(shown(least, given(3, 11)), more);
    assert_eq!(shown(json!({}), given(100, 100)), json!({}));
}
