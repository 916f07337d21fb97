//! Admission of pods by the node, as by a kubelet: a pod that is not admitted fails before any of its containers starts.

use allot_apimachinery::well_known::TAINT_NODE_MEMORY_PRESSURE;
use k8s_openapi::api::core::v1::{Pod, Toleration};

use super::super::security::check_system;
use super::super::{EVICTED, Node, Origin, is_critical};
use super::{ContainerState, Worker};
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

/// Whether the taint of a node that has too little memory is tolerated.
fn tolerates_memory_pressure(toleration: &Toleration) -> bool {
    let parts = [
        &toleration.key,
        &toleration.operator,
        &toleration.value,
        &toleration.effect,
    ];
    let [key, operator, value, effect] = parts.map(|it| it.as_deref().unwrap_or_default());
    let of_taint = key == TAINT_NODE_MEMORY_PRESSURE || (key.is_empty() && operator == "Exists");
    let by_value = matches!(operator, "" | "Equal") && value.is_empty();
    of_taint && matches!(effect, "" | "NoSchedule") && (operator == "Exists" || by_value)
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
