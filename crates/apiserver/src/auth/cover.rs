//! Whether some rules hold all that others grant.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use allot_apimachinery::field::MOST_TEXT;
use allot_apimachinery::quote::quote;

use super::index::Rule;

#[cfg(test)]
mod tests;

/// The strings that are compared for one question. A rule of a few kilobytes has millions of parts, and users may hold
/// thousands of rules.
const MOST_WORK: usize = 10_000_000;
/// The bytes of the missing parts that are kept, many times what an answer tells.
const MOST_SIZE: usize = 1 << 20;

/// What of some rules is not held.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    parts: Vec<Rule>,
    size: usize,
    /// Whether there may be more: it was not all compared.
    more: bool,
}

impl Missing {
    /// Whether everything is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.more
    }

    fn add(&mut self, part: &Part<'_>) -> ControlFlow<()> {
        if self.size > MOST_SIZE {
            return self.give_up();
        }
        let rule = part.rule();
        self.size += size_of::<Rule>() + part.size();
        self.parts.push(rule);
        ControlFlow::Continue(())
    }

    fn give_up(&mut self) -> ControlFlow<()> {
        self.more = true;
        ControlFlow::Break(())
    }
}

/// The parts of `wanted`, each one verb on one thing, that no single rule of `held` covers.
pub(crate) fn missing<'a>(held: impl IntoIterator<Item = &'a Rule>, wanted: &[Rule]) -> Missing {
    missing_within(held, wanted, MOST_WORK)
}

fn missing_within<'a>(
    held: impl IntoIterator<Item = &'a Rule>,
    wanted: &[Rule],
    most_work: usize,
) -> Missing {
    let held = Held::of(held);
    let (mut missing, mut work) = (Missing::default(), 0);
    for rule in wanted {
        let ended = each_part(rule, &mut |part| {
            work += 1;
            let covered = held.covers(&part, &mut work);
            if work > most_work {
                return missing.give_up();
            }
            match covered {
                true => ControlFlow::Continue(()),
                false => missing.add(&part),
            }
        });
        if ended.is_break() {
            break;
        }
    }
    missing
}

/// One verb on one resource (by one name) or one path.
enum Part<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        name: Option<&'a str>,
    },
    Path {
        verb: &'a str,
        url: &'a str,
    },
}

impl Part<'_> {
    fn rule(&self) -> Rule {
        let one = |text: &str| vec![text.to_owned()];
        match *self {
            Self::Resource {
                verb,
                group,
                resource,
                name,
            } => Rule {
                verbs: one(verb),
                api_groups: one(group),
                resources: one(resource),
                resource_names: name.map(one).unwrap_or_default(),
                ..Rule::default()
            },
            Self::Path { verb, url } => Rule {
                verbs: one(verb),
                urls: one(url),
                ..Rule::default()
            },
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Resource {
                verb,
                group,
                resource,
                name,
            } => verb.len() + group.len() + resource.len() + name.map_or(0, str::len),
            Self::Path { verb, url } => verb.len() + url.len(),
        }
    }
}

/// Visits the parts of a rule until one visit ends it.
fn each_part<'a>(
    rule: &'a Rule,
    visit: &mut impl FnMut(Part<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let names: Vec<Option<&str>> = match rule.resource_names.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                for name in &names {
                    visit(Part::Resource {
                        verb,
                        group,
                        resource,
                        name: *name,
                    })?;
                }
            }
        }
    }
    for url in &rule.urls {
        for verb in &rule.verbs {
            visit(Part::Path { verb, url })?;
        }
    }
    ControlFlow::Continue(())
}

/// Rules by the resources in them.
#[derive(Default)]
struct Held<'a> {
    by_resource: HashMap<&'a str, Vec<&'a Rule>>,
    with_urls: Vec<&'a Rule>,
}

impl<'a> Held<'a> {
    fn of(rules: impl IntoIterator<Item = &'a Rule>) -> Self {
        let mut held = Self::default();
        for rule in rules {
            for resource in &rule.resources {
                held.by_resource.entry(resource).or_default().push(rule);
            }
            // Rules of early releases may name objects beside paths; upstream's comparison gives these nothing.
            if !rule.urls.is_empty() && rule.resource_names.is_empty() {
                held.with_urls.push(rule);
            }
        }
        held
    }

    /// Whether one rule grants the part. Counts what was compared.
    fn covers(&self, part: &Part<'_>, work: &mut usize) -> bool {
        let mut any = |list: &[String], fits: &dyn Fn(&str) -> bool| {
            *work += 1 + list.len();
            list.iter().any(|known| fits(known))
        };
        match *part {
            Part::Path { verb, url } => self.with_urls.iter().any(|rule| {
                any(&rule.verbs, &|known| known == "*" || known == verb)
                    && any(&rule.urls, &|known| url_matches(known, url))
            }),
            Part::Resource {
                verb,
                group,
                resource,
                name,
            } => {
                let of_all = resource
                    .split_once('/')
                    .map(|(_, subresource)| format!("*/{subresource}"));
                ["*", resource]
                    .into_iter()
                    .chain(of_all.as_deref())
                    .filter_map(|resource| self.by_resource.get(resource))
                    .flatten()
                    .any(|rule| {
                        any(&rule.verbs, &|known| known == "*" || known == verb)
                            && any(&rule.api_groups, &|known| known == "*" || known == group)
                            && (rule.resource_names.is_empty()
                                || name.is_some_and(|name| {
                                    any(&rule.resource_names, &|known| known == name)
                                }))
                    })
            }
        }
    }
}

/// A path equals that of a rule, or begins with what the rule has before its last `*`.
pub(super) fn url_matches(known: &str, path: &str) -> bool {
    known == path || known.ends_with('*') && path.starts_with(known.trim_end_matches('*'))
}

/// The missing rules as errors show them: sorted, without duplicates, rules that differ only in verbs merged into one; at
/// most 64 KiB.
pub(crate) fn describe(missing: Missing) -> Vec<String> {
    let mut all = BTreeSet::new();
    let mut joined: BTreeMap<[Vec<String>; 3], Rule> = BTreeMap::new();
    for rule in missing.parts {
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
    let (mut told, mut length, mut more) = (Vec::new(), 0, missing.more);
    for text in all {
        if length > MOST_TEXT {
            more = true;
            break;
        }
        length += text.len();
        told.push(text);
    }
    if more {
        told.push("and more".to_owned());
    }
    told
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
