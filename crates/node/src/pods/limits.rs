//! Converts requests and limits of the API to the limits that the kernel enforces.

use std::collections::BTreeMap;

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::resources::{limits_of_pod, quantity, requests};
use crate::shim::spec::{Limits, PodLimits};

/// Smallest and largest CPU shares that the kernel accepts.
const SHARES: (i64, i64) = (2, 262_144);

/// What all containers of a pod may use up together: the limits of the pod as a whole with its overhead, and `pids` processes. The
/// share of the CPU is that of the pod's requests.
pub(super) fn of_pod(pod: &Pod, pids: Option<i64>) -> PodLimits {
    let overhead = pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref());
    let milli = |list, name: &str| quantity(list, name).map(|it| it.milli_value());
    let bytes = |list, name: &str| quantity(list, name).map(|it| it.value());
    let cpu = milli(limits_of_pod(pod), "cpu").filter(|it| *it > 0);
    let cpu = cpu.map(|cpu| cpu.saturating_add(milli(overhead, "cpu").unwrap_or(0)));
    let memory = bytes(limits_of_pod(pod), "memory").filter(|it| *it > 0);
    let memory = memory.map(|it| it.saturating_add(bytes(overhead, "memory").unwrap_or(0)));
    let requested = requests(pod, &BTreeMap::new());
    PodLimits {
        cpu_shares: Some(shares(requested.cpu)),
        cpu_quota: cpu.map(quota),
        memory,
        pids,
    }
}

/// The CPU shares of thousandths of a processor.
fn shares(milli_cpu: i64) -> u64 {
    (milli_cpu.saturating_mul(1024) / 1000).clamp(SHARES.0, SHARES.1) as u64
}

/// The quota of thousandths of a processor. A period is 100 ms; less than 1 ms of it is not possible.
fn quota(milli_cpu: i64) -> i64 {
    milli_cpu.saturating_mul(100).max(1000)
}

/// What a container may use up. `memory` is the capacity of the node in bytes.
pub(super) fn of(pod: &Pod, container: &Container, memory: i64) -> Limits {
    let resources = container.resources.clone().unwrap_or_default();
    // A container without a limit has that of its pod, if the pod has one.
    let of_pod = limits_of_pod(pod);
    let limit = |name: &str| {
        let own = quantity(resources.limits.as_ref(), name).filter(|limit| !limit.is_zero());
        own.or_else(|| quantity(of_pod, name))
    };
    let request = |name: &str| quantity(resources.requests.as_ref(), name);
    let cpu = request("cpu").or_else(|| limit("cpu"));
    let cpu = cpu.map_or(0, |cpu| cpu.milli_value());
    let pages = resources
        .limits
        .iter()
        .flatten()
        .filter_map(|(name, amount)| {
            let size = name.strip_prefix("hugepages-")?;
            let bytes: Quantity = amount.0.parse().ok()?;
            Some((page_size(size)?, u64::try_from(bytes.value()).ok()?))
        });
    let bytes = |quantity: Quantity| quantity.value();
    Limits {
        cpu_shares: Some(shares(cpu)),
        cpu_quota: limit("cpu").map(|cpu| quota(cpu.milli_value())),
        memory: limit("memory").map(bytes).filter(|bytes| *bytes > 0),
        pids: None,
        huge_pages: pages.collect(),
        root: quantity(resources.limits.as_ref(), "ephemeral-storage")
            .map(|it| bytes(it).max(1 << 20) as u64),
        oom_score_adj: Some(oom_score(pod, request("memory").map_or(0, bytes), memory)),
        ..Limits::default()
    }
}

/// A size as the kernel writes it: `2Mi` is `2MB`.
fn page_size(size: &str) -> Option<String> {
    let bytes: Quantity = size.parse().ok()?;
    let bytes = u64::try_from(bytes.value()).ok()?;
    let units = [("GB", 30), ("MB", 20), ("KB", 10)];
    let (unit, shift) = units
        .into_iter()
        .find(|(_, shift)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift))?;
    Some(format!("{}{unit}", bytes >> shift))
}

