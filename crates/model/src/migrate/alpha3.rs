//! v1alpha3 as 1.31 to 1.33 had it: like v1beta1, except for what was left of allocation by drivers.

use serde_json::Value;

use super::Context;
use crate::kind::{Kind, Version};
use crate::view::{View, remove};

impl<'a> Context<'a> {
    pub(super) fn alpha3(&mut self, kind: &str, document: &'a Value) {
        let mut value = document.clone();
        match kind {
            "DeviceTaintRule" => self.taint_rule(value),
            "ResourcePoolStatusRequest" => {
                self.modern(Kind::ResourcePoolStatusRequest, Version::V1Alpha3, value);
            }
            "DeviceClass" => {
                if document.at("spec").has("suitableNodes") {
                    self.note(&["spec", "suitableNodes"], "v1 classes do not choose nodes; give the driver's ResourceSlices a nodeSelector");
                    if let Some(spec) = value.get_mut("spec") {
                        remove(spec, "suitableNodes");
                    }
                }
                self.modern(Kind::DeviceClass, Version::V1Alpha3, value);
            }
            "ResourceClaim" | "ResourceClaimTemplate" => {
                self.claim_of_alpha3(kind, document, value)
            }
            "ResourceSlice" => self.modern(Kind::ResourceSlice, Version::V1Alpha3, value),
            "PodSchedulingContext" => {
                self.note(
                    &["kind"],
                    "negotiation between scheduler and drivers is gone; the object is left out",
                );
            }
            _ => self.note(
                &["kind"],
                format!("{kind} in v1alpha3 is not known; left out"),
            ),
        }
    }

    fn taint_rule(&mut self, mut value: Value) {
        if let Some(selector) = value.pointer_mut("/spec/deviceSelector") {
            let (class, selectors) = (selector.has("deviceClassName"), selector.has("selectors"));
            remove(selector, "deviceClassName");
            remove(selector, "selectors");
            if class {
                self.note(
                    &["spec", "deviceSelector", "deviceClassName"],
                    "taint rules no longer select by class",
                );
            }
            if selectors {
                self.note(
                    &["spec", "deviceSelector", "selectors"],
                    "taint rules no longer select by CEL expressions",
                );
            }
            if class || selectors {
                // Without them the rule would hit devices that it was not made for.
                return self.note(
                    &["spec", "deviceSelector"],
                    "the rule would taint other devices; it is left out",
                );
            }
        }
        self.modern(Kind::DeviceTaintRule, Version::V1Alpha3, value);
    }

    fn claim_of_alpha3(&mut self, kind: &str, document: &Value, mut value: Value) {
        let template = kind == "ResourceClaimTemplate";
        let (pointer, path): (&str, &[&str]) = if template {
            ("/spec/spec", &["spec", "spec", "controller"])
        } else {
            ("/spec", &["spec", "controller"])
        };
        if let Some(spec) = value
            .pointer_mut(pointer)
            .filter(|spec| spec.has("controller"))
        {
            remove(spec, "controller");
            self.note(
                path,
                "allocation by a driver's controller is gone; the scheduler allocates",
            );
        }
        if document.has("status") {
            remove(&mut value, "status");
            if document.at("status").has("allocation") {
                self.note(
                    &["status", "allocation"],
                    "an allocation is not carried over; the scheduler makes a new one",
                );
            }
        }
        let kind = if template {
            Kind::ResourceClaimTemplate
        } else {
            Kind::ResourceClaim
        };
        self.modern(kind, Version::V1Alpha3, value);
    }
}
