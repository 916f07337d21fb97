//! Admission of pods by the node, as by a kubelet: a pod that is not admitted fails before any of its containers starts.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::well_known::TAINT_NODE_MEMORY_PRESSURE;
use allot_model::tolerations::tolerates;
use allot_model::validate::is_extended_resource_name;
use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};

use super::super::security::check_system;
use super::super::{EVICTED, Node, Origin, is_critical};
use super::{ContainerState, Worker};
use crate::claims::containers;
use crate::events::Kind;
use crate::pressure::Pressed;
use crate::sysctls;

/// Why a pod is not admitted: the kubelet's reason and message.
fn refusal(node: &Node, pod: &Pod, origin: Origin) -> Option<(&'static str, String)> {
    let pressed = *node.pressed.borrow();
    if origin == Origin::Api && !is_permitted(pod, pressed) {
        let conditions = pressed.conditions().join(" ");
        return Some((EVICTED, format!("The node had condition: [{conditions}]. ")));
    }
    let spec = pod.spec.as_ref();
    if spec.is_some_and(|spec| check_system(spec).is_err()) {
        let text = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(("PodOSNotSupported", text.to_owned()));
    }
    let refused = node.config.sysctls.refusal(pod);
    refused.map(|message| (sysctls::FORBIDDEN, message))
}

/// Whether a pod may start while the node is under pressure. With too little memory only pods without requests may not.
fn is_permitted(pod: &Pod, pressed: Pressed) -> bool {
    let of_memory = Pressed {
        memory: true,
        ..Pressed::default()
    };
    if pressed == Pressed::default() || is_critical(pod) {
        return true;
    }
    let class = pod.status.as_ref().and_then(|it| it.qos_class.as_deref());
    let mut tolerations = pod
        .spec
        .iter()
        .flat_map(|it| it.tolerations.iter().flatten());
    pressed == of_memory
        && (class != Some("BestEffort") || tolerations.any(tolerates_memory_pressure))
}