/// The OOM score adjustment, by the kubelet's rules.
fn oom_score(pod: &Pod, request: i64, memory: i64) -> i32 {
    let class = pod
        .status
        .as_ref()
        .and_then(|status| status.qos_class.as_deref());
    match class {
        Some("Guaranteed") => -997,
        Some("Burstable") if memory > 0 => {
            let share = 1000 - (i128::from(request) * 1000 / i128::from(memory)) as i64;
            share.clamp(3, 999) as i32
        }
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(class: &str, resources: Value, expected: Limits) {
        let pod = json!({"metadata": {}, "status": {"qosClass": class}});
        let container = json!({"name": "c", "resources": resources});
        let found = of(
            &serde_json::from_value(pod).unwrap(),
            &serde_json::from_value(container).unwrap(),
            1 << 30,
        );
        assert_eq!(found, expected);
    }

    #[test]
    fn quantities_become_numbers_of_the_kernel() {
        let none = Limits {
            cpu_shares: Some(2),
            oom_score_adj: Some(1000),
            ..Limits::default()
        };
        check("BestEffort", json!({}), none.clone());
        let both = json!({"requests": {"cpu": "500m", "memory": "512Mi"},
            "limits": {"cpu": "1500m", "memory": "1Gi", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"}});
        check(
            "Burstable",
            both,
            Limits {
                cpu_shares: Some(512),
                cpu_quota: Some(150_000),
                memory: Some(1 << 30),
                huge_pages: [("2MB".to_owned(), 4 << 20)].into(),
                root: Some(1 << 30),
                oom_score_adj: Some(500),
                ..Limits::default()
            },
        );
        let small = json!({"limits": {"cpu": "1m"}});
        let expected = Limits {
            cpu_quota: Some(1000),
            oom_score_adj: Some(-997),
            ..none
        };
        check("Guaranteed", small, expected);
    }

    #[test]
    fn a_pod_has_the_limits_of_the_whole_and_the_shares_of_its_requests() {
        let check = |spec: Value, expected: PodLimits| {
            let pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            assert_eq!(of_pod(&pod, Some(7)), expected);
        };
        let none = PodLimits {
            cpu_shares: Some(2),
            pids: Some(7),
            ..PodLimits::default()
        };
        check(json!({"containers": [{"name": "c"}]}), none);
        let own = json!({"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        let two = json!([{"name": "c", "resources": own}, {"name": "d", "resources": own}]);
        let shares = PodLimits {
            cpu_shares: Some(512),
            ..none
        };
        check(json!({"containers": two}), shares);
        let whole = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}});
        let limits = PodLimits {
            cpu_shares: Some(1024 + 102),
            cpu_quota: Some(210_000),
            memory: Some((1 << 30) + (1 << 20)),
            ..none
        };
        check(
            json!({"containers": two, "resources": whole, "overhead": {"cpu": "100m", "memory": "1Mi"}}),
            limits,
        );
    }

    #[test]
    fn a_container_without_a_limit_has_that_of_its_pod() {
        let whole = json!({"limits": {"cpu": "2", "memory": "1Gi"}});
        let pod = json!({"metadata": {}, "spec": {"containers": [], "resources": whole}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let check = |resources: Value, shares: u64, quota: i64, memory: i64| {
            let container = json!({"name": "c", "resources": resources});
            let found = of(&pod, &serde_json::from_value(container).unwrap(), 1 << 30);
            assert_eq!(found.cpu_shares, Some(shares));
            assert_eq!(found.cpu_quota, Some(quota));
            assert_eq!(found.memory, Some(memory));
        };
        check(json!({}), 2048, 200_000, 1 << 30);
        check(json!({"requests": {"cpu": "1"}}), 1024, 200_000, 1 << 30);
        let own = json!({"limits": {"cpu": "500m", "memory": "1Mi"}});
        check(own, 512, 50_000, 1 << 20);
    }
}
