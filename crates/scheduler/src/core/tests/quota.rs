//! Quotas on allocated devices.

use super::*;

const NAME: &str = "c.deviceclass.allot.dev/allocated-devices";

impl Fixture {
    fn quota(&mut self, namespace: &str, limit: u32) {
        let quota = self.object(json!({
            "metadata": {"name": "team", "namespace": namespace},
            "spec": {"hard": {NAME: limit.to_string()}},
        }));
        self.handle(Input::Quota(Observed::Applied(quota)));
    }

    /// A pod of a namespace with a claim of the same name for these requests.
    fn wants(&mut self, namespace: &str, name: &str, requests: Value) {
        let claim = self.object(json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}")},
            "spec": {"devices": {"requests": requests}},
        }));
        self.handle(Input::Claim(Observed::Applied(claim)));
        let pod: Box<Pod> = self.object(json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}")},
            "spec": {
                "containers": [{"name": "c"}],
                "resourceClaims": [{"name": name, "resourceClaimName": name}],
            },
        }));
        let info = Arc::new(PodInfo::observed(*pod));
        self.handle(Input::Pod(Observed::Applied(Box::new(info))));
    }
}

fn devices(count: u32) -> Value {
    json!([{"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": count}}])
}

/// Two devices, or else one.
fn two_or_one() -> Value {
    let of = |name: &str, count: u32| json!({"name": name, "deviceClassName": "c", "allocationMode": "ExactCount", "count": count});
    json!([{"name": "r", "firstAvailable": [of("two", 2), of("one", 1)]}])
}

/// The pods that got a node, and how many devices each.
fn placed(outcome: &Outcome) -> Vec<(String, usize)> {
    let jobs = outcome.0.iter().filter_map(|action| match action {
        Action::Bind(job) => Some(job),
        _ => None,
    });
    let devices = |job: &crate::actions::BindJob| {
        let allocations = job
            .claims
            .iter()
            .filter_map(|task| task.allocation.as_ref());
        let devices = allocations.filter_map(|a| a.devices.as_ref());
        devices.map(|d| d.results.iter().flatten().count()).sum()
    };
    jobs.map(|job| (job.pod.key.name.to_string(), devices(job)))
        .collect()
}

#[test]
fn who_is_over_a_quota_is_told_the_quota_and_its_numbers() {
    let mut fixture = Fixture::new("");
    fixture.quota("ns", 2);
    fixture.wants("ns", "a", devices(1));
    fixture.wants("ns", "b", devices(2));
    let outcome = fixture.run();
    assert_eq!(placed(&outcome), [("a".to_owned(), 1)]);
    let told =
        format!("exceeded quota: team, requested: {NAME}=2, used: {NAME}=1, limited: {NAME}=2");
    let text = format!(
        "0/2 nodes are available: {told}. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    assert_eq!(outcome.message(), text);
    let verdict = fixture.explained("b");
    assert_eq!(verdict.before.map(|r| r.message()), Some(told));
}

#[test]
fn a_namespace_is_not_limited_by_the_quota_of_another() {
    let mut fixture = Fixture::new("");
    fixture.quota("ns", 1);
    fixture.quota("other", 2);
    fixture.wants("ns", "a", devices(1));
    fixture.wants("other", "b", devices(1));
    fixture.wants("ns", "c", devices(1));
    fixture.wants("other", "d", devices(1));
    let placed = placed(&fixture.run());
    let names: Vec<&str> = placed.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["a", "b", "d"]);
}

#[test]
fn the_alternative_that_the_quota_leaves_is_taken() {
    let mut fixture = Fixture::new("");
    fixture.quota("ns", 3);
    fixture.wants("ns", "a", two_or_one());
    fixture.wants("ns", "b", two_or_one());
    let both = [("a".to_owned(), 2), ("b".to_owned(), 1)];
    assert_eq!(placed(&fixture.run()), both);
    fixture.wants("ns", "c", two_or_one());
    let outcome = fixture.run();
    let text =
        format!("exceeded quota: team, requested: {NAME}=1, used: {NAME}=3, limited: {NAME}=3");
    assert!(outcome.message().contains(&text), "{}", outcome.message());
}

#[test]
fn the_alternative_that_a_quota_forbids_is_named_if_the_others_are_not_free() {
    let mut fixture = Fixture::new("");
    fixture.quota("ns", 1);
    // One device could be had by the quota, but those of a second class are not there.
    let list = json!([{"name": "r", "firstAvailable": [
        {"name": "two", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 2},
        {"name": "many", "deviceClassName": "c2", "allocationMode": "ExactCount", "count": 9},
    ]}]);
    let class = fixture.object(json!({"metadata": {"name": "c2"}, "spec": {}}));
    fixture.handle(Input::Class(Observed::Applied(class)));
    fixture.wants("ns", "a", list);
    let outcome = fixture.run();
    let text = format!(
        "0/2 nodes are available: 2 cannot allocate all claims, 2 exceeded quota: team, requested: {NAME}=2, used: {NAME}=0, limited: {NAME}=1 by alternative r/two."
    );
    assert!(
        outcome.message().starts_with(&text),
        "{}",
        outcome.message()
    );
    let verdict = fixture.explained("a");
    let rejection = verdict.nodes[0].rejection.as_ref().expect("a rejection");
    assert!(rejection.message().ends_with("by alternative r/two"));
    // With a higher quota it is tried again.
    fixture.quota("ns", 2);
    assert_eq!(placed(&fixture.run()), [("a".to_owned(), 2)]);
}

