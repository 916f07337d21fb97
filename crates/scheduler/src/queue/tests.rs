use super::*;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

fn secs(n: u64) -> Now {
    Duration::from_secs(n)
}

fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"containers": [], "priority": priority, "resourceClaims": [{"name": "c", "resourceClaimName": format!("claim-{name}")}]},
    }))
    .expect("fixture");
    Arc::new(PodInfo::new(Arc::new(pod)))
}

fn popped(queue: &mut Queue, now: Now) -> Vec<String> {
    std::iter::from_fn(|| queue.pop(now))
        .map(|p| p.info.uid.to_string())
        .collect()
}

fn rejected(queue: &mut Queue, name: &str, by: Plugin, now: Now) {
    queue.add(pod(name, 0), None, now);
    let p = queue.pop(now).expect("was added");
    queue.add_unschedulable(p, [by].into_iter().collect(), now);
}

#[test]
fn priority_then_age() {
    let mut q = Queue::default();
    for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
        q.add(pod(name, priority), None, secs(0));
    }
    assert_eq!(popped(&mut q, secs(0)), ["b", "d", "a", "c"]);
    assert_eq!(q.counts(), Counts::default());
}

#[test]
fn rejected_pods_wait_for_their_plugins() {
    let mut q = Queue::default();
    rejected(&mut q, "a", Plugin::NodeResourcesFit, secs(0));
    rejected(&mut q, "b", Plugin::DynamicResources, secs(0));
    assert!(popped(&mut q, secs(100)).is_empty());
    let found = q.rejected_by([Plugin::DynamicResources].into_iter().collect());
    assert_eq!(found.iter().map(|p| &*p.uid).collect::<Vec<_>>(), ["b"]);
    q.activate("b", None, "NodeAdd", secs(100));
    assert_eq!(popped(&mut q, secs(100)), ["b"]);
    assert!(
        q.rejected_by(PluginSet::all())
            .iter()
            .all(|p| &*p.uid == "a")
    );
}

#[test]
fn waiting_ends_after_five_minutes() {
    let mut q = Queue::default();
    rejected(&mut q, "a", Plugin::NodeResourcesFit, secs(0));
    assert_eq!(q.next_wakeup(), Some(secs(300)));
    assert!(popped(&mut q, secs(299)).is_empty());
    assert_eq!(popped(&mut q, secs(300)), ["a"]);
}

#[test]
fn errors_back_off_and_double() {
    let mut q = Queue::default();
    q.add(pod("a", 0), None, secs(0));
    for (at, wait) in [(0, 1), (10, 2), (20, 4), (30, 8), (50, 10), (70, 10)] {
        let p = q.pop(secs(at)).expect("ready");
        q.add_backoff(p, secs(at));
        assert_eq!(q.next_wakeup(), Some(secs(at + wait)));
        assert!(q.pop(secs(at + wait) - Duration::from_millis(1)).is_none());
    }
}

#[test]
fn backoff_after_rejection_is_skipped_only_when_idle() {
    let mut q = Queue::default();
    rejected(&mut q, "a", Plugin::NodeResourcesFit, secs(0));
    q.activate("a", None, "NodeAdd", secs(0));
    assert_eq!(q.counts().backoff, 1);
    q.add(pod("b", -5), None, secs(0));
    assert_eq!(popped(&mut q, secs(0)), ["b", "a"]);
}

#[test]
fn a_gated_pod_stays_until_no_plugin_gates_it() {
    let mut q = Queue::default();
    q.add(pod("a", 0), Some(Plugin::SchedulingGates), secs(0));
    assert!(popped(&mut q, secs(1000)).is_empty());
    q.activate("a", Some(Plugin::DynamicResources), "NodeAdd", secs(1));
    let claim = Key::new("ns", "claim-a");
    assert_eq!(q.users_of_claim(&claim).len(), 1);
    assert_eq!(q.ready_users_of_claim(&claim).count(), 0);
    q.activate("a", None, "NodeAdd", secs(2));
    assert!(q.users_of_claim(&claim).is_empty());
    assert_eq!(q.ready_users_of_claim(&claim).count(), 1);
    assert_eq!(popped(&mut q, secs(2)), ["a"]);
    assert_eq!(q.ready_users_of_claim(&claim).count(), 0);
}

#[test]
fn update_keeps_the_place() {
    let mut q = Queue::default();
    q.add(pod("a", 0), None, secs(0));
    q.add(pod("b", 0), None, secs(0));
    q.update(pod("a", 0));
    assert_eq!(popped(&mut q, secs(0)), ["a", "b"]);
    rejected(&mut q, "c", Plugin::NodeName, secs(0));
    q.update(pod("c", 7));
    assert!(popped(&mut q, secs(1)).is_empty());
    assert!(q.remove("c").is_some_and(|p| p.info.priority() == 7));
    assert_eq!(q.counts(), Counts::default());
}

#[test]
fn moves_between_parts_of_the_queue_are_counted() {
    let mut q = Queue::default();
    rejected(&mut q, "a", Plugin::DynamicResources, secs(0));
    let (moved, waiting) = q.take_moves();
    assert_eq!(moved[&("UnschedulablePodAdd", "active")], 1);
    assert_eq!(moved[&("ScheduleAttemptFailure", "unschedulable")], 1);
    let because = (Plugin::DynamicResources, "default-scheduler".into());
    assert_eq!(waiting.expect("changed")[&because], 1);
    q.activate("a", None, "NodeAdd", secs(0));
    let (moved, waiting) = q.take_moves();
    assert_eq!(moved[&("NodeAdd", "backoff")], 1);
    assert_eq!(waiting.expect("changed")[&because], 0);
    assert!(q.pop(secs(0)).is_some(), "nothing else is to be done");
    let (moved, waiting) = q.take_moves();
    assert_eq!(moved[&("PopFromBackoffQ", "active")], 1);
    assert!(waiting.is_none(), "nobody came or went");
}

#[test]
fn an_error_after_many_rejections_is_a_first_error() {
    let mut q = Queue::default();
    rejected(&mut q, "a", Plugin::NodeResourcesFit, secs(0));
    for i in 1..6 {
        q.activate("a", None, "NodeAdd", secs(100 * i));
        let p = q.pop(secs(100 * i)).expect("ready");
        q.add_unschedulable(
            p,
            [Plugin::NodeResourcesFit].into_iter().collect(),
            secs(100 * i),
        );
    }
    q.activate("a", None, "NodeAdd", secs(1000));
    let p = q.pop(secs(1000)).expect("ready");
    q.add_backoff(p, secs(1000));
    assert!(popped(&mut q, secs(1000)).is_empty());
    assert_eq!(popped(&mut q, secs(1001)), ["a"]);
}
