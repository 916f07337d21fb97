//! Roles and bindings, ready to be asked.

use std::collections::HashMap;

use allot_apimachinery::labels::LabelSelector;
use allot_store::ListOptions;
use serde_json::Value;

use super::authorize::{Ask, Decision};
use crate::error::Result;
use crate::identity::{SERVICE_ACCOUNT_PREFIX, User};
use crate::object::{meta, string_map, strings, text};
use crate::server::Core;

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Verbs.
    pub verbs: Vec<String>,
    /// API groups.
    pub api_groups: Vec<String>,
    /// Resources, with subresources after a slash.
    pub resources: Vec<String>,
    /// Names; empty for all.
    pub resource_names: Vec<String>,
    /// Paths that are no resources.
    pub urls: Vec<String>,
}

fn covers(list: &[String], item: &str) -> bool {
    list.iter().any(|known| known == "*" || known == item)
}

impl Rule {
    /// Reads a rule.
    pub fn of(value: &Value) -> Self {
        Rule {
            verbs: strings(&value["verbs"]),
            api_groups: strings(&value["apiGroups"]),
            resources: strings(&value["resources"]),
            resource_names: strings(&value["resourceNames"]),
            urls: strings(&value["nonResourceURLs"]),
        }
    }

    /// The rule allows what is asked.
    pub fn allows(&self, ask: &Ask<'_>) -> bool {
        if !covers(&self.verbs, ask.verb) {
            return false;
        }
        if ask.resource.is_empty() {
            return self.urls.iter().any(|url| match url.strip_suffix('*') {
                Some(prefix) => ask.path.starts_with(prefix),
                None => url == ask.path,
            });
        }
        covers(&self.api_groups, ask.group)
            && self.allows_resource(ask)
            && (self.resource_names.is_empty()
                || self.resource_names.iter().any(|name| name == ask.name))
    }

    fn allows_resource(&self, ask: &Ask<'_>) -> bool {
        self.resources.iter().any(|resource| {
            if resource == "*" {
                return true;
            }
            match resource.split_once('/') {
                Some(("*", subresource)) => {
                    !ask.subresource.is_empty() && subresource == ask.subresource
                }
                Some((name, subresource)) => name == ask.resource && subresource == ask.subresource,
                None => resource == ask.resource && ask.subresource.is_empty(),
            }
        })
    }

    /// As `SelfSubjectRulesReview` shows it.
    pub fn to_json(&self) -> Value {
        let mut map = serde_json::Map::new();
        for (key, list) in [
            ("verbs", &self.verbs),
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.urls),
        ] {
            if !list.is_empty() {
                map.insert(key.to_owned(), list.clone().into());
            }
        }
        Value::Object(map)
    }
}

/// To whom a binding gives a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

impl Subject {
    fn is(&self, user: &User) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.in_group(&self.name),
            "ServiceAccount" => user
                .name
                .strip_prefix(SERVICE_ACCOUNT_PREFIX)
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(namespace, name)| namespace == self.namespace && name == self.name),
            _ => false,
        }
    }

    fn describe(&self) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => format!("ServiceAccount \"{}/{}\"", self.name, self.namespace),
            kind => format!("{kind} {:?}", self.name),
        }
    }
}

/// A binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    name: String,
    subjects: Vec<Subject>,
    cluster_role: bool,
    role: String,
}

impl Binding {
    fn of(value: &Value) -> Self {
        let namespace = meta(value, "namespace");
        let subjects = value["subjects"].as_array().into_iter().flatten();
        Binding {
            name: meta(value, "name").to_owned(),
            subjects: subjects
                .map(|subject| Subject {
                    kind: text(subject, &["kind"]).to_owned(),
                    name: text(subject, &["name"]).to_owned(),
                    namespace: match text(subject, &["namespace"]) {
                        "" => namespace.to_owned(),
                        named => named.to_owned(),
                    },
                })
                .collect(),
            cluster_role: text(value, &["roleRef", "kind"]) == "ClusterRole",
            role: text(value, &["roleRef", "name"]).to_owned(),
        }
    }

    fn subject(&self, user: &User) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.is(user))
    }
}

/// Where rules are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Cluster role bindings only.
    Cluster,
    /// Also the bindings of a namespace.
    Namespace(&'a str),
}

/// All roles and bindings at one moment.
#[derive(Debug, Default)]
pub struct Index {
    cluster_roles: HashMap<String, Vec<Rule>>,
    roles: HashMap<(String, String), Vec<Rule>>,
    cluster_bindings: Vec<Binding>,
    bindings: HashMap<String, Vec<Binding>>,
}

fn rules(value: &Value) -> Vec<Rule> {
    value["rules"]
        .as_array()
        .into_iter()
        .flatten()
        .map(Rule::of)
        .collect()
}