#[test]
fn a_pod_is_tried_again_when_its_quota_is_raised_or_devices_of_its_namespace_are_free() {
    let mut fixture = Fixture::new("");
    fixture.quota("ns", 0);
    fixture.quota("other", 0);
    fixture.wants("ns", "a", devices(1));
    assert_eq!(fixture.run().node(), None);
    let waits = |fixture: &Fixture| fixture.core.queue_counts().unschedulable;
    assert_eq!(waits(&fixture), 1);
    // That of another namespace does not matter.
    fixture.quota("other", 5);
    assert_eq!(waits(&fixture), 1);
    fixture.quota("ns", 1);
    assert_eq!(placed(&fixture.run()), [("a".to_owned(), 1)]);
    fixture.wants("ns", "b", devices(1));
    assert_eq!(fixture.run().node(), None);
    let gone = fixture.core.claims().get(&Key::new("ns", "a")).cloned();
    let gone = (*gone.expect("a claim")).clone();
    fixture.handle(Input::Bound {
        pod: "uid-a".into(),
        outcome: Err(BindError::new("refused".to_owned())),
    });
    fixture.handle(Input::Claim(Observed::Deleted(Box::new(gone))));
    assert_eq!(placed(&fixture.run()), [("b".to_owned(), 1)]);
}

/// Another scheduler used up what the quota left, while this one did the same.
#[test]
fn of_two_schedulers_the_later_one_yields() {
    let mut fixture = Fixture::new("");
    fixture.quota("ns", 1);
    fixture.wants("ns", "a", devices(1));
    let outcome = fixture.run();
    let job = outcome.bound().expect("a place");
    assert!(job.wait, "the watch decides");
    let allocation = job.claims[0].allocation.clone().expect("devices");
    let mut written = (*job.claims[0].claim).clone();
    // What the other one wrote comes first.
    fixture.claim("b", allocated("n1", &["q"]));
    fixture.version += 1;
    written.metadata.resource_version = Some(fixture.version.to_string());
    let user = json!({"resource": "pods", "name": "a", "uid": "uid-a"});
    let status = json!({"reservedFor": [user], "allocation": *allocation});
    written.status = serde_json::from_value(status).expect("a status");
    fixture.handle(Input::ClaimWritten {
        pod: "uid-a".into(),
        in_flight: "uid-a".into(),
        claim: Arc::new(written.clone()),
    });
    fixture.handle(Input::ClaimsReady("uid-a".into()));
    assert!(fixture.run().message().is_empty());
    fixture.handle(Input::Claim(Observed::Applied(Box::new(written))));
    let outcome = fixture.run();
    let told = format!(
        "claim ns/a was allocated later: exceeded quota: team, requested: {NAME}=1, used: {NAME}=1, limited: {NAME}=1"
    );
    assert!(outcome.message().ends_with(&told), "{}", outcome.message());
    let freed = outcome.deallocated().and_then(|c| c.metadata.name.clone());
    assert_eq!(freed.as_deref(), Some("a"));
}

/// What a predecessor allocated counts, and serves its pod.
#[test]
fn no_count_is_lost_over_a_restart() {
    let mut fixture = Fixture::new("");
    let claim: Box<ResourceClaim> = fixture.object(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "spec": {"devices": {"requests": devices(1)}},
        "status": allocated("n0", &["a"]),
    }));
    let version = "200".to_owned();
    fixture.handle(Input::Claim(Observed::Listed {
        items: vec![*claim],
        version,
    }));
    fixture.quota("ns", 1);
    fixture.wants("ns", "b", devices(1));
    let outcome = fixture.run();
    assert!(
        outcome
            .message()
            .contains("used: c.deviceclass.allot.dev/allocated-devices=1")
    );
    fixture.pod("a", &["a"]);
    assert_eq!(fixture.run().node(), Some("n0"));
}

#[test]
fn extended_resources_that_devices_provide_count_as_well() {
    let mut fixture = Fixture::new("DRAExtendedResource=true");
    let wants = fixture.extended_resource();
    let quota = fixture.object(json!({
        "metadata": {"name": "team", "namespace": "ns"},
        "spec": {"hard": {"x.deviceclass.allot.dev/allocated-devices": "1"}},
    }));
    fixture.handle(Input::Quota(Observed::Applied(quota)));
    fixture.any_pod("p", &[], wants.clone());
    fixture.any_pod("q", &[], wants);
    let outcome = fixture.run();
    assert!(outcome.bound().is_some_and(|job| job.extended.is_some()));
    assert!(
        outcome.message().contains("2 exceeded quota: team, "),
        "{}",
        outcome.message()
    );
}
