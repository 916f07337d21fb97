//! Roles and bindings, indexed for decisions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use allot_apimachinery::quote::quote;
use allot_store::{Entry, Event, EventKind, ListOptions};
use serde_json::Value;

use super::authorize::AuthorizerAttributes;
use super::cover::url_matches;
use super::decision::Decision;
use crate::error::Result;
use crate::identity::User;
use crate::object::{meta, strings, text};
use crate::state::ServerState;

mod subject;

use subject::Member;
pub use subject::Subject;

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The allowed verbs; `*` for all.
    pub verbs: Vec<String>,
    /// The groups of the resources; `*` for all, empty for the core group.
    pub api_groups: Vec<String>,
    /// Resources, with subresources after a slash.
    pub resources: Vec<String>,
    /// Names; empty for all.
    pub resource_names: Vec<String>,
    /// Paths that are no resources.
    pub urls: Vec<String>,
}

/// A list of verbs or groups holds an item.
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

    /// All rights, as two rules.
    pub(crate) fn everything() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        let resources = Rule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..Rule::default()
        };
        let paths = Rule {
            verbs: all(),
            urls: all(),
            ..Rule::default()
        };
        [resources, paths]
    }

    /// The rule allows the request.
    pub fn allows(&self, attributes: &AuthorizerAttributes<'_>) -> bool {
        if !covers(&self.verbs, attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self
                .urls
                .iter()
                .any(|url| url_matches(url, attributes.path));
        }
        covers(&self.api_groups, attributes.group)
            && self.allows_resource(attributes)
            && (self.resource_names.is_empty()
                || self
                    .resource_names
                    .iter()
                    .any(|name| name == attributes.name))
    }

    /// Compares the whole text, as upstream does: a review may name `pods/exec` as the resource.
    fn allows_resource(&self, attributes: &AuthorizerAttributes<'_>) -> bool {
        let full = attributes.full_resource();
        self.resources.iter().any(|resource| {
            *resource == "*"
                || *resource == full
                || !attributes.subresource.is_empty()
                    && resource.strip_prefix("*/") == Some(attributes.subresource)
        })
    }

    /// About how much memory the rule takes.
    pub(crate) fn size(&self) -> usize {
        let lists = [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.urls,
        ];
        let texts = lists.into_iter().flatten();
        let texts: usize = texts.map(|text| size_of::<String>() + text.len()).sum();
        size_of::<Rule>() + texts
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

/// A RoleBinding or ClusterRoleBinding: the subjects that have a role.
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

    fn subject(&self, member: &Member<'_>) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.is(member))
    }
}

/// The namespace whose rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Cluster role bindings only.
    Cluster,
    /// Also the bindings of a namespace.
    Namespace(&'a str),
}

/// Bindings by name.
type Bindings = BTreeMap<String, Arc<Binding>>;

/// All roles and bindings at one moment. A copy shares what does not change.
#[derive(Debug, Default, Clone)]
pub struct Index {
    cluster_roles: HashMap<String, Arc<Vec<Rule>>>,
    roles: HashMap<(String, String), Arc<Vec<Rule>>>,
    cluster_bindings: Arc<Bindings>,
    bindings: HashMap<String, Arc<Bindings>>,
}

/// What a collection of the index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    ClusterRoles,
    ClusterBindings,
    Roles,
    Bindings,
}

impl Part {
    /// All of them.
    pub(super) const ALL: [Part; 4] = [
        Part::ClusterRoles,
        Part::ClusterBindings,
        Part::Roles,
        Part::Bindings,
    ];

    /// The collection in the store.
    pub(super) fn collection(self) -> &'static str {
        match self {
            Part::ClusterRoles => "rbac.authorization.k8s.io/clusterroles",
            Part::ClusterBindings => "rbac.authorization.k8s.io/clusterrolebindings",
            Part::Roles => "rbac.authorization.k8s.io/roles",
            Part::Bindings => "rbac.authorization.k8s.io/rolebindings",
        }
    }
}

fn rules(value: &Value) -> Arc<Vec<Rule>> {
    let rules = value["rules"].as_array().into_iter().flatten();
    Arc::new(rules.map(Rule::of).collect())
}

impl Index {
    /// Reads them from the store.
    pub(super) async fn load(core: &ServerState) -> Result<Self> {
        let mut index = Index::default();
        for part in Part::ALL {
            let options = ListOptions::default();
            let page = core.backend.list(part.collection(), options).await?;
            for entry in &page.entries {
                index.put(part, entry);
            }
        }
        Ok(index)
    }

    /// Applies a change: a tenant that changes its bindings all the time must not make all others wait until everything
    /// has been read again.
    pub(super) fn apply(&mut self, part: Part, event: &Event) {
        match event.kind {
            EventKind::Added | EventKind::Modified => self.put(part, &event.entry),
            EventKind::Deleted => self.remove(part, &event.entry.key),
        }
    }

