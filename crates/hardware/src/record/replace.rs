//! Replaces identifiers: equal ones by equal ones, different ones by different ones, within a node and among nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::scan::{self, Identifier, Names, Part, Sort};
use super::{Cluster, text};

/// Name of the table with the number of the recorded kind of nodes, which keeps the identifiers of nodes of different kinds
/// different.
pub(super) const TABLE: &str = "recorded";

/// The identifiers of a cluster.
pub(super) struct Site {
    names: Names,
    /// Identifiers that several nodes have, with their numbers.
    shared: BTreeMap<Identifier, usize>,
}

impl Site {
    /// `contents` are the texts of each node, with the names of what they are values of.
    pub(super) fn new<'a>(
        cluster: &Cluster,
        contents: impl Iterator<Item = Vec<(&'a str, &'a str)>>,
    ) -> Self {
        let names = names(cluster);
        // For each identifier: the order in which it was found, the last node with it, and whether several nodes have it.
        let mut seen: BTreeMap<Identifier, (usize, usize, bool)> = BTreeMap::new();
        for (node, texts) in contents.enumerate() {
            for (name, text) in texts {
                for part in names.scan(name, text) {
                    let found = match part {
                        Part::Found(found) => found,
                        // The name of another node.
                        Part::Node(other) if other != node => peer(other),
                        _ => continue,
                    };
                    let place = seen.len();
                    let (_, last, several) = seen.entry(found).or_insert((place, node, false));
                    *several |= *last != node;
                    *last = node;
                }
            }
        }
        seen.retain(|_, (.., several)| *several);
        let mut shared: Vec<(Identifier, usize)> = seen
            .into_iter()
            .map(|(id, (place, ..))| (id, place))
            .collect();
        shared.sort_by_key(|(_, place)| *place);
        let numbered = shared.into_iter().zip(1..);
        Self {
            names,
            shared: numbered.map(|((id, _), number)| (id, number)).collect(),
        }
    }
}

/// A node that is named in texts of other nodes.
fn peer(node: usize) -> Identifier {
    Identifier::new(Sort::Host, &format!("node {node}"))
}

/// Shortest name of a node, and of a place, that is looked for in texts: a short one would be found in other words.
const LEAST_NODE: usize = 4;
const LEAST_PLACE: usize = 5;

fn names(cluster: &Cluster) -> Names {
    let mut names = Names::default();
    let drivers = cluster
        .slices
        .iter()
        .map(|slice| text(&slice["spec"]["driver"]));
    names.drivers = drivers.map(str::to_owned).collect();
    let mut places = BTreeSet::new();
    for (number, node) in cluster.nodes.iter().enumerate() {
        let provider = text(&node["spec"]["providerID"]);
        let provider = provider.split_once("://").map_or(provider, |(_, id)| id);
        let mut provider: Vec<&str> = provider.split('/').collect();
        let machine = provider.pop().unwrap_or_default();
        places.extend(provider);
        let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
        for (key, value) in labels {
            if scan::is_place(key) && !key.ends_with("/hostname") {
                places.insert(text(value));
            }
        }
        let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
        let addresses = addresses.filter(|address| !text(&address["type"]).ends_with("IP"));
        let own = [
            text(&node["metadata"]["name"]),
            text(&node["metadata"]["labels"]["kubernetes.io/hostname"]),
            machine,
        ];
        for name in own
            .into_iter()
            .chain(addresses.map(|address| text(&address["address"])))
        {
            // An address has no domain.
            let named = Some(name).filter(|name| name.parse::<IpAddr>().is_err());
            let short = named.and_then(|name| name.split_once('.'));
            let short = short.map(|(short, domain)| {
                names.domains.insert(suffix(domain).to_owned());
                short
            });
            for name in [Some(name), short].into_iter().flatten() {
                if name.len() >= LEAST_NODE {
                    names.nodes.entry(name.to_owned()).or_insert(number);
                }
            }
        }
    }
    // Ordinary words are names of pools as well.
    let named = |place: &&str| {
        place.len() >= LEAST_PLACE
            && place.contains(|c: char| c.is_ascii_digit() || "-._".contains(c))
    };
    names.places = places
        .into_iter()
        .filter(named)
        .map(str::to_owned)
        .collect();
    names
}

