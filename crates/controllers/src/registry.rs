//! Which controllers exist, and what the API server has to serve for them.

use std::sync::Arc;

use crate::config::Controller as C;
use crate::controller::context::{Context, Task};
use crate::inventory::Inventory;
use crate::served::Served;

/// Controllers that are set up.
pub(crate) struct Built {
    pub tasks: Vec<Task>,
    /// Filled before the tasks run, if one of them needs it.
    pub inventory: Option<Inventory>,
}

/// Builds the enabled controllers; their informers are registered, but do not run yet.
pub(crate) fn build(context: &Context, served: &Arc<Served>) -> Built {
    let enabled = &context.config.controllers;
    let everything = [C::GarbageCollector, C::Namespace, C::ResourceQuota];
    let inventory = everything
        .iter()
        .any(|c| enabled.contains(c))
        .then(|| Inventory::new(context, served));
    let tasks = enabled
        .iter()
        .filter_map(|c| task(*c, context, served, inventory.as_ref()))
        .collect();
    Built { tasks, inventory }
}

fn task(
    controller: C,
    context: &Context,
    served: &Arc<Served>,
    inventory: Option<&Inventory>,
) -> Option<Task> {
    let needed = needed(controller, served.classic().is_some());
    if !needed.0.is_empty() && !served.has(needed.0, needed.1) {
        tracing::info!(
            controller = controller.name(),
            resource = needed.1,
            "not served, not started"
        );
        return None;
    }
    Some(match controller {
        C::ResourceClaim => crate::claims::build(context, served),
        C::DeviceTaintEviction => crate::taints::build(context, served),
        C::ResourcePoolStatusRequest => crate::pool_status::build(context),
        C::Deployment => crate::deployment::build(context),
        C::ReplicaSet => crate::replicaset::build(context),
        C::DaemonSet => crate::daemonset::build(context),
        C::StatefulSet => crate::statefulset::build(context),
        C::SliceLiveness => crate::liveness::build(context, served),
        C::Disruption => crate::disruption::build(context),
        C::ResourceQuota => crate::quota::build(context, served, inventory?),
        C::Job => crate::job::build(context),
        C::CronJob => crate::cronjob::build(context),
        C::TtlAfterFinished => crate::ttl::build(context),
        C::Endpoints => crate::endpoints::endpoints(context),
        C::EndpointSlice => crate::endpoints::slices(context),
        C::ClaimProtection => crate::protection::claims(context),
        C::VolumeProtection => crate::protection::volumes(context),
        C::ClassProtection => crate::protection::classes(context),
        C::PodGroupProtection => crate::protection::groups::build(context, served)?,
        C::NodeLifecycle => crate::nodes::build(context),
        C::PodGarbageCollector => crate::podgc::build(context),
        C::ServiceAccount => crate::accounts::service_accounts(context),
        C::ServiceAccountToken => crate::accounts::tokens::build(context),
        C::RootCaPublisher => crate::accounts::root_ca(context)?,
        C::GarbageCollector => crate::gc::build(context, inventory?),
        C::Namespace => crate::namespace::build(context, inventory?),
        C::ServiceCidr => crate::service_cidrs::build(context),
        C::ClusterRoleAggregation => crate::roles::build(context),
    })
}

/// Group version and resource that a controller needs: without the kind there is no work, and its informer would never be
/// ready. `classic`: the server has classic claims.
fn needed(controller: C, classic: bool) -> (&'static str, &'static str) {
    match controller {
        C::ResourceClaim if classic => ("", ""),
        C::ResourceClaim => ("resource.k8s.io/v1", "resourceclaims"),
        C::DeviceTaintEviction => ("resource.k8s.io/v1", "resourceslices"),
        C::ResourcePoolStatusRequest => ("resource.k8s.io/v1alpha3", "resourcepoolstatusrequests"),
        C::SliceLiveness => ("resource.k8s.io/v1", "resourceslices"),
        C::Disruption => ("policy/v1", "poddisruptionbudgets"),
        C::Deployment => ("apps/v1", "deployments"),
        C::ReplicaSet => ("apps/v1", "replicasets"),
        C::DaemonSet => ("apps/v1", "daemonsets"),
        C::StatefulSet => ("apps/v1", "statefulsets"),
        C::Job | C::TtlAfterFinished => ("batch/v1", "jobs"),
        C::CronJob => ("batch/v1", "cronjobs"),
        C::NodeLifecycle => ("coordination.k8s.io/v1", "leases"),
        C::ClassProtection => ("storage.k8s.io/v1", "volumeattributesclasses"),
        C::EndpointSlice => ("discovery.k8s.io/v1", "endpointslices"),
        C::ServiceCidr => ("networking.k8s.io/v1", "servicecidrs"),
        C::ClusterRoleAggregation => ("rbac.authorization.k8s.io/v1", "clusterroles"),
        _ => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::{C, needed};
    use crate::served::ASKED;

    /// A controller would never start, and only the log of the process would say so.
    #[test]
    fn servers_are_asked_for_what_controllers_need() {
        for controller in C::ALL {
            let (group_version, _) = needed(controller, false);
            let is_asked = group_version.is_empty() || ASKED.contains(&group_version);
            assert!(is_asked, "{controller:?} {group_version}");
        }
    }
}
