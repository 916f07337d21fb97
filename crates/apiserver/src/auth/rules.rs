//! What each authorizer can tell of the rights of a user, for `SelfSubjectRulesReview`.

use std::sync::Arc;

use super::abac::is_subject;
use super::authorize::{Authorizer, Judge};
use super::index::{Index, Rule};
use crate::config::authorization::abac::{Policies, Policy};
use crate::error::Result;
use crate::identity::User;
use crate::state::ServerState;

/// The rights that one authorizer gives in a namespace.
pub(crate) enum Rights {
    /// Those that the roles of the user give there.
    Roles(Arc<Index>),
    /// These.
    Rules(Vec<Rule>),
    /// It cannot list them; the reason.
    Unknown(&'static str),
}

impl Authorizer {
    /// The rights that a user has in a namespace, by authorizer.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn rights(
        &self,
        core: &ServerState,
        user: &User,
        namespace: &str,
    ) -> Result<Vec<Rights>> {
        let mut rights = Vec::new();
        for step in self.steps().iter() {
            rights.push(match &step.judge {
                Judge::AlwaysAllow => Rights::Rules(Rule::everything().into()),
                Judge::AlwaysDeny => continue,
                // What a node may do follows from its pods.
                Judge::Node if user.node_identity().is_some() => {
                    Rights::Unknown("node authorizer does not support user rule resolution")
                }
                Judge::Node => continue,
                Judge::Rbac => Rights::Roles(self.index(core).await?),
                Judge::Abac(policies) => Rights::Rules(of_policies(policies, user, namespace)),
                Judge::Webhook(_) => {
                    Rights::Unknown("webhook authorizer does not support user rule resolution")
                }
            });
        }
        Ok(rights)
    }
}

fn of_policies(policies: &Policies, user: &User, namespace: &str) -> Vec<Rule> {
    let policies = policies.0.iter();
    let of_user = policies
        .filter(|it| is_subject(it, user) && (it.namespace == "*" || it.namespace == namespace));
    of_user.flat_map(of_policy).collect()
}

fn of_policy(policy: &Policy) -> impl Iterator<Item = Rule> {
    let verbs: &[&str] = match policy.readonly {
        true => &["get", "list", "watch"],
        false => &["*"],
    };
    let rule = || Rule {
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..Rule::default()
    };
    let on_resource = (!policy.resource.is_empty()).then(|| Rule {
        api_groups: vec![policy.api_group.clone()],
        resources: vec![policy.resource.clone()],
        ..rule()
    });
    let on_path = (!policy.path.is_empty()).then(|| Rule {
        urls: vec![policy.path.clone()],
        ..rule()
    });
    on_resource.into_iter().chain(on_path)
}