/// The last two labels of a domain: `nvidia.com` of `gpu.nvidia.com`.
pub(super) fn suffix(domain: &str) -> &str {
    let mut dots = domain.rmatch_indices('.');
    dots.nth(1).map_or(domain, |(at, _)| &domain[at + 1..])
}

/// A text without expressions.
pub(super) fn escaped(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// Replacements in the objects of a node.
pub(super) struct Replace<'a> {
    site: &'a Site,
    node: usize,
    /// Identifiers that only this node has, with their numbers.
    own: BTreeMap<Identifier, usize>,
    /// How many of each sort.
    counts: BTreeMap<Sort, usize>,
}

impl<'a> Replace<'a> {
    pub(super) fn new(site: &'a Site, node: usize) -> Self {
        Self {
            site,
            node,
            own: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// The value of something with a name, as a template.
    pub(super) fn text(&mut self, name: &str, text: &str) -> String {
        let mut template = String::new();
        for part in self.site.names.scan(name, text) {
            match part {
                Part::Plain(text) => template.push_str(&escaped(text)),
                Part::Node(node) if node == self.node => template.push_str("{node}"),
                Part::Node(other) => template.push_str(&self.found(peer(other))),
                Part::Found(found) => template.push_str(&self.found(found)),
            }
        }
        template
    }

    /// A whole number that is a serial number.
    pub(super) fn number(&mut self, number: &Value) -> String {
        let own = self.own(Identifier::new(Sort::Serial, &number.to_string()));
        format!("{{1000000 + index * 1000 + {own}}}")
    }

    fn own(&mut self, found: Identifier) -> usize {
        let count = self.counts.entry(found.sort).or_default();
        *self.own.entry(found).or_insert_with(|| {
            *count += 1;
            *count
        })
    }

    fn found(&mut self, found: Identifier) -> String {
        match self.site.shared.get(&found) {
            Some(number) => of_several(&found, *number),
            None => {
                let number = self.own(found.clone());
                of_one(&found, number)
            }
        }
    }

    /// Replaces identifiers in all texts of the value of something with a name.
    pub(super) fn value(&mut self, name: &str, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(name, text).into(),
            Value::Array(list) => {
                let list = list.iter().map(|item| self.value(name, item));
                list.collect::<Vec<_>>().into()
            }
            Value::Object(members) => {
                let members = members.iter().map(|(key, member)| {
                    let member = match (key.as_str(), member) {
                        ("int", Value::Number(_)) if scan::is_serial(name) => {
                            self.number(member).into()
                        }
                        // A version has dots and digits as an address has.
                        ("version", Value::String(version)) => escaped(version).into(),
                        // The members for the type of an attribute do not name it.
                        ("string" | "strings", _) => self.value(name, member),
                        _ => self.value(key, member),
                    };
                    (escaped(key), member)
                });
                members.collect::<Map<_, _>>().into()
            }
            simple => simple.clone(),
        }
    }
}

/// The texts in which [`Replace::value`] replaces identifiers, with the names of what they are values of.
pub(super) fn texts<'a>(name: &'a str, value: &'a Value, all: &mut Vec<(&'a str, &'a str)>) {
    match value {
        Value::String(text) => all.push((name, text)),
        Value::Array(list) => list.iter().for_each(|item| texts(name, item, all)),
        Value::Object(members) => {
            for (key, member) in members {
                match (key.as_str(), member) {
                    // Amounts, which are not replaced.
                    ("version", Value::String(_)) | ("capacity" | "counters", _) => {}
                    ("string" | "strings", _) => texts(name, member, all),
                    _ => texts(key, member, all),
                }
            }
        }
        _ => {}
    }
}

