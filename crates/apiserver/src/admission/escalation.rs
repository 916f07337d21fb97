//! Users cannot grant permissions that they do not have: the check in kube-apiserver's policy-based storage of roles
//! and bindings.

use allot_apimachinery::Status;
use allot_apimachinery::gvk::GroupResource;
use allot_apimachinery::quote::quote;
use serde_json::Value;

use super::{Admission, Attributes, Operation};
use crate::auth::{AuthorizerAttributes, Rule, Scope, cover};
use crate::error::{ApiError, Result};
use crate::identity::MASTERS;
use crate::object::{meta, text};

const GROUP: &str = "rbac.authorization.k8s.io";
/// The garbage collector changes only these fields.
const COLLECTED: [&str; 4] = ["ownerReferences", "finalizers", "selfLink", "managedFields"];

/// Checks a role or binding that is about to be written, after it has been mutated and before it is validated.
///
/// # Errors
/// 403 with the rules that the user lacks; 404 for a binding to a role that does not exist.
pub async fn check(core: &Admission, attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    let (user, resource) = (attributes.user, attributes.resource);
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !writes || resource.group != GROUP || user.in_group(MASTERS) {
        return Ok(());
    }
    if attributes
        .old
        .is_some_and(|old| only_collected(old, object))
    {
        return Ok(());
    }
    let confirmation = Confirmation {
        core,
        attributes,
        object,
    };
    match resource.plural.as_str() {
        "roles" | "clusterroles" => confirmation.of_role().await,
        "rolebindings" | "clusterrolebindings" => confirmation.of_binding().await,
        _ => Ok(()),
    }
}

struct Confirmation<'a> {
    core: &'a Admission,
    attributes: &'a Attributes<'a>,
    object: &'a Value,
}

impl Confirmation<'_> {
    async fn of_role(&self) -> Result<()> {
        let attributes = self.attributes;
        // As upstream: the name of the path, so a right to escalate one named role does not create it.
        let name = match &attributes.asked {
            Some(asked) => asked.request.info.name.as_str(),
            None => attributes.name,
        };
        let escalate = AuthorizerAttributes {
            namespace: attributes.namespace,
            name,
            ..AuthorizerAttributes::resource(
                attributes.user,
                "escalate",
                GROUP,
                &attributes.resource.plural,
            )
        };
        if self
            .core
            .authorizer
            .decide(self.core, &escalate)
            .await?
            .allowed()
        {
            return Ok(());
        }
        let rules = self.object["rules"].as_array().into_iter().flatten();
        self.confirm(&rules.map(Rule::of).collect::<Vec<_>>())
            .await?;
        if !aggregates(self.object) && !attributes.old.is_some_and(aggregates) {
            return Ok(());
        }
        // The garbage collector may update any object, also a role that is more than it may grant.
        let all = self.confirm(&Rule::everything()).await;
        all.map_err(|_| {
            self.forbidden("must have cluster-admin privileges to use the aggregationRule")
        })
    }

    async fn of_binding(&self) -> Result<()> {
        let reference = |key| text(self.object, &["roleRef", key]);
        let (group, kind, name) = (reference("apiGroup"), reference("kind"), reference("name"));
        let target = match kind {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            other => {
                let why = format!("unsupported role reference kind: {}", quote(other));
                return Err(ApiError::unknown(why));
            }
        };
        let namespace = self.attributes.namespace;
        let bind = AuthorizerAttributes {
            namespace,
            name,
            ..AuthorizerAttributes::resource(self.attributes.user, "bind", group, target)
        };
        if self
            .core
            .authorizer
            .decide(self.core, &bind)
            .await?
            .allowed()
        {
            return Ok(());
        }
        let index = self.core.authorizer.index(self.core).await?;
        match index.role(kind == "ClusterRole", namespace, name) {
            Some(rules) => self.confirm(rules).await,
            None => Err(Status::not_found(&GroupResource::new(GROUP, target), name).into()),
        }
    }

    /// The user has all these permissions where the object is stored.
    async fn confirm(&self, rules: &[Rule]) -> Result<()> {
        let user = self.attributes.user;
        let scope = match self.attributes.namespace {
            "" => Scope::Cluster,
            namespace => Scope::Namespace(namespace),
        };
        let index = self.core.authorizer.index(self.core).await?;
        let missing = cover::missing(index.rules_for(user, scope), rules);
        if missing.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = user.groups.iter().map(|group| quote(group)).collect();
        let mut why = format!(
            "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            quote(&user.name),
            groups.join(" "),
            cover::describe(missing).join("\n")
        );
        let unresolved = index.unresolved(user, scope);
        match unresolved.as_slice() {
            [] => {}
            [one] => why.push_str(&format!("; resolution errors: [{one}]")),
            many => why.push_str(&format!("; resolution errors: [[{}]]", many.join(", "))),
        }
        Err(self.forbidden(&why))
    }

    fn forbidden(&self, why: &str) -> ApiError {
        let resource = self.attributes.resource.group_resource();
        Status::forbidden(&resource, meta(self.object, "name"), why).into()
    }
}

fn aggregates(role: &Value) -> bool {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

/// Only fields of the garbage collector change.
pub(super) fn only_collected(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for key in COLLECTED {
                metadata.remove(key);
            }
            metadata.retain(|_, value| !is_empty(value));
        }
        if let Some(members) = object.as_object_mut() {
            members.retain(|key, value| {
                !matches!(key.as_str(), "kind" | "apiVersion") && !is_empty(value)
            });
        }
        object
    };
    rest(old) == rest(new)
}

/// Two values are the same, also if one is absent and the other one empty.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    one == other || is_empty(one) && is_empty(other)
}

/// Absent or empty: Go's comparison does not distinguish an empty list from an absent one.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}
