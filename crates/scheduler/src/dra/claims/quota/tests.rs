use allot_allocator::{Cluster, Features};
use serde_json::{Value, json};

use super::*;

const NAME: &str = "gpu.deviceclass.allot.dev/allocated-devices";

fn quota(limit: u32) -> ResourceQuota {
    let spec = json!({"hard": {NAME: limit.to_string()}});
    let quota = json!({"metadata": {"name": "q", "namespace": "ns"}, "spec": spec});
    serde_json::from_value(quota).expect("a quota")
}

/// A claim for a list of which the first alternative is not of the class, with so many devices of the second.
fn claim(name: &str, version: u64, devices: usize) -> Arc<ResourceClaim> {
    let result = |n: usize| json!({"request": "r/small", "driver": "d", "pool": "p", "device": format!("{name}-{n}")});
    let results: Vec<Value> = (0..devices).map(result).collect();
    let allocation = match devices {
        0 => Value::Null,
        _ => json!({"devices": {"results": results}}),
    };
    let list = json!([
        {"name": "large", "deviceClassName": "other", "allocationMode": "ExactCount", "count": 9},
        {"name": "small", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": devices.max(1)},
    ]);
    let claim = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string()},
        "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": list}]}},
        "status": {"allocation": allocation},
    });
    Arc::new(serde_json::from_value(claim).expect("a claim"))
}

fn used(claims: &Claims) -> (i64, i64) {
    let quotas = claims.quotas();
    let (used, seen) = (&quotas.used, &quotas.seen);
    (used.total("ns", "gpu"), seen.total("ns", "gpu"))
}

fn with_quota(limit: u32) -> Claims {
    let mut claims = Claims::new(Cluster::new(Features::ALL));
    claims.observe_quotas(&[quota(limit)]);
    claims
}

fn is_late(claims: &Claims, name: &str) -> bool {
    let claim = claims.get(&Key::new("ns", name)).expect("a claim");
    claims.late_for_quota(claim).is_some()
}

/// From the decision to the release there is no moment in which a device is not counted, or counted twice.
#[test]
fn an_allocation_counts_from_the_decision_on() {
    let mut claims = with_quota(9);
    let (open, pod) = (claim("a", 1, 0), Uid::from("pod"));
    claims.observe(open.clone());
    assert_eq!(used(&claims), (0, 0));
    let written = claim("a", 2, 2);
    let allocation = Arc::new(allocation_of(&written).expect("one").clone());
    claims.reserve(&open, &allocation, &pod);
    assert_eq!(used(&claims), (2, 0));
    claims.assume(written.clone());
    assert_eq!(used(&claims), (2, 0));
    claims.finish_write(&Uid::from("a"), &pod, true);
    assert_eq!(used(&claims), (2, 0));
    claims.observe(written);
    assert_eq!(used(&claims), (2, 2));
    claims.observe(claim("a", 3, 0));
    assert_eq!(used(&claims), (0, 0));
    // One that is not written counts no longer.
    claims.reserve(&open, &allocation, &pod);
    claims.finish_write(&Uid::from("a"), &pod, false);
    assert_eq!(used(&claims), (0, 0));
    // A claim that is deleted while an allocation is written counts until that has an outcome.
    claims.reserve(&open, &allocation, &pod);
    claims.observe_deleted(&Key::new("ns", "a"));
    assert_eq!(used(&claims), (2, 0));
    claims.finish_write(&Uid::from("a"), &pod, true);
    assert_eq!(used(&claims), (0, 0));
}

/// The count is in the claims: a scheduler that starts has it, in whatever order the lists arrive, and so has one that
/// learns of the quota later.
#[test]
fn a_quota_that_comes_later_counts_what_there_is() {
    let list = || [claim("a", 2, 2), claim("b", 3, 1)].into_iter();
    let mut first = with_quota(5);
    first.observe_list(list());
    let mut later = Claims::new(Cluster::new(Features::ALL));
    later.observe_list(list());
    let open = claim("c", 4, 0);
    later.observe(open.clone());
    let allocation = Arc::new(allocation_of(&claim("c", 5, 1)).expect("one").clone());
    later.reserve(&open, &allocation, &Uid::from("pod"));
    later.observe_quota(&quota(5), false);
    assert_eq!((used(&first), used(&later)), ((3, 3), (4, 3)));
    later.observe_quota(&quota(5), true);
    assert_eq!(used(&later), (0, 0));
}

