//! Configuration of ResourceQuota: what may be consumed only where a quota says how much of it.

use allot_apimachinery::field::{Error, ErrorList, Path, aggregate};
use allot_model::quota::ScopeTerm;
use serde::Deserialize;

use crate::config::decode::{Document, Fields, Kind};

const KIND: Kind = Kind {
    types: &[
        ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
        ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
        ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
    ],
    fields: Some(Fields::Object(&[(
        "limitedResources",
        Fields::List(&Fields::Object(&[
            ("apiGroup", Fields::Any),
            ("resource", Fields::Any),
            ("matchContains", Fields::Any),
            (
                "matchScopes",
                Fields::List(&Fields::Object(&[
                    ("scopeName", Fields::Any),
                    ("operator", Fields::Any),
                    ("values", Fields::Any),
                ])),
            ),
        ])),
    )])),
};

/// A resource whose consumption needs a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitedResource {
    /// Its group.
    pub api_group: String,
    /// Its name in paths.
    pub resource: String,
    /// Parts of the names of amounts that a quota has to limit.
    pub match_contains: Vec<String>,
    /// Objects that match one of these need a quota with the same scope.
    pub match_scopes: Vec<ScopeTerm>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    limited_resources: Vec<LimitedResource>,
}

/// Reads a configuration.
pub(super) fn read(document: Document) -> Result<Vec<LimitedResource>, String> {
    let written: Written = KIND.decode(document)?;
    let mut errors = ErrorList::new();
    for (index, limited) in written.limited_resources.iter().enumerate() {
        if limited.resource.is_empty() {
            let path = Path::new("limitedResources").index(index);
            errors.push(Error::required(&path.child("resource"), ""));
        }
    }
    match aggregate(&errors) {
        Some(why) => Err(why),
        None => Ok(written.limited_resources),
    }
}
