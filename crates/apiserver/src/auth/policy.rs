//! The roles and bindings that every cluster starts with, as data.
//!
//! Format of [`ROLES`]: a line without indentation names a cluster role, followed by its labels; an indented line is
//! a rule: `verbs | groups | resources [| names]`, or `verbs | url | paths`. `R` stands for reading, `W` for
//! writing, `-` for the core group. `aggregate LABEL` collects the rules of all roles with that label.

use std::sync::OnceLock;

use allot_model::features::{Feature, Features};
use serde_json::{Value, json};

use super::index::Rule;
use crate::object::meta;

/// How many default roles collect others.
const AGGREGATED: usize = 3;
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// The annotation of default roles that says whether the server may complete them.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Default cluster roles.
const ROLES: &str = include_str!("policy/roles.txt");

type Binding = (&'static str, &'static [(&'static str, &'static str)]);

/// Default cluster role bindings: role (and name of the binding), then `Kind:name` subjects.
const BINDINGS: &[Binding] = &[
    ("cluster-admin", &[("Group", "system:masters")]),
    ("system:monitoring", &[("Group", "system:monitoring")]),
    ("system:discovery", &[("Group", "system:authenticated")]),
    ("system:basic-user", &[("Group", "system:authenticated")]),
    (
        "system:public-info-viewer",
        &[
            ("Group", "system:authenticated"),
            ("Group", "system:unauthenticated"),
        ],
    ),
    ("system:node-proxier", &[("User", "system:kube-proxy")]),
    (
        "system:kube-controller-manager",
        &[("User", "system:kube-controller-manager")],
    ),
    ("system:kube-dns", &[("ServiceAccount", "kube-dns")]),
    (
        "system:kube-scheduler",
        &[("User", "system:kube-scheduler")],
    ),
    (
        "system:volume-scheduler",
        &[("User", "system:kube-scheduler")],
    ),
    ("system:node", &[]),
    (
        "system:service-account-issuer-discovery",
        &[("Group", "system:serviceaccounts")],
    ),
];

/// Roles of features, in the format of [`ROLES`], and bindings to them.
static FEATURED: [(Feature, &str, &[Binding]); 2] = [
    (
        Feature::ClusterTrustBundle,
        "system:cluster-trust-bundle-discovery\n  \
         R | certificates.k8s.io | clustertrustbundles\n\
         system:controller:kube-apiserver-serving-clustertrustbundle-publisher\n  \
         attest | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-serving\n  \
         create update delete list watch | certificates.k8s.io | clustertrustbundles\n  \
         create patch update | - events.k8s.io | events\n",
        &[(
            "system:cluster-trust-bundle-discovery",
            &[("Group", "system:serviceaccounts")],
        )],
    ),
    (
        Feature::PodCertificateRequest,
        "system:controller:podcertificaterequestcleaner\n  \
         delete get list watch | certificates.k8s.io | podcertificaterequests\n",
        &[],
    ),
];

/// A default binding that is the source of another one, which was a part of it before 1.14.
pub const SPLIT: (&str, &str) = ("system:discovery", "system:public-info-viewer");

/// Default roles of namespaces, in the format of [`ROLES`], after the namespace; a line that begins with `for` names the
/// subjects of the binding: accounts in `kube-system`, and users. After `as` comes its name, if that is not the role's.
const NAMESPACED: &str = include_str!("policy/namespaced.txt");

/// A default role before it gets its metadata.
struct Role {
    name: &'static str,
    labels: Vec<&'static str>,
    rules: Vec<Rule>,
    aggregate: Option<&'static str>,
}

fn expand_verbs(text: &str) -> Vec<String> {
    const READ: [&str; 3] = ["get", "list", "watch"];
    const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
    let mut verbs: Vec<String> = match text.trim() {
        "R" => READ.iter().map(|verb| (*verb).to_owned()).collect(),
        "W" => WRITE.iter().map(|verb| (*verb).to_owned()).collect(),
        "RW" => READ
            .iter()
            .chain(&WRITE)
            .map(|verb| (*verb).to_owned())
            .collect(),
        other => other.split_whitespace().map(str::to_owned).collect(),
    };
    verbs.sort();
    verbs
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace()
        .map(|word| {
            if word == "-" {
                String::new()
            } else {
                word.to_owned()
            }
        })
        .collect()
}

fn parse(text: &'static str) -> Vec<Role> {
    let mut roles: Vec<Role> = Vec::new();
    for line in text.lines() {
        let Some(rule) = line.strip_prefix("  ") else {
            let mut parts = line.split_whitespace();
            let Some(name) = parts.next() else { continue };
            roles.push(Role {
                name,
                labels: parts.collect(),
                rules: Vec::new(),
                aggregate: None,
            });
            continue;
        };
        let Some(role) = roles.last_mut() else {
            continue;
        };
        if let Some(label) = rule.strip_prefix("aggregate ") {
            role.aggregate = Some(label);
            continue;
        }
        role.rules.extend(self::rule(rule));
    }
    roles
}

/// The rule of a line.
fn rule(line: &str) -> Option<Rule> {
    let parts: Vec<&str> = line.split('|').collect();
    let [verbs, groups, resources, names @ ..] = parts.as_slice() else {
        return None;
    };
    let verbs = expand_verbs(verbs);
    Some(if groups.trim() == "url" {
        Rule {
            verbs,
            urls: words(resources),
            ..Rule::default()
        }
    } else {
        Rule {
            verbs,
            api_groups: words(groups),
            resources: words(resources),
            resource_names: names.first().map(|names| words(names)).unwrap_or_default(),
            ..Rule::default()
        }
    })
}

