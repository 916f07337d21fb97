//! ResourceClaimTemplates.

use allot_apimachinery::field::{ErrorList, Path};
use allot_apimachinery::names as rules;
use serde_json::Value;

use super::{claim, meta};
use crate::features::Features;
use crate::shape::{self, tables};
use crate::view::View;

pub(super) fn create(template: &Value, features: &Features) -> ErrorList {
    let mut errors = meta::object_meta(
        template.at("metadata"),
        true,
        rules::dns1123_subdomain,
        &Path::new("metadata"),
    );
    let spec = template.at("spec");
    let path = Path::new("spec");
    errors.extend(meta::template_meta(
        spec.at("metadata"),
        &path.child("metadata"),
    ));
    errors.extend(claim::spec(spec.at("spec"), features, &path.child("spec")));
    errors
}

/// The spec is immutable, so it is not validated again.
pub(super) fn update(template: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::object_meta_update(
        template.at("metadata"),
        old.at("metadata"),
        &Path::new("metadata"),
    );
    let ty = shape::Ty::Struct(&tables::TEMPLATE_SPEC);
    errors.extend(claim::immutable(
        ty,
        template.at("spec"),
        old.at("spec"),
        &Path::new("spec"),
    ));
    errors
}
