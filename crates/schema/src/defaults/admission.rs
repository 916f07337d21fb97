//! Admission webhooks and policies.

use super::{Object, child, set, set_absent};

pub(super) fn rule(name: &str, map: &mut Object) {
    if name == "admissionregistration.v1alpha1.ParamRef" {
        set_absent(map, "parameterNotFoundAction", "Deny");
    }
    match name.rsplit('.').next().unwrap_or_default() {
        kind @ ("ValidatingWebhook" | "MutatingWebhook") => {
            set_absent(map, "failurePolicy", "Fail");
            set_absent(map, "matchPolicy", "Equivalent");
            child(map, "namespaceSelector");
            child(map, "objectSelector");
            set(map, "timeoutSeconds", 10);
            if kind == "MutatingWebhook" {
                set_absent(map, "reinvocationPolicy", "Never");
            }
        }
        "RuleWithOperations" | "NamedRuleWithOperations" => set_absent(map, "scope", "*"),
        "ServiceReference" => set(map, "port", 443),
        "ValidatingAdmissionPolicySpec" | "MutatingAdmissionPolicySpec" => {
            set_absent(map, "failurePolicy", "Fail");
        }
        "MatchResources" => {
            set_absent(map, "matchPolicy", "Equivalent");
            child(map, "namespaceSelector");
            child(map, "objectSelector");
        }
        _ => {}
    }
}
