//! Resource slices.

use std::borrow::Cow;

use allot_model::Kind;
use allot_model::features::Release;
use allot_model::selectable;
use allot_model::validate::warnings;

use super::RESOURCE;
use crate::registry::{Builtin, Resource, Rules, UnsupportedField};
use crate::select::CLASSIC_DRIVER;

pub(super) static RESOURCE_SLICE: Builtin = Builtin {
    kind: "ResourceSlice",
    plural: "resourceslices",
    namespaced: false,
    rules: Rules {
        selectable_in: Some(selectable),
        selects_namespace: false,
        unsupported_field: UnsupportedField::NotSupportedForVersion,
        warnings: |object| warnings(Kind::ResourceSlice, object),
        ..RESOURCE.rules
    },
    ..RESOURCE
};

/// Fields of field selectors: the pool's name since 1.37, and those of classic slices where both are served.
fn selectable(resource: &Resource) -> Vec<Cow<'static, str>> {
    let fields: &[&'static str] = if crate::classic::is_apart(resource) {
        &["spec.nodeName", "spec.driver", "nodeName", CLASSIC_DRIVER]
    } else if resource.release >= Release::new(37) {
        &[
            selectable::SLICE_NODE_NAME,
            selectable::SLICE_DRIVER,
            selectable::SLICE_POOL_NAME,
        ]
    } else {
        &[selectable::SLICE_NODE_NAME, selectable::SLICE_DRIVER]
    };
    fields.iter().copied().map(Cow::Borrowed).collect()
}
