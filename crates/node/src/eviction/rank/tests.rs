use serde_json::{Value, json};

use super::*;

const MIB: u64 = 1 << 20;

/// A pod of one container.
fn pod(name: &str, priority: i32, requests: Value) -> Arc<Pod> {
    let container = json!({"name": "c", "resources": {"requests": requests}});
    let spec = json!({"priority": priority, "containers": [container]});
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn using(pod: Arc<Pod>, usage: PodUse) -> Candidate {
    Candidate {
        pod,
        usage: Some(usage),
    }
}

fn container(name: &str) -> ContainerUse {
    ContainerUse {
        name: name.to_owned(),
        ..ContainerUse::default()
    }
}

fn memory(mib: u64) -> PodUse {
    PodUse {
        containers: vec![ContainerUse {
            memory: Some(mib * MIB),
            ..container("c")
        }],
        volumes: Used::default(),
    }
}

fn order(mut all: Vec<Candidate>, resource: Resource, parts: Parts) -> Vec<String> {
    rank(&mut all, resource, parts);
    all.iter().map(|it| it.pod.name_any()).collect()
}

#[test]
fn memory_goes_by_requests_then_priority_then_the_excess() {
    let of = |name: &str, priority: i32, request: &str, used: u64| {
        using(
            pod(name, priority, json!({"memory": request})),
            memory(used),
        )
    };
    let unknown = Candidate {
        pod: pod("unknown", 9, json!({})),
        usage: None,
    };
    let all = vec![
        of("within, large", 0, "900Mi", 900),
        of("within, small", 0, "900Mi", 100),
        of("within, low", -1, "900Mi", 1),
        of("above, high", 7, "1Mi", 500),
        of("above, less", 0, "100Mi", 150),
        of("above, more", 0, "100Mi", 151),
        unknown,
    ];
    let expected = [
        "unknown",
        "above, more",
        "above, less",
        "above, high",
        "within, low",
        "within, large",
        "within, small",
    ];
    assert_eq!(order(all, Resource::Memory, Parts::default()), expected);
}

#[test]
fn process_ids_go_by_priority_and_number() {
    let of = |name: &str, priority: i32, processes: u64| {
        let usage = PodUse {
            containers: vec![ContainerUse {
                processes,
                ..container("c")
            }],
            volumes: Used::default(),
        };
        using(pod(name, priority, json!({})), usage)
    };
    let all = vec![of("few", 0, 1), of("important", 1, 900), of("many", 0, 2)];
    let found = order(all, Resource::Processes, Parts::default());
    assert_eq!(found, ["many", "few", "important"]);
}

#[test]
fn a_disk_goes_by_what_is_on_it() {
    let used = |mib: u64| Used {
        bytes: mib * MIB,
        inodes: mib,
    };
    let of = |name: &str, root: u64, logs: u64, volumes: u64| {
        let usage = PodUse {
            containers: vec![ContainerUse {
                root: used(root),
                logs: used(logs),
                ..container("c")
            }],
            volumes: used(volumes),
        };
        using(pod(name, 0, json!({"ephemeral-storage": "10Mi"})), usage)
    };
    let all = || {
        vec![
            of("root", 30, 0, 0),
            of("logs", 0, 40, 0),
            of("volumes", 0, 0, 50),
        ]
    };
    let first = |layout: Layout, signal: Signal| {
        let found = order(all(), signal.resource(), layout.parts(signal));
        found[0].clone()
    };
    use Layout::{Images, ImagesWithoutContainers, One};
    for signal in [Signal::ImageSpace, Signal::NodeSpace, Signal::NodeInodes] {
        assert_eq!(first(One, signal), "volumes");
    }
    assert_eq!(first(Images, Signal::ImageSpace), "root");
    assert_eq!(first(Images, Signal::ImageInodes), "root");
    assert_eq!(first(Images, Signal::NodeSpace), "volumes");
    assert_eq!(first(ImagesWithoutContainers, Signal::NodeSpace), "volumes");
    let nothing = Parts::default();
    assert_eq!(ImagesWithoutContainers.parts(Signal::ImageSpace), nothing);
    // Within its request a pod goes after one that is above, whatever it uses.
    let mut within = of("within", 0, 0, 60);
    within.pod = pod("within", 0, json!({"ephemeral-storage": "60Mi"}));
    let mut all = all();
    all.push(within);
    let found = order(all, Resource::Storage, One.parts(Signal::NodeSpace));
    assert_eq!(found, ["volumes", "logs", "root", "within"]);
}

#[test]
fn the_node_gives_what_it_does_not_use_first() {
    let found = |layout: Layout, signal: Signal| {
        let remains = layout.remains(signal);
        [remains.containers, remains.images]
    };
    use Layout::{Images, ImagesWithoutContainers, One};
    for layout in [One, Images, ImagesWithoutContainers] {
        assert_eq!(found(layout, Signal::Memory), [false, false]);
        assert_eq!(found(layout, Signal::Processes), [false, false]);
    }
    assert_eq!(found(One, Signal::NodeSpace), [true, true]);
    assert_eq!(found(One, Signal::ImageInodes), [true, true]);
    assert_eq!(found(Images, Signal::NodeSpace), [false, false]);
    assert_eq!(found(Images, Signal::ImageSpace), [true, true]);
    let split = ImagesWithoutContainers;
    assert_eq!(found(split, Signal::NodeInodes), [true, false]);
    assert_eq!(found(split, Signal::ImageSpace), [false, true]);
}

#[test]
fn messages_are_a_kubelets() {
    let amount = |text: &str| text.parse::<Quantity>().expect("a quantity");
    let reclaim = |signal: Signal, least: &str, available: &str| Reclaim {
        signal,
        amounts: Some((amount(least), amount(available))),
        grace: None,
    };
    let low = reclaim(Signal::Memory, "100Mi", "86512Ki");
    let candidate = using(pod("p", 0, json!({"memory": "64Mi"})), memory(65));
    let expected = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 86512Ki. \
                    Container c was using 65Mi, request is 64Mi, has larger consumption of memory. ";
    assert_eq!(message(&low, &candidate), expected);
    let within = using(pod("p", 0, json!({"memory": "65Mi"})), memory(65));
    let expected =
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 86512Ki. ";
    assert_eq!(message(&low, &within), expected);
    // A pod with requests as a whole, and one container without.
    let mut whole = Pod::clone(&pod("p", 0, json!({})));
    let requests = json!({"requests": {"memory": "1Gi"}});
    if let Some(spec) = &mut whole.spec {
        spec.resources = serde_json::from_value(requests).expect("resources");
    }
    let expected = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 86512Ki. \
                    Pod p was using 65Mi, request is 1Gi, has larger consumption of memory. \
                    Container c was using 65Mi, request is 0, has larger consumption of memory. ";
    assert_eq!(message(&low, &using(Arc::new(whole), memory(65))), expected);
    // Volumes count for the order, and are not of a container.
    let used = |bytes: u64| Used { bytes, inodes: 1 };
    let disk = PodUse {
        containers: vec![ContainerUse {
            root: used(1000),
            logs: used(24),
            ..container("c")
        }],
        volumes: used(MIB),
    };
    let full = reclaim(Signal::NodeSpace, "1Gi", "10");
    let expected = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 10. \
                    Container c was using 1Ki, request is 0, has larger consumption of ephemeral-storage. ";
    assert_eq!(
        message(&full, &using(pod("p", 0, json!({})), disk.clone())),
        expected
    );
    let few = reclaim(Signal::NodeInodes, "100", "99");
    let expected = "The node was low on resource: inodes. Threshold quantity: 100, available: 99. ";
    assert_eq!(
        message(&few, &using(pod("p", 0, json!({})), disk)),
        expected
    );
    let ids = Reclaim {
        signal: Signal::Processes,
        amounts: None,
        grace: None,
    };
    let unknown = Candidate {
        pod: pod("p", 0, json!({})),
        usage: None,
    };
    assert_eq!(
        message(&ids, &unknown),
        "The node was low on resource: pids. "
    );
}