/// The rules of `system:node`, which the node authorizer grants to all node agents.
pub fn node_rules() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        parse(ROLES)
            .into_iter()
            .find(|role| role.name == "system:node")
            .map(|role| role.rules)
            .unwrap_or_default()
    })
}

fn default_meta(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTOUPDATE: "true"},
    })
}

/// All default objects, as (plural, object).
pub fn objects(features: &Features) -> Vec<(&'static str, Value)> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let mut objects = Vec::new();
    let mut controllers = Vec::new();
    let on = FEATURED.iter().filter(|it| features.enabled(it.0));
    let roles = parse(ROLES).into_iter();
    for role in roles.chain(on.clone().flat_map(|(_, text, _)| parse(text))) {
        let mut object = json!({"metadata": default_meta(role.name), "rules": null});
        for label in &role.labels {
            let kind = label.strip_prefix("aggregate-to-").unwrap_or(label);
            object["metadata"]["labels"][format!("{AGGREGATE}{kind}")] = "true".into();
        }
        if !role.rules.is_empty() {
            object["rules"] = role.rules.iter().map(Rule::to_json).collect();
        }
        if let Some(label) = role.aggregate {
            object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {format!("{AGGREGATE}{label}"): "true"}}]});
        }
        if let Some(account) = role.name.strip_prefix("system:controller:") {
            controllers.push((role.name, account));
        }
        objects.push(("clusterroles", object));
    }
    aggregate(&mut objects);
    let binding = |role: &str, subjects: Vec<Value>| {
        let mut object = json!({
            "metadata": default_meta(role),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        });
        if !subjects.is_empty() {
            object["subjects"] = subjects.into();
        }
        ("clusterrolebindings", object)
    };
    let account =
        |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"});
    for (role, subjects) in BINDINGS.iter().chain(on.flat_map(|it| it.2)) {
        let subjects = subjects
            .iter()
            .map(|(kind, name)| match *kind {
                "ServiceAccount" => account(name),
                kind => json!({"kind": kind, "apiGroup": GROUP, "name": name}),
            })
            .collect();
        objects.push(binding(role, subjects));
    }
    for (role, name) in controllers {
        objects.push(binding(role, vec![account(name)]));
    }
    objects.extend(namespaced());
    objects
}

/// The default roles in namespaces, and their bindings.
fn namespaced() -> Vec<(&'static str, Value)> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let (mut roles, mut bindings) = (Vec::new(), Vec::new());
    for block in NAMESPACED.split("\n\n") {
        let mut lines = block.lines();
        let Some((namespace, name)) = lines.next().and_then(|line| line.split_once(' ')) else {
            continue;
        };
        let in_namespace = |name: &str| {
            let mut metadata = default_meta(name);
            metadata["namespace"] = namespace.into();
            metadata
        };
        let mut rules = Vec::new();
        for line in lines {
            let Some(subjects) = line.strip_prefix("  for ") else {
                rules.extend(line.strip_prefix("  ").and_then(rule));
                continue;
            };
            let (subjects, binding) = subjects.split_once(" as ").unwrap_or((subjects, name));
            let subjects = subjects.split_whitespace().map(|subject| match subject.strip_prefix("user=") {
                Some(user) => json!({"kind": "User", "apiGroup": GROUP, "name": user}),
                None => json!({"kind": "ServiceAccount", "name": subject, "namespace": "kube-system"}),
            });
            let subjects: Vec<Value> = subjects.collect();
            let object = json!({
                "metadata": in_namespace(binding), "subjects": subjects,
                "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name},
            });
            bindings.push(("rolebindings", object));
        }
        let rules: Vec<Value> = rules.iter().map(Rule::to_json).collect();
        roles.push((
            "roles",
            json!({"metadata": in_namespace(name), "rules": rules}),
        ));
    }
    roles.append(&mut bindings);
    roles
}

/// Writes into the roles that collect others what those hold, so that a server without controllers has them whole. From
/// then on the controller of cluster roles does it.
fn aggregate(roles: &mut [(&'static str, Value)]) {
    let collected = |roles: &[(&str, Value)], role: &Value| -> Option<Value> {
        let selector = &role["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"];
        let (label, _) = selector.as_object()?.iter().next()?;
        let mut parts: Vec<&Value> = roles
            .iter()
            .map(|(_, other)| other)
            .filter(|other| other["metadata"]["labels"][label] == "true")
            .filter(|other| meta(other, "name") != meta(role, "name"))
            .collect();
        parts.sort_by_key(|other| meta(other, "name"));
        let mut rules: Vec<Value> = Vec::new();
        for rule in parts
            .iter()
            .filter_map(|part| part["rules"].as_array())
            .flatten()
        {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
        Some(rules.into())
    };
    // `admin` collects `edit`, which collects `view`: a round settles one of them more.
    for _ in 0..AGGREGATED {
        for at in 0..roles.len() {
            if let Some(rules) = collected(roles, &roles[at].1) {
                roles[at].1["rules"] = rules;
            }
        }
    }
}