/// Whether the taint of a node that has too little memory is tolerated. It has no value: operators that compare numbers
/// do not tolerate it, with their feature or without.
fn tolerates_memory_pressure(toleration: &Toleration) -> bool {
    let taint = Taint {
        key: TAINT_NODE_MEMORY_PRESSURE.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    tolerates(toleration, &taint)
}

/// Extended resources of a pod that nothing provides: the pod was bound without a scheduler, which would have allocated devices for
/// them. `own` are the resources that the node itself has.
fn missing(pod: &Pod, own: &BTreeMap<String, String>) -> BTreeSet<String> {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    if conditions.any(|it| it.type_ == "PodScheduled" && it.status == "True") {
        return BTreeSet::new();
    }
    let claim = status.and_then(|it| it.extended_resource_claim_status.as_ref());
    let mappings = claim.map(|it| &*it.request_mappings).unwrap_or_default();
    let given = |container: &str, resource: &str| {
        mappings
            .iter()
            .any(|it| it.container_name == container && it.resource_name == resource)
    };
    let mut all = BTreeSet::new();
    for container in containers(pod) {
        let resources = container.resources.as_ref();
        let amounts = resources.map(|it| [&it.requests, &it.limits]);
        let amounts = amounts.into_iter().flatten().flatten().flatten();
        let wanted = amounts.filter(|(name, amount)| {
            let devices = name.starts_with(OF_CLASS) || is_extended_resource_name(name);
            devices && amount.0 != "0" && !own.contains_key(*name) && !given(&container.name, name)
        });
        all.extend(wanted.map(|(name, _)| name.clone()));
    }
    all
}

/// What the name of a resource for devices of a class begins with.
const OF_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// A kubelet runs such a pod without its devices, and says nothing.
fn tell_missing(node: &Node, pod: &Pod) {
    let missing = missing(pod, &node.config.capacity);
    if missing.is_empty() {
        return;
    }
    let names: Vec<String> = missing.into_iter().collect();
    let message = format!(
        "The pod was bound without a scheduler, and no devices were allocated for {}: its containers run without them",
        names.join(", ")
    );
    let events = &node.events;
    events.pod(pod, None, Kind::Warning, "ResourcesNotProvided", message);
}

impl Worker {
    /// Whether a pod is admitted; if not, it fails. A pod is not evaluated again once one of its containers has started: the
    /// agent that started it may have had other settings.
    pub(super) fn is_admitted(&mut self, pod: &Pod) -> bool {
        // What the node is short of later is no reason any longer.
        if self.admitted
            || self
                .containers
                .lock()
                .values()
                .any(ContainerState::started_once)
        {
            return true;
        }
        let Some((reason, message)) = refusal(&self.node, pod, self.origin) else {
            self.admitted = true;
            tell_missing(&self.node, pod);
            return true;
        };
        let events = &self.node.events;
        events.pod(pod, None, Kind::Warning, reason, message.clone());
        self.failed = Some((reason, format!("Pod was rejected: {message}")));
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Such a pod ran without its device, and nothing said so.
    #[test]
    fn regression_resources_that_nothing_provides_are_named() {
        let own = [("example.com/own".to_owned(), "1".to_owned())].into();
        let check = |status: Value, expected: &[&str]| {
            let resources = json!({
                "limits": {"cpu": "1", "example.com/gpu": "1", "example.com/own": "1", "example.com/none": "0"},
                "requests": {"deviceclass.resource.kubernetes.io/gpu": "1", "hugepages-2Mi": "2Mi"},
            });
            let spec =
                json!({"containers": [{"name": "c", "resources": resources}, {"name": "d"}]});
            let pod = json!({"spec": spec, "status": status});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let missing: Vec<String> = missing(&pod, &own).into_iter().collect();
            assert_eq!(missing, expected, "{status}");
        };
        let both = ["deviceclass.resource.kubernetes.io/gpu", "example.com/gpu"];
        check(json!({}), &both);
        let of = |container: &str| {
            json!({"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [
                {"containerName": container, "resourceName": "example.com/gpu", "requestName": "r"},
            ]}})
        };
        check(of("c"), &both[..1]);
        check(of("d"), &both);
        // Bound by a scheduler, which may have been told to ignore them.
        check(
            json!({"conditions": [{"type": "PodScheduled", "status": "True"}]}),
            &[],
        );
    }

    #[test]
    fn pods_are_rejected_under_pressure_as_by_a_kubelet() {
        let check = |class: &str, spec: Value, pressed: [bool; 3]| {
            let status = json!({"qosClass": class});
            let pod = json!({"spec": spec, "status": status});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let [memory, disk, processes] = pressed;
            let pressed = Pressed {
                memory,
                disk,
                processes,
            };
            is_permitted(&pod, pressed)
        };
        let (memory, disk) = ([true, false, false], [false, true, false]);
        let plain = || json!({"containers": []});
        assert!(check("BestEffort", plain(), [false; 3]));
        assert!(!check("BestEffort", plain(), memory));
        assert!(check("Burstable", plain(), memory));
        assert!(check("Guaranteed", plain(), memory));
        for pressed in [disk, [false, false, true], [true, true, false]] {
            assert!(!check("Guaranteed", plain(), pressed), "{pressed:?}");
        }
        let critical = json!({"containers": [], "priority": 2_000_000_000});
        assert!(check("BestEffort", critical, [true; 3]));
        let high = json!({"containers": [], "priority": 1_999_999_999});
        assert!(!check("BestEffort", high, disk));
        let key = "node.kubernetes.io/memory-pressure";
        for (toleration, permitted) in [
            (json!({"key": key, "operator": "Exists"}), true),
            (json!({"key": key}), true),
            (json!({"operator": "Exists", "effect": "NoSchedule"}), true),
            (
                json!({"key": key, "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": key, "value": "x"}), false),
            (json!({"key": key, "operator": "Gt", "value": "-1"}), false),
            (
                json!({"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}),
                false,
            ),
        ] {
            let spec = json!({"containers": [], "tolerations": [toleration]});
            assert_eq!(
                check("BestEffort", spec.clone(), memory),
                permitted,
                "{toleration}"
            );
            assert!(!check("BestEffort", spec, disk));
        }
    }
}
