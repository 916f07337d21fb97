//! Whether some rules hold all that others grant.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::quote::quote;

use super::index::Rule;

#[cfg(test)]
mod tests;

/// The parts of `wanted`, each one verb on one thing, that no single rule of `held` covers.
pub(crate) fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted
        .iter()
        .flat_map(parts)
        .filter(|part| !held.iter().any(|rule| covers(rule, part)))
        .collect()
}

/// A rule as rules with one verb on one resource (by one name) or one path each.
fn parts(rule: &Rule) -> Vec<Rule> {
    let mut all = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let base = Rule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..Rule::default()
                };
                if rule.resource_names.is_empty() {
                    all.push(base);
                    continue;
                }
                all.extend(rule.resource_names.iter().map(|name| Rule {
                    resource_names: vec![name.clone()],
                    ..base.clone()
                }));
            }
        }
    }
    for url in &rule.urls {
        all.extend(rule.verbs.iter().map(|verb| Rule {
            verbs: vec![verb.clone()],
            urls: vec![url.clone()],
            ..Rule::default()
        }));
    }
    all
}

/// One rule grants all of a part.
fn covers(held: &Rule, part: &Rule) -> bool {
    let has = |list: &[String], item: &String| list.contains(item);
    let or_all = |list: &[String], items: &[String]| {
        list.iter().any(|known| known == "*") || items.iter().all(|item| has(list, item))
    };
    let resource = |item: &String| {
        let of_all = item
            .split_once('/')
            .map(|(_, subresource)| format!("*/{subresource}"));
        has(&held.resources, item) || of_all.is_some_and(|it| has(&held.resources, &it))
    };
    let url = |item: &String| held.urls.iter().any(|known| url_matches(known, item));
    let names = match part.resource_names.as_slice() {
        [] => held.resource_names.is_empty(),
        names => {
            held.resource_names.is_empty() || names.iter().all(|it| has(&held.resource_names, it))
        }
    };
    or_all(&held.verbs, &part.verbs)
        && or_all(&held.api_groups, &part.api_groups)
        && (held.resources.iter().any(|known| known == "*") || part.resources.iter().all(resource))
        && names
        && part.urls.iter().all(url)
}

/// A path equals that of a rule, or begins with what the rule has before its last `*`.
pub(super) fn url_matches(known: &str, path: &str) -> bool {
    known == path || known.ends_with('*') && path.starts_with(known.trim_end_matches('*'))
}

/// The rules as errors show them, those that differ in their verbs alone as one, each once and in order.
pub(crate) fn describe(rules: Vec<Rule>) -> Vec<String> {
    let mut all = BTreeSet::new();
    let mut joined: BTreeMap<[Vec<String>; 3], Rule> = BTreeMap::new();
    for rule in rules {
        if !rule.urls.is_empty() {
            all.insert(show(&rule));
            continue;
        }
        let key = [
            rule.api_groups.clone(),
            rule.resources.clone(),
            rule.resource_names.clone(),
        ];
        match joined.get_mut(&key) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => drop(joined.insert(key, rule)),
        }
    }
    all.extend(joined.values().map(show));
    all.into_iter().collect()
}

/// `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
fn show(rule: &Rule) -> String {
    let list = |items: &[String]| {
        let quoted: Vec<String> = items.iter().map(|item| quote(item)).collect();
        format!("[{}]", quoted.join(" "))
    };
    let parts: Vec<String> = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ]
    .into_iter()
    .filter(|(_, items)| !items.is_empty())
    .map(|(title, items)| format!("{title}:{}", list(items)))
    .collect();
    format!("{{{}}}", parts.join(", "))
}
