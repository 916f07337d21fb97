//! The kinds of the core group.

use crate::registry::Builtin;

mod binding;
mod component_status;
mod config_map;
mod endpoints;
pub(super) mod event;
mod limit_range;
mod namespace;
mod node;
pub(super) mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod secret;
mod service;
mod service_account;

pub use service::address_errors as service_address_errors;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &binding::BINDING,
    &component_status::COMPONENT_STATUS,
    &config_map::CONFIG_MAP,
    &endpoints::ENDPOINTS,
    &event::EVENT,
    &limit_range::LIMIT_RANGE,
    &namespace::NAMESPACE,
    &node::NODE,
    &persistent_volume::PERSISTENT_VOLUME,
    &persistent_volume_claim::PERSISTENT_VOLUME_CLAIM,
    &pod::POD,
    &pod_template::POD_TEMPLATE,
    &replication_controller::REPLICATION_CONTROLLER,
    &resource_quota::RESOURCE_QUOTA,
    &secret::SECRET,
    &service::SERVICE,
    &service_account::SERVICE_ACCOUNT,
];