impl Index {
    /// Reads them from the store.
    pub(super) async fn load(core: &Core, collections: [&str; 4]) -> Result<Self> {
        let mut lists: Vec<Vec<Value>> = Vec::with_capacity(collections.len());
        for collection in collections {
            let page = core
                .backend
                .list(collection, ListOptions::default())
                .await?;
            // What the store holds was written by this server as JSON.
            lists.push(
                page.entries
                    .iter()
                    .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
                    .collect(),
            );
        }
        let mut lists = lists.into_iter();
        let mut next = || lists.next().unwrap_or_default();
        let (cluster_roles, cluster_bindings, roles, bindings) = (next(), next(), next(), next());
        let mut index = Index::default();
        for role in &cluster_roles {
            let mut all = rules(role);
            all.extend(aggregated(role, &cluster_roles));
            index
                .cluster_roles
                .insert(meta(role, "name").to_owned(), all);
        }
        for role in &roles {
            let key = (
                meta(role, "namespace").to_owned(),
                meta(role, "name").to_owned(),
            );
            index.roles.insert(key, rules(role));
        }
        index.cluster_bindings = cluster_bindings.iter().map(Binding::of).collect();
        for binding in &bindings {
            index
                .bindings
                .entry(meta(binding, "namespace").to_owned())
                .or_default()
                .push(Binding::of(binding));
        }
        Ok(index)
    }

    /// The rules of a role by reference.
    pub fn role(&self, cluster: bool, namespace: &str, name: &str) -> Option<&Vec<Rule>> {
        if cluster {
            self.cluster_roles.get(name)
        } else {
            self.roles.get(&(namespace.to_owned(), name.to_owned()))
        }
    }

    /// What a user's bindings say.
    pub fn decide(&self, ask: &Ask<'_>) -> Decision {
        let mut missing = Vec::new();
        for (namespace, binding) in self.applicable(scope_of(ask)) {
            let Some(subject) = binding.subject(ask.user) else {
                continue;
            };
            let Some(rules) = self.role(binding.cluster_role, namespace, &binding.role) else {
                let kind = if binding.cluster_role {
                    "clusterrole"
                } else {
                    "role"
                };
                missing.push(format!(
                    "{kind}.rbac.authorization.k8s.io {:?} not found",
                    binding.role
                ));
                continue;
            };
            if rules.iter().any(|rule| rule.allows(ask)) {
                let role_kind = if binding.cluster_role {
                    "ClusterRole"
                } else {
                    "Role"
                };
                let bound = if namespace.is_empty() {
                    format!("ClusterRoleBinding {:?}", binding.name)
                } else {
                    format!("RoleBinding \"{}/{namespace}\"", binding.name)
                };
                return Decision::Allow(format!(
                    "RBAC: allowed by {bound} of {role_kind} {:?} to {}",
                    binding.role,
                    subject.describe()
                ));
            }
        }
        match missing.as_slice() {
            [] => Decision::NoOpinion(String::new()),
            [one] => Decision::NoOpinion(format!("RBAC: {one}")),
            many => Decision::NoOpinion(format!("RBAC: [{}]", many.join(", "))),
        }
    }

    fn applicable<'a>(&'a self, scope: Scope<'a>) -> impl Iterator<Item = (&'a str, &'a Binding)> {
        let namespaced = match scope {
            Scope::Namespace(namespace) => {
                self.bindings.get(namespace).map(|list| (namespace, list))
            }
            Scope::Cluster => None,
        };
        self.cluster_bindings
            .iter()
            .map(|binding| ("", binding))
            .chain(
                namespaced
                    .into_iter()
                    .flat_map(|(namespace, list)| list.iter().map(move |it| (namespace, it))),
            )
    }

    /// All rules that a user holds.
    pub fn rules_for(&self, user: &User, scope: Scope<'_>) -> Vec<Rule> {
        self.applicable(scope)
            .filter(|(_, binding)| binding.subject(user).is_some())
            .filter_map(|(namespace, binding)| {
                self.role(binding.cluster_role, namespace, &binding.role)
            })
            .flatten()
            .cloned()
            .collect()
    }
}

fn scope_of<'a>(ask: &Ask<'a>) -> Scope<'a> {
    if ask.namespace.is_empty() {
        Scope::Cluster
    } else {
        Scope::Namespace(ask.namespace)
    }
}

/// The rules of the roles that an aggregation rule selects.
fn aggregated(role: &Value, all: &[Value]) -> Vec<Rule> {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    let mut found = Vec::new();
    for selector in selectors.into_iter().flatten() {
        let Ok(selector) = LabelSelector::from_json(selector).and_then(|it| it.to_selector())
        else {
            continue;
        };
        for other in all
            .iter()
            .filter(|other| meta(other, "name") != meta(role, "name"))
        {
            if selector.matches(&string_map(&other["metadata"]["labels"])) {
                found.extend(rules(other));
                // One level more: admin collects edit, which collects view.
                if other["aggregationRule"].is_object() {
                    found.extend(aggregated(other, all));
                }
            }
        }
    }
    found
}
