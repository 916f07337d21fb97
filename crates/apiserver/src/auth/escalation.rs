//! Nobody gives away permissions that he does not hold himself.

use allot_apimachinery::Status;
use serde_json::Value;

use super::authorize::Ask;
use super::index::{Rule, Scope};
use crate::error::Result;
use crate::identity::{MASTERS, User};
use crate::object::{meta, text};
use crate::registry::Resource;
use crate::server::Core;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks a role or binding that is about to be stored.
///
/// # Errors
/// 403 with the rules that the user lacks.
pub async fn check(
    core: &Core,
    user: &User,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
) -> Result<()> {
    if resource.group != GROUP || user.in_group(MASTERS) {
        return Ok(());
    }
    let namespace = meta(object, "namespace");
    let name = meta(object, "name");
    let rules: Vec<Rule> = match resource.plural.as_str() {
        "roles" | "clusterroles" => {
            if old.is_some_and(|old| {
                old["rules"] == object["rules"]
                    && old["aggregationRule"] == object["aggregationRule"]
            }) {
                return Ok(());
            }
            let ask = Ask {
                namespace,
                name,
                ..Ask::resource(user, "escalate", GROUP, &resource.plural)
            };
            if core.authorizer.decide(core, &ask).await?.allowed() {
                return Ok(());
            }
            object["rules"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Rule::of)
                .collect()
        }
        "rolebindings" | "clusterrolebindings" => {
            if old.is_some_and(|old| {
                old["roleRef"] == object["roleRef"] && old["subjects"] == object["subjects"]
            }) {
                return Ok(());
            }
            let cluster = text(object, &["roleRef", "kind"]) == "ClusterRole";
            let role = text(object, &["roleRef", "name"]);
            let target = if cluster { "clusterroles" } else { "roles" };
            let ask = Ask {
                namespace,
                name: role,
                ..Ask::resource(user, "bind", GROUP, target)
            };
            if core.authorizer.decide(core, &ask).await?.allowed() {
                return Ok(());
            }
            let index = core.authorizer.index(core).await?;
            match index.role(cluster, namespace, role) {
                Some(rules) => rules.clone(),
                None => {
                    let resource = allot_apimachinery::gvk::GroupResource::new(GROUP, target);
                    return Err(Status::not_found(&resource, role).into());
                }
            }
        }
        _ => return Ok(()),
    };
    let scope = if namespace.is_empty() {
        Scope::Cluster
    } else {
        Scope::Namespace(namespace)
    };
    let held = core.authorizer.index(core).await?.rules_for(user, scope);
    let missing: Vec<Rule> = rules
        .iter()
        .flat_map(simple)
        .filter(|rule| !held.iter().any(|it| includes(it, rule)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = user
        .groups
        .iter()
        .map(|group| format!("{group:?}"))
        .collect();
    let shown: Vec<String> = compact(missing).iter().map(describe).collect();
    let why = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        shown.join("\n")
    );
    Err(Status::forbidden(&resource.group_resource(), name, &why).into())
}

/// A rule as rules with one verb on one thing each.
fn simple(rule: &Rule) -> Vec<Rule> {
    let mut all = Vec::new();
    for verb in &rule.verbs {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let base = Rule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..Rule::default()
                };
                if rule.resource_names.is_empty() {
                    all.push(base);
                } else {
                    for name in &rule.resource_names {
                        all.push(Rule {
                            resource_names: vec![name.clone()],
                            ..base.clone()
                        });
                    }
                }
            }
        }
        for url in &rule.urls {
            all.push(Rule {
                verbs: vec![verb.clone()],
                urls: vec![url.clone()],
                ..Rule::default()
            });
        }
    }
    all
}

/// One simple rule is part of what another rule allows.
fn includes(held: &Rule, wanted: &Rule) -> bool {
    let has =
        |list: &[String], item: &String| list.iter().any(|known| known == "*" || known == item);
    if !wanted.verbs.iter().all(|verb| has(&held.verbs, verb)) {
        return false;
    }
    if let Some(url) = wanted.urls.first() {
        return held.urls.iter().any(|known| match known.strip_suffix('*') {
            Some(prefix) => url.starts_with(prefix),
            None => known == url,
        });
    }
    let resources = wanted.resources.iter().all(|resource| {
        has(&held.resources, resource)
            || resource
                .split_once('/')
                .is_some_and(|(_, sub)| held.resources.contains(&format!("*/{sub}")))
    });
    resources
        && wanted
            .api_groups
            .iter()
            .all(|group| has(&held.api_groups, group))
        && (held.resource_names.is_empty()
            || (!wanted.resource_names.is_empty()
                && wanted
                    .resource_names
                    .iter()
                    .all(|name| held.resource_names.contains(name))))
}

/// Joins rules that differ only in their verbs.
fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut all: Vec<Rule> = Vec::new();
    for rule in rules {
        let same = all.iter_mut().find(|it| {
            it.api_groups == rule.api_groups
                && it.resources == rule.resources
                && it.resource_names == rule.resource_names
                && it.urls == rule.urls
        });
        match same {
            Some(known) => known.verbs.extend(rule.verbs),
            None => all.push(rule),
        }
    }
    all
}

/// `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
fn describe(rule: &Rule) -> String {
    let list = |items: &[String]| {
        let quoted: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
        format!("[{}]", quoted.join(" "))
    };
    let mut parts = Vec::new();
    for (title, items) in [
        ("NonResourceURLs", &rule.urls),
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ] {
        if !items.is_empty() {
            parts.push(format!("{title}:{}", list(items)));
        }
    }
    format!("{{{}}}", parts.join(", "))
}