    fn put(&mut self, part: Part, entry: &Entry) {
        // What the store holds was written by this server as JSON.
        let Ok(object) = serde_json::from_slice::<Value>(&entry.value) else {
            return self.remove(part, &entry.key);
        };
        let (namespace, name) = split(&entry.key);
        match part {
            // What an aggregation rule selects is written into the role by a controller.
            Part::ClusterRoles => drop(self.cluster_roles.insert(name, rules(&object))),
            Part::Roles => drop(self.roles.insert((namespace, name), rules(&object))),
            Part::ClusterBindings => {
                let binding = Arc::new(Binding::of(&object));
                Arc::make_mut(&mut self.cluster_bindings).insert(name, binding);
            }
            Part::Bindings => {
                let binding = Arc::new(Binding::of(&object));
                let bindings = self.bindings.entry(namespace).or_default();
                Arc::make_mut(bindings).insert(name, binding);
            }
        }
    }

    fn remove(&mut self, part: Part, key: &str) {
        let (namespace, name) = split(key);
        match part {
            Part::ClusterRoles => drop(self.cluster_roles.remove(&name)),
            Part::Roles => drop(self.roles.remove(&(namespace, name))),
            Part::ClusterBindings => {
                Arc::make_mut(&mut self.cluster_bindings).remove(&name);
            }
            Part::Bindings => {
                if let Some(bindings) = self.bindings.get_mut(&namespace) {
                    Arc::make_mut(bindings).remove(&name);
                    if bindings.is_empty() {
                        self.bindings.remove(&namespace);
                    }
                }
            }
        }
    }

    /// The rules of a role by reference.
    pub fn role(&self, cluster: bool, namespace: &str, name: &str) -> Option<&Vec<Rule>> {
        let rules = if cluster {
            self.cluster_roles.get(name)
        } else {
            self.roles.get(&(namespace.to_owned(), name.to_owned()))
        };
        rules.map(|rules| &**rules)
    }

    /// The decision of a user's bindings.
    pub fn decide(&self, attributes: &AuthorizerAttributes<'_>) -> Decision {
        let mut missing = Vec::new();
        let member = Member::of(attributes.user);
        for (namespace, binding) in self.applicable(scope_of(attributes)) {
            let Some(subject) = binding.subject(&member) else {
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
            if rules.iter().any(|rule| rule.allows(attributes)) {
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
                return Decision::allow(format!(
                    "RBAC: allowed by {bound} of {role_kind} {:?} to {}",
                    binding.role,
                    subject.describe()
                ));
            }
        }
        match missing.as_slice() {
            [] => Decision::no_opinion(""),
            [one] => Decision::no_opinion(format!("RBAC: {one}")),
            many => Decision::no_opinion(format!("RBAC: [{}]", many.join(", "))),
        }
    }

    fn applicable<'a>(&'a self, scope: Scope<'a>) -> impl Iterator<Item = (&'a str, &'a Binding)> {
        let namespaced = match scope {
            Scope::Namespace(namespace) => {
                self.bindings.get(namespace).map(|list| (namespace, list))
            }
            Scope::Cluster => None,
        };
        let namespaced = namespaced
            .into_iter()
            .flat_map(|(namespace, list)| list.values().map(move |it| (namespace, &**it)));
        let everywhere = self.cluster_bindings.values();
        everywhere.map(|binding| ("", &**binding)).chain(namespaced)
    }

    /// The roles that bindings give to a user and that do not exist, as errors name them.
    pub(crate) fn unresolved(&self, user: &User, scope: Scope<'_>) -> Vec<String> {
        let bindings = self.applicable(scope);
        let member = Member::of(user);
        let of_user = bindings.filter(|(_, binding)| binding.subject(&member).is_some());
        of_user
            .filter(|(namespace, binding)| {
                let role = self.role(binding.cluster_role, namespace, &binding.role);
                role.is_none()
            })
            .map(|(_, binding)| {
                let plural = match binding.cluster_role {
                    true => "clusterroles",
                    false => "roles",
                };
                let name = quote(&binding.role);
                format!("{plural}.rbac.authorization.k8s.io {name} not found")
            })
            .collect()
    }

    /// The rules of all roles that are bound to the user in a scope.
    pub fn rules_for(&self, user: &User, scope: Scope<'_>) -> Vec<&Rule> {
        let member = Member::of(user);
        self.applicable(scope)
            .filter(|(_, binding)| binding.subject(&member).is_some())
            .filter_map(|(namespace, binding)| {
                self.role(binding.cluster_role, namespace, &binding.role)
            })
            .flatten()
            .collect()
    }
}

/// Namespace and name of a key; without a namespace the whole of it is the name.
fn split(key: &str) -> (String, String) {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    (namespace.to_owned(), name.to_owned())
}

fn scope_of<'a>(attributes: &AuthorizerAttributes<'a>) -> Scope<'a> {
    if attributes.namespace.is_empty() {
        Scope::Cluster
    } else {
        Scope::Namespace(attributes.namespace)
    }
}
