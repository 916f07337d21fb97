//! The chain of admission in upstream's order. What users install has its place at the end, before the quotas.

use serde_json::Value;

use super::plugins::Plugin;
use super::{
    Admission, Attributes, Operation, accounts, certificates, declared, dynamic, enabled,
    escalation, forbidden, groups, image_policy, images, is_whole_pod, limits, namespaces, node,
    owners, pods, quota, resize, security, selectors, services, storage, tolerations,
    writes_whole_pod,
};
use crate::error::Result;
use crate::object::meta;
use crate::request::Warnings;

/// Runs the mutating plugins, policies and webhooks, and rejects privilege escalation.
///
/// # Errors
/// The first refusal.
pub async fn mutate(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &mut Value,
) -> Result<()> {
    run_plugins(core, attributes, object).await?;
    let mut installed = dynamic::Mutation::default();
    if installed.run(core, attributes, object).await? {
        // Fields that webhooks added may need the plugins' defaults, and other webhooks may want to see them.
        run_plugins(core, attributes, object).await?;
        installed.run(core, attributes, object).await?;
    }
    deny(core, attributes)?;
    crate::object::check_depth(object)?;
    escalation::check(core, attributes, object).await
}

/// The plugin AlwaysDeny.
fn deny(core: &Admission, attributes: &Attributes<'_>) -> Result<()> {
    match enabled(core, Plugin::AlwaysDeny) {
        true => Err(forbidden(
            attributes,
            "admission control is denying all modifications",
        )),
        false => Ok(()),
    }
}

/// The plugins that are part of the server.
async fn run_plugins(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &mut Value,
) -> Result<()> {
    let named = [
        meta(object, "name"),
        meta(object, "generateName"),
        "Unknown",
    ]
    .into_iter()
    .find(|name| !name.is_empty())
    .unwrap_or_default()
    .to_owned();
    let attributes = &attributes.or_named(&named);
    let custom = attributes.resource.custom.as_ref();
    if attributes.operation == Operation::Create && custom.is_some_and(|it| it.is_terminating()) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(forbidden(attributes, why));
    }
    if enabled(core, Plugin::NamespaceLifecycle) {
        namespaces::admit(core, attributes).await?;
    }
    let creates_pod = is_whole_pod(attributes, Operation::Create);
    if enabled(core, Plugin::LimitRanger) {
        limits::set_defaults(core, attributes, object).await?;
    }
    if creates_pod && enabled(core, Plugin::ServiceAccount) {
        accounts::admit(core, attributes, object).await?;
    }
    if enabled(core, Plugin::NodeRestriction) {
        node::restrict(core, attributes, object).await?;
    }
    if attributes.operation == Operation::Create
        && attributes
            .resource
            .is("certificates.k8s.io", "certificatesigningrequests")
    {
        certificates::set_requester(attributes.user, object);
    }
    if attributes.operation == Operation::Create && attributes.subresource.is_empty() {
        if enabled(core, Plugin::DefaultStorageClass) {
            storage::default_class(core, attributes, object).await?;
        }
        if enabled(core, Plugin::StorageObjectInUseProtection) {
            storage::protect(attributes, object);
        }
        if enabled(core, Plugin::Priority)
            && attributes.resource.is("scheduling.k8s.io", "podgroups")
        {
            pods::group_priority(core, attributes, object).await?;
        }
        if enabled(core, Plugin::PodGroupProtection) {
            groups::protect(core, attributes, object);
        }
        if enabled(core, Plugin::DefaultIngressClass) {
            storage::default_ingress_class(core, attributes, object).await?;
        }
    }
    if attributes.operation == Operation::Create
        && attributes.resource.is("", "nodes")
        && enabled(core, Plugin::TaintNodesByCondition)
    {
        node::taint_not_ready(object);
    }
    if enabled(core, Plugin::AlwaysPullImages) {
        images::pull_always(attributes, object);
    }
    if enabled(core, Plugin::PodNodeSelector) {
        selectors::restrict(core, attributes, object).await?;
    }
    if creates_pod && enabled(core, Plugin::Priority) {
        pods::priority(core, attributes, object).await?;
    }
    if is_whole_pod(attributes, Operation::Update) && enabled(core, Plugin::Priority) {
        pods::keep_priority(object, attributes.old);
    }
    if writes_whole_pod(attributes) && enabled(core, Plugin::DefaultTolerationSeconds) {
        pods::default_tolerations(object);
    }
    if enabled(core, Plugin::PodTolerationRestriction) {
        tolerations::restrict(core, attributes, object).await?;
    }
    if enabled(core, Plugin::ExtendedResourceToleration) {
        tolerations::tolerate_resources(attributes, object);
    }
    if creates_pod && enabled(core, Plugin::RuntimeClass) {
        pods::runtime_class(core, attributes, object).await?;
    }
    if creates_pod && enabled(core, Plugin::PodTopologyLabels) {
        let node = crate::object::text(object, &["spec", "nodeName"]).to_owned();
        pods::topology_labels(core, &node, object).await?;
    }
    Ok(())
}

