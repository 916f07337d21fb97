//! Device taints and the rules that put them on devices.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names as rules;
use serde_json::Value;

use super::claim::{TAINT_EFFECTS, not_supported};
use super::{conditions, meta, names};
use crate::limits;
use crate::view::View;

/// Checks a taint. An effect that `old` had already stays acceptable, even if unknown.
pub(super) fn taint(taint: &Value, old: Option<&Value>, path: &Path) -> ErrorList {
    let mut errors = names::label_name(taint.text("key"), &path.child("key"));
    let value = taint.text("value");
    if !value.is_empty() {
        errors.extend(names::label_value(value, &path.child("value")));
    }
    let effect = taint.text("effect");
    let effect_path = path.child("effect");
    if old.is_none_or(|old| old.text("effect") != effect) {
        if effect.is_empty() {
            errors.push(Error::required(&effect_path, ""));
        } else if !TAINT_EFFECTS.contains(&effect) {
            errors.push(not_supported(&effect_path, effect, &TAINT_EFFECTS));
        }
    }
    errors
}

pub(super) fn create_rule(rule: &Value) -> ErrorList {
    let mut errors = meta::object_meta(
        rule.at("metadata"),
        false,
        rules::dns1123_subdomain,
        &Path::new("metadata"),
    );
    errors.extend(rule_spec(rule.at("spec"), None));
    errors
}

pub(super) fn update_rule(rule: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::object_meta_update(
        rule.at("metadata"),
        old.at("metadata"),
        &Path::new("metadata"),
    );
    errors.extend(rule_spec(rule.at("spec"), Some(old.at("spec"))));
    errors
}

pub(super) fn update_rule_status(rule: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::object_meta_update(
        rule.at("metadata"),
        old.at("metadata"),
        &Path::new("metadata"),
    );
    let path = Path::new("status").child("conditions");
    let conditions = rule.at("status").list("conditions");
    errors.extend(conditions::conditions(conditions, &path));
    if conditions.len() > limits::TAINT_RULE_CONDITIONS {
        errors.push(Error::too_many(
            &path,
            conditions.len(),
            limits::TAINT_RULE_CONDITIONS,
        ));
    }
    errors
}

fn rule_spec(spec: &Value, old: Option<&Value>) -> ErrorList {
    let path = Path::new("spec");
    let selector = spec.at("deviceSelector");
    let selector_path = path.child("deviceSelector");
    let mut errors = ErrorList::new();
    if let Some(driver) = selector.opt_text("driver") {
        errors.extend(names::driver(driver, &selector_path.child("driver")));
    }
    if let Some(pool) = selector.opt_text("pool") {
        errors.extend(names::pool(pool, &selector_path.child("pool")));
    }
    if let Some(device) = selector.opt_text("device") {
        errors.extend(names::label(device, &selector_path.child("device")));
    }
    errors.extend(taint(
        spec.at("taint"),
        old.map(|old| old.at("taint")),
        &path.child("taint"),
    ));
    errors
}