#[test]
fn the_claim_that_is_shown_later_is_late() {
    let mut claims = with_quota(2);
    claims.observe_list([].into_iter());
    claims.observe(claim("a", 2, 1));
    claims.observe(claim("b", 3, 2));
    assert_eq!(
        (is_late(&claims, "a"), is_late(&claims, "b")),
        (false, true)
    );
    // There is enough for it when the first one is gone.
    claims.observe(claim("a", 4, 0));
    assert!(!is_late(&claims, "b"));
    claims.observe(claim("a", 5, 1));
    assert_eq!(
        (is_late(&claims, "a"), is_late(&claims, "b")),
        (true, false)
    );
    // Or with a higher limit.
    claims.observe_quota(&quota(3), false);
    assert!(!is_late(&claims, "a"));
    // Lowering it makes no claim late.
    claims.observe_quota(&quota(1), false);
    assert!(!is_late(&claims, "a") && !is_late(&claims, "b"));
    claims.observe_quota(&quota(1), true);
    assert!(claims.quotas.late.is_empty());
}

/// Of several claims in a list it is unknown which was the first: that which is tried first gives way.
#[test]
fn of_a_list_all_are_late_until_one_has_given_way() {
    let list = || [claim("a", 2, 1), claim("b", 3, 1)].into_iter();
    let mut claims = with_quota(1);
    claims.observe_list(list());
    assert!(is_late(&claims, "a") && is_late(&claims, "b"));
    claims.observe(claim("a", 4, 0));
    assert!(!is_late(&claims, "b"));
    // The same when the quotas are listed after the claims.
    let mut claims = Claims::new(Cluster::new(Features::ALL));
    claims.observe_list(list());
    claims.observe_quotas(&[quota(1)]);
    assert!(is_late(&claims, "a") && is_late(&claims, "b"));
    claims.observe_deleted(&Key::new("ns", "b"));
    assert!(!is_late(&claims, "a") && claims.quotas.late.is_empty());
}

/// A scheduler that started after a quota was lowered took devices away from claims that had been within it.
#[test]
fn regression_a_lowered_quota_takes_nothing_away_over_a_restart() {
    let changed_at = |limit: u32, time: &str| {
        let mut quota = quota(limit);
        let entry = |time: &str, subresource: &str, fields: Value| {
            json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
                "subresource": subresource, "fieldsV1": fields})
        };
        let entries = json!([
            entry(time, "", json!({"f:spec": {"f:hard": {}}})),
            // The controller's, and that of another client for a label.
            entry(
                "2027-01-01T00:00:00Z",
                "status",
                json!({"f:spec": {}, "f:status": {}})
            ),
            entry("2027-01-01T00:00:00Z", "", json!({"f:metadata": {}})),
        ]);
        let entries = serde_json::from_value(entries).expect("entries");
        quota.metadata.managed_fields = Some(entries);
        quota
    };
    let allocated_at = |name: &str, time: &str| {
        let mut claim = (*claim(name, 2, 2)).clone();
        let allocation = claim.status.as_mut().and_then(|it| it.allocation.as_mut());
        let time = serde_json::from_value(json!(time)).expect("a time");
        allocation.expect("allocated").allocation_timestamp = Some(time);
        Arc::new(claim)
    };
    for is_quota_first in [true, false] {
        let mut claims = Claims::new(Cluster::new(Features::ALL));
        let quotas = [changed_at(3, "2026-01-01T00:00:10Z")];
        if is_quota_first {
            claims.observe_quotas(&quotas);
        }
        let list = [
            allocated_at("a", "2026-01-01T00:00:09Z"),
            allocated_at("b", "2026-01-01T00:00:10Z"),
            claim("c", 2, 1),
        ];
        claims.observe_list(list.into_iter());
        if !is_quota_first {
            claims.observe_quotas(&quotas);
        }
        // In the same second, or at an unknown time, either may have been first.
        let late = ["a", "b", "c"].map(|name| is_late(&claims, name));
        assert_eq!(late, [false, true, true]);
    }
}

#[test]
fn admin_access_does_not_count() {
    let mut claims = with_quota(1);
    let mut admin = (*claim("a", 2, 2)).clone();
    let status = admin.status.as_mut().expect("a status");
    let devices = status.allocation.as_mut().and_then(|a| a.devices.as_mut());
    for result in devices
        .into_iter()
        .flat_map(|d| d.results.iter_mut().flatten())
    {
        result.admin_access = Some(true);
    }
    claims.observe(Arc::new(admin));
    assert_eq!(used(&claims), (0, 0));
}
