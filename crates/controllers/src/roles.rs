//! Collects the rules of cluster roles into those whose `aggregationRule` selects them.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Api, Client};
use serde_json::json;

use crate::Error;
use crate::controller::api;
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};

#[cfg(test)]
mod tests;

/// The owner of the rules in `managedFields`, under the name that kube-controller-manager uses.
const MANAGER: &str = "clusterrole-aggregation-controller";

struct Roles {
    client: Client,
    roles: Informer<ClusterRole>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let this = Arc::new(Roles {
        client: context.client.clone(),
        roles: context.informer::<ClusterRole>(),
    });
    let queue: Queue<Key> = context.queue("ClusterRoleAggregator");
    let (roles, adds) = (this.roles.clone(), queue.clone());
    this.roles.on(move |_| {
        // There are few of them, and which role aggregates which is not known in advance.
        for role in roles.list() {
            if role.aggregation_rule.is_some() {
                adds.add(key_of(&*role));
            }
        }
    });
    // One after the other, so that roles that select each other converge.
    Box::pin(queue.run(1, context.shutdown.clone(), move |key| {
        let this = this.clone();
        async move { this.sync(&key).await }
    }))
}

impl Roles {
    async fn sync(&self, name: &str) -> Result<Next, Error> {
        let Some(role) = self.roles.get(name) else {
            return Ok(Next::Done);
        };
        let Some(rules) = aggregated(&role, &self.roles.list()) else {
            return Ok(Next::Done);
        };
        if same(&rules, role.rules.as_deref().unwrap_or_default()) {
            return Ok(Next::Done);
        }
        let body = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            // Of this role: applied to a name alone, the rules would bring a deleted one back.
            "metadata": {"name": name, "uid": meta::uid(&*role)}, "rules": rules,
        });
        let api: Api<ClusterRole> = Api::all(self.client.clone());
        self.roles
            .assume(api::apply(&api, name, MANAGER, &body).await?);
        Ok(Next::Done)
    }
}

/// The rules of the roles that a role selects, each once; `None` if it selects none. The role itself is never included,
/// and aggregated rules of others are taken as they are, so cycles end.
fn aggregated(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let selectors = role
        .aggregation_rule
        .as_ref()?
        .cluster_role_selectors
        .as_deref();
    let mut by_name: Vec<&Arc<ClusterRole>> = all.iter().collect();
    by_name.sort_by_key(|other| meta::name(&***other).to_owned());
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors.unwrap_or_default() {
        for other in &by_name {
            if meta::name(&***other) == meta::name(role) || !selects(selector, other) {
                continue;
            }
            for rule in other.rules.iter().flatten() {
                if !rules.iter().any(|known| plain(known) == plain(rule)) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}

fn selects(selector: &LabelSelector, role: &ClusterRole) -> bool {
    meta::selects(selector, role.metadata.labels.as_ref())
}

fn same(one: &[PolicyRule], other: &[PolicyRule]) -> bool {
    one.iter().map(plain).eq(other.iter().map(plain))
}

/// A rule in which an empty list is none, for comparison.
fn plain(rule: &PolicyRule) -> [&[String]; 5] {
    [
        rule.verbs.as_slice(),
        rule.api_groups.as_deref().unwrap_or_default(),
        rule.resources.as_deref().unwrap_or_default(),
        rule.resource_names.as_deref().unwrap_or_default(),
        rule.non_resource_urls.as_deref().unwrap_or_default(),
    ]
}
