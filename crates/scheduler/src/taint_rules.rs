//! DeviceTaintRules, whichever version of the API serves them.

use allot_allocator::TaintRule;
use kube::api::DynamicObject;
use serde::Deserialize;

/// A rule that taints devices, as far as scheduling needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceTaintRule {
    /// Name of the DeviceTaintRule; a rule of the same name replaces this one.
    pub name: String,
    /// The devices it selects, and the taint.
    pub rule: TaintRule,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    device_selector: Option<Selector>,
    taint: k8s_openapi::api::resource::v1::DeviceTaint,
}

#[derive(Deserialize, Default)]
struct Selector {
    driver: Option<String>,
    pool: Option<String>,
    device: Option<String>,
}

impl DeviceTaintRule {
    /// Reads a rule of any version: the parts used here are the same in all of them.
    pub fn read(object: &DynamicObject) -> Option<Self> {
        let name = object.metadata.name.clone()?;
        let spec: Spec = match serde_json::from_value(object.data.get("spec")?.clone()) {
            Ok(spec) => spec,
            Err(error) => {
                tracing::warn!(rule = name, %error, "cannot read DeviceTaintRule");
                return None;
            }
        };
        // Without a selector a rule is about no device, with an empty one about all; no driver has an empty name.
        let Selector {
            driver,
            pool,
            device,
        } = spec.device_selector.unwrap_or(Selector {
            driver: Some(String::new()),
            ..Selector::default()
        });
        Some(Self {
            name,
            rule: TaintRule {
                driver,
                pool,
                device,
                taint: spec.taint,
            },
        })
    }
}
