//! Admission webhooks and policies.

use super::{Object, child, set};

pub(super) fn rule(name: &str, map: &mut Object) {
    if name == "admissionregistration.v1alpha1.ParamRef" {
        set(map, "parameterNotFoundAction", "Deny");
    }
    match name.rsplit('.').next().unwrap_or_default() {
        kind @ ("ValidatingWebhook" | "MutatingWebhook") => {
            set(map, "failurePolicy", "Fail");
            set(map, "matchPolicy", "Equivalent");
            child(map, "namespaceSelector");
            child(map, "objectSelector");
            set(map, "timeoutSeconds", 10);
            if kind == "MutatingWebhook" {
                set(map, "reinvocationPolicy", "Never");
            }
        }
        "RuleWithOperations" | "NamedRuleWithOperations" => set(map, "scope", "*"),
        "ServiceReference" => set(map, "port", 443),
        "ValidatingAdmissionPolicySpec" | "MutatingAdmissionPolicySpec" => {
            set(map, "failurePolicy", "Fail");
        }
        "MatchResources" => {
            set(map, "matchPolicy", "Equivalent");
            child(map, "namespaceSelector");
            child(map, "objectSelector");
        }
        _ => {}
    }
}
