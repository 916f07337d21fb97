//! API services: groups and versions and what serves them.

use allot_apimachinery::names;

use crate::registry::{ALL_METADATA, Builtin, CLUSTER, MetadataErrors, Rules, STATUS};
use crate::{table, validate};

pub(super) static API_SERVICE: Builtin = Builtin {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
    categories: &["api-extensions"],
    subresources: &[STATUS],
    rules: Rules {
        name: names::path_segment_name,
        storage_prefix: "apiregistration.k8s.io/apiservices",
        requires_version: |_| true,
        status_keeps: ALL_METADATA,
        validate: validate::config::api_service,
        metadata_errors: MetadataErrors::WithName,
        own_finalizers: true,
        table: Some(("Name|Service|Available|Age", table::control::api_service)),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};