/// Runs the validating plugins, policies and webhooks on the final object.
///
/// # Errors
/// The first refusal.
pub async fn validate(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
    warn: &Warnings,
) -> Result<()> {
    // By now a generated name is set.
    let attributes = &attributes.or_named(meta(object, "name"));
    if enabled(core, Plugin::NamespaceExists) {
        namespaces::exists(core, attributes).await?;
    }
    if enabled(core, Plugin::LimitPodHardAntiAffinityTopology) {
        pods::anti_affinity(attributes, object)?;
    }
    if attributes
        .resource
        .is("scheduling.k8s.io", "priorityclasses")
        && enabled(core, Plugin::Priority)
    {
        pods::one_default_class(core, attributes, object).await?;
    }
    if enabled(core, Plugin::LimitRanger) {
        limits::check(core, attributes, object).await?;
    }
    if enabled(core, Plugin::ServiceAccount) {
        accounts::check(core, attributes, object).await?;
    }
    if is_whole_pod(attributes, Operation::Create) && enabled(core, Plugin::RuntimeClass) {
        pods::overhead(core, attributes, object).await?;
    }
    if enabled(core, Plugin::AlwaysPullImages) {
        images::check(attributes, object)?;
    }
    if enabled(core, Plugin::ImagePolicyWebhook) {
        image_policy::check(core, attributes, object).await?;
    }
    if enabled(core, Plugin::PodSecurity) {
        security::check(core, attributes, object, warn).await?;
    }
    if enabled(core, Plugin::PodNodeSelector) {
        selectors::check(core, attributes, object).await?;
    }
    if enabled(core, Plugin::PodTolerationRestriction) {
        tolerations::check(core, attributes, object).await?;
    }
    if enabled(core, Plugin::EventRateLimit) {
        let now = std::time::Instant::now();
        core.event_limits.check(attributes, object, now)?;
    }
    certificates::check(core, attributes, object).await?;
    if enabled(core, Plugin::OwnerReferencesPermissionEnforcement) {
        owners::check(core, attributes, object).await?;
    }
    if enabled(core, Plugin::DenyServiceExternalIPs) {
        services::deny_external_addresses(attributes, object)?;
    }
    if enabled(core, Plugin::PodGroupWorkloadExists) {
        groups::workload_exists(core, attributes, object).await?;
    }
    if enabled(core, Plugin::NodeDeclaredFeatureValidator) {
        declared::check(core, attributes, object).await?;
    }
    if enabled(core, Plugin::JobValidation) {
        groups::keep_parallelism(core, attributes, object).await?;
    }
    if enabled(core, Plugin::PersistentVolumeClaimResize) {
        storage::resize(core, attributes, object).await?;
    }
    if enabled(core, Plugin::PodResizeValidator) {
        resize::check(core, attributes, object).await?;
    }
    dynamic::validate(core, attributes, object).await?;
    if enabled(core, Plugin::ResourceQuota) {
        quota::check(core, attributes, object).await?;
    }
    deny(core, attributes)
}

/// Runs policies and webhooks on the body of a subresource that is not part of its object: a binding, an eviction, the
/// options of a stream.
///
/// # Errors
/// The first refusal.
pub(crate) async fn admit_sent(
    core: &Admission,
    attributes: &Attributes<'_>,
    sent: &mut Value,
) -> Result<()> {
    let operation = attributes.operation;
    if operation == Operation::Create && enabled(core, Plugin::NamespaceLifecycle) {
        namespaces::admit(core, attributes).await?;
    }
    if operation != Operation::Connect && enabled(core, Plugin::NodeRestriction) {
        node::restrict(core, attributes, sent).await?;
    }
    if attributes.resource.is("", "pods")
        && attributes.subresource == "binding"
        && sent["target"]["kind"] == "Node"
        && enabled(core, Plugin::PodTopologyLabels)
    {
        let node = crate::object::text(sent, &["target", "name"]).to_owned();
        pods::topology_labels(core, &node, sent).await?;
    }
    let mut installed = dynamic::Mutation::default();
    if installed.run(core, attributes, sent).await? {
        installed.run(core, attributes, sent).await?;
    }
    deny(core, attributes)?;
    dynamic::validate(core, attributes, sent).await
}