/// Replaces identifiers in an object that does not belong to one node. The result is not a template.
pub(super) fn literally(site: &Site, value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let parts = site.names.scan("", text).into_iter().map(|part| {
                let found = match part {
                    Part::Plain(text) => return text.to_owned(),
                    Part::Node(node) => peer(node),
                    Part::Found(found) => found,
                };
                of_several(&found, site.shared.get(&found).copied().unwrap_or(0))
            });
            parts.collect::<String>().into()
        }
        Value::Array(list) => {
            let list = list.iter().map(|item| literally(site, item));
            list.collect::<Vec<_>>().into()
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(key, member)| (key.clone(), literally(site, member)));
            members.collect::<Map<_, _>>().into()
        }
        simple => simple.clone(),
    }
}

/// The replacement of an identifier that several nodes have: a text without expressions.
fn of_several(found: &Identifier, number: usize) -> String {
    let (high, low) = (number / 256 % 256, number % 256);
    match found.sort {
        Sort::Uuid => format!("5175e000-0000-4000-8000-{number:012x}"),
        Sort::Address => grouped(found, "ff", ["ff", "ff"], "ffff", number),
        // The shared address space.
        Sort::V4 => format!("100.64.{high}.{low}"),
        Sort::V6 => format!("2001:db8:ffff::{:x}", number % 65_536),
        Sort::Serial => format!("sff{number:07x}"),
        Sort::Host => format!("host-{number}"),
        Sort::Place => format!("place-{number}"),
    }
}

/// The replacement of an identifier that only one node has: a template, which differs between nodes with equal hardware.
fn of_one(found: &Identifier, number: usize) -> String {
    let low = number % 256;
    match found.sort {
        Sort::Uuid => format!("{{uuid(node, {number})}}"),
        Sort::Address => {
            let index = ["{index / 256 % 256:02x}", "{index % 256:02x}"];
            let of_kind = format!("{{{TABLE} % 256:02x}}");
            grouped(found, &of_kind, index, "{index % 65536:04x}", number)
        }
        // The range for benchmarks.
        Sort::V4 => format!("198.{{18 + {TABLE} % 2}}.{{index % 256}}.{low}"),
        Sort::V6 => {
            let number = number % 65_536;
            format!("2001:db8:{{{TABLE}:04x}}:{{index % 65536:04x}}::{number:x}")
        }
        Sort::Serial => format!("s{{{TABLE} % 256:02x}}{{index % 65536:04x}}{number:03x}"),
        Sort::Host => format!("{{node}}-peer-{number}"),
        Sort::Place => format!("place-{{{TABLE}}}-{{index}}-{number}"),
    }
}

/// An address in the form of another one, locally administered, that ends in the number of the node and its own.
fn grouped(
    found: &Identifier,
    of_kind: &str,
    of_node: [&str; 2],
    of_node_long: &str,
    number: usize,
) -> String {
    let separator = if found.key.contains(':') { ':' } else { '-' };
    let groups: Vec<&str> = found.key.split(separator).collect();
    let number = number % 65_536;
    let (first, last) = match groups.first().map_or(2, |group| group.len()) {
        2 => {
            let [high, low] = of_node;
            let own = [number / 256, number % 256].map(|byte| format!("{byte:02x}"));
            let [own_high, own_low] = own;
            let last = [high.to_owned(), low.to_owned(), own_high, own_low];
            (vec!["02".to_owned(), of_kind.to_owned()], last.to_vec())
        }
        _ => {
            let last = vec![of_node_long.to_owned(), format!("{number:04x}")];
            (vec![format!("02{of_kind}")], last)
        }
    };
    let between = groups.len().saturating_sub(first.len() + last.len());
    let zeros = vec!["0".repeat(groups[0].len()); between];
    let mut address = String::new();
    for (at, group) in first.iter().chain(&zeros).chain(&last).enumerate() {
        if at > 0 {
            address.push(separator);
        }
        let _ = write!(address, "{group}");
    }
    address
}
