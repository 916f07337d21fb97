//! Validation, with upstream's paths, kinds of errors and texts.
//!
//! The objects are in hub form (see [`Kind::hub`]) and have been defaulted. Accepted objects stay valid: unchanged
//! selectors, configuration, capacity and taints are not validated by newer rules.
//!
//! The rules in the submodules are named after what they check; [`create`], [`update`] and [`status_update`] put them
//! together the way the API server does.

mod capacity;
pub(crate) mod claim;
mod class;
pub(crate) mod common;
mod conditions;
pub mod meta;
pub(crate) mod names;
pub(crate) mod node_selector;
mod opaque;

pub mod pod;
mod pool_status;
pub(crate) mod slice;
mod status;
mod taint;
mod template;
#[cfg(test)]
mod tests;

use allot_apimachinery::field::{ErrorList, Path};
use serde_json::Value;

use crate::features::{Feature, Features};
use crate::kind::Kind;
use crate::view::View;

pub use crate::shape::{RawTexts, showing_raw};
pub use claim::TAINT_EFFECTS;
pub use class::is_extended_resource_name;

/// Validates a new object.
pub fn create(kind: Kind, value: &Value, features: &Features) -> ErrorList {
    match kind {
        Kind::DeviceClass => class::create(value, features),
        Kind::ResourceClaim => claim::create(value, features),
        Kind::ResourceClaimTemplate => template::create(value, features),
        Kind::ResourceSlice => slice::create(value, features),
        Kind::DeviceTaintRule => taint::create_rule(value),
        Kind::ResourcePoolStatusRequest => pool_status::create(value),
    }
}

/// Validates an object that replaces `old` through the main endpoint.
pub fn update(kind: Kind, value: &Value, old: &Value, features: &Features) -> ErrorList {
    match kind {
        Kind::DeviceClass => class::update(value, old, features),
        Kind::ResourceClaim => claim::update(value, old),
        Kind::ResourceClaimTemplate => template::update(value, old),
        Kind::ResourceSlice => slice::update(value, old, features),
        Kind::DeviceTaintRule => taint::update_rule(value, old),
        Kind::ResourcePoolStatusRequest => pool_status::update(value, old),
    }
}

/// Validates an object whose status replaces that of `old`. Kinds without a status have no errors.
pub fn status_update(kind: Kind, value: &Value, old: &Value) -> ErrorList {
    match kind {
        Kind::ResourceClaim => status::update(value, old),
        Kind::DeviceTaintRule => taint::update_rule_status(value, old),
        Kind::ResourcePoolStatusRequest => pool_status::update_status(value, old),
        Kind::DeviceClass | Kind::ResourceClaimTemplate | Kind::ResourceSlice => ErrorList::new(),
    }
}

/// Warnings for a client that creates or replaces an object.
pub fn warnings(kind: Kind, value: &Value) -> Vec<String> {
    let driver = value.at("spec").text("driver");
    if kind != Kind::ResourceSlice || !driver.chars().any(char::is_uppercase) {
        return Vec::new();
    }
    let quoted = allot_apimachinery::quote::quote(driver);
    vec![format!(
        "spec.driver: driver names should be lowercase; {quoted} contains uppercase characters"
    )]
}

/// Checks a list of `metav1.Condition` at `path`.
pub fn conditions(list: &[Value], path: &Path) -> ErrorList {
    conditions::conditions(list, path)
}

fn consumable_capacity(features: &Features) -> bool {
    features.enabled(Feature::DRAConsumableCapacity)
}
