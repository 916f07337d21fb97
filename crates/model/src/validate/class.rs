//! DeviceClasses.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names as rules;
use serde_json::Value;

use super::common::list;
use super::{claim, meta, opaque};
use crate::features::Features;
use crate::limits;
use crate::shape::{self, tables};
use crate::view::View;

pub(super) fn create(class: &Value, features: &Features) -> ErrorList {
    let mut errors = meta::object_meta(
        class.at("metadata"),
        false,
        rules::declared_subdomain,
        &Path::new("metadata"),
    );
    errors.extend(spec(class.at("spec"), None, features));
    errors
}

pub(super) fn update(class: &Value, old: &Value, features: &Features) -> ErrorList {
    let path = Path::new("metadata");
    let mut errors = meta::object_meta(
        class.at("metadata"),
        false,
        rules::declared_subdomain,
        &path,
    );
    errors.extend(meta::object_meta_update(
        class.at("metadata"),
        old.at("metadata"),
        &path,
    ));
    errors.extend(spec(class.at("spec"), Some(old.at("spec")), features));
    errors
}

/// Lists that are as they were count as stored; any change, even of the order, makes all of their items new.
fn spec(spec: &Value, old: Option<&Value>, features: &Features) -> ErrorList {
    let path = Path::new("spec");
    let stored = |key: &str, ty| old.is_some_and(|old| shape::equal(ty, spec.at(key), old.at(key)));
    let selectors_stored = stored("selectors", tables::SELECTORS);
    let mut errors = claim::selectors(
        spec.list("selectors"),
        features,
        selectors_stored,
        &path.child("selectors"),
    );
    let config_stored = stored("config", tables::CLASS_CONFIG);
    errors.extend(list(
        spec.list("config"),
        limits::CONFIGS,
        &path.child("config"),
        |config, path| opaque::configuration(config, path, config_stored),
    ));
    if let Some(name) = spec.opt_text("extendedResourceName")
        && !is_extended_resource_name(name)
    {
        let text = "must be a valid extended resource name";
        errors.push(Error::invalid(
            &path.child("extendedResourceName"),
            name,
            text,
        ));
    }
    errors
}

/// A resource name with a domain that is not Kubernetes' own and that fits into a quota.
pub fn is_extended_resource_name(name: &str) -> bool {
    const QUOTA_PREFIX: &str = "requests.";
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with(QUOTA_PREFIX)
        && rules::qualified_name(&format!("{QUOTA_PREFIX}{name}")).is_empty()
}
