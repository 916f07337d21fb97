//! Finds identifiers of a machine or a site in a text.

use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

#[cfg(test)]
mod tests;

/// The kind of an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sort {
    /// A UUID.
    Uuid,
    /// A hardware address or a GUID: groups of hexadecimal digits.
    Address,
    /// An IPv4 address.
    V4,
    /// An IPv6 address.
    V6,
    /// A serial number, or a text that looks like one.
    Serial,
    /// A host name.
    Host,
    /// The name of a place or a group of machines: a rack, a zone, a node pool.
    Place,
}

/// An identifier. Equal identifiers denote the same thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identifier {
    pub(super) sort: Sort,
    pub(super) key: String,
}

impl Identifier {
    pub(super) fn new(sort: Sort, key: &str) -> Self {
        // Digits of UUIDs and addresses are the same in both cases.
        let key = match sort {
            Sort::Uuid | Sort::Address | Sort::V6 | Sort::Host => key.to_ascii_lowercase(),
            Sort::V4 | Sort::Serial | Sort::Place => key.to_owned(),
        };
        Self { sort, key }
    }
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Identifies nothing.
    Plain(&'a str),
    /// The name of a node, by its number.
    Node(usize),
    Found(Identifier),
}

/// Length of the longest name of a node or place that is looked for: that of a DNS subdomain, so that the work for a long text
/// is bounded.
const LONGEST: usize = 253;

/// Names that are known from the objects of a cluster.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names of nodes, also without their domains, with the numbers of the nodes.
    pub(super) nodes: HashMap<String, usize>,
    /// Zones, node pools, accounts.
    pub(super) places: BTreeSet<String>,
    /// Domains whose hosts are the site's, with at most two labels.
    pub(super) domains: BTreeSet<String>,
    /// Names of drivers, which look like names of hosts.
    pub(super) drivers: BTreeSet<String>,
}

impl Names {
    /// Divides a text that is the value of something with a name, such as an attribute.
    pub(super) fn scan<'a>(&self, name: &str, text: &'a str) -> Vec<Part<'a>> {
        let parts = self.parts(text);
        let plain = parts.iter().all(|part| matches!(part, Part::Plain(_)));
        let whole = |sort| match self.nodes.get(text) {
            Some(node) => vec![Part::Node(*node)],
            None => vec![Part::Found(Identifier::new(sort, text))],
        };
        let says_nothing = text.is_empty() || matches!(text, "true" | "false" | "unknown");
        match meaning(name) {
            _ if says_nothing => parts,
            Some(Meaning::Serial) if plain => whole(Sort::Serial),
            Some(Meaning::Place) if !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                whole(Sort::Place)
            }
            _ => parts,
        }
    }

    fn parts<'a>(&self, text: &'a str) -> Vec<Part<'a>> {
        let (mut parts, mut plain, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let rest = &text[at..];
            let inside = text[..at].ends_with(|before: char| before.is_ascii_alphanumeric());
            let found = match inside {
                // What follows letters directly is a part of their word.
                true => uuid(rest),
                false => uuid(rest).or_else(|| self.begins(rest)),
            };
            match found {
                Some((length, part)) => {
                    if plain < at {
                        parts.push(Part::Plain(&text[plain..at]));
                    }
                    parts.push(part);
                    at += length;
                    plain = at;
                }
                None => at += rest.chars().next().map_or(1, char::len_utf8),
            }
        }
        if plain < text.len() {
            parts.push(Part::Plain(&text[plain..]));
        }
        parts
    }

    /// An identifier at the beginning of a text, and its length.
    fn begins(&self, text: &str) -> Option<(usize, Part<'static>)> {
        let known = self.known(text);
        known
            .or_else(|| address(text))
            .or_else(|| ip(text))
            .or_else(|| self.host(text))
            .or_else(|| serial(text))
    }

    /// The longest known name.
    fn known(&self, text: &str) -> Option<(usize, Part<'static>)> {
        let run = run(text, |c| c.is_ascii_alphanumeric() || "._-".contains(c));
        let ends = run
            .char_indices()
            .filter(|(_, c)| !c.is_ascii_alphanumeric());
        let ends = ends.map(|(at, _)| at).chain([run.len()]);
        let ends = ends.take_while(|end| *end <= LONGEST);
        let names: Vec<&str> = ends.map(|end| &run[..end]).collect();
        names.iter().rev().find_map(|name| {
            let part = match self.nodes.get(*name) {
                Some(node) => Part::Node(*node),
                None if self.places.contains(*name) => {
                    Part::Found(Identifier::new(Sort::Place, name))
                }
                None => return None,
            };
            Some((name.len(), part))
        })
    }

    /// A host in a domain of the site.
    fn host(&self, text: &str) -> Option<(usize, Part<'static>)> {
        let run = run(text, |c| c.is_ascii_alphanumeric() || ".-".contains(c));
        let ends = run.rmatch_indices('.').map(|(at, _)| at);
        let ends = std::iter::once(run.len()).chain(ends);
        let mut names = ends.map(|end| &run[..end]);
        let name = names.find(|name| {
            let domains = name.rmatch_indices('.').map(|(at, _)| &name[at + 1..]);
            domains.take(2).any(|domain| self.domains.contains(domain))
        })?;
        match self.drivers.contains(name) {
            true => None,
            false => found(Sort::Host, name),
        }
    }
}

/// What a value is, by its name.
enum Meaning {
    Serial,
    Place,
}

/// Words in names of attributes and labels whose values differ from machine to machine.
const SERIAL: &[&str] = &[
    "serial", "sn", "uuid", "guid", "nguid", "eui", "eui64", "wwn", "wwid", "wwnn", "wwpn", "mac",
    "asset",
];
/// Words in names of attributes and labels whose values name places or groups of machines.
const PLACE: &[&str] = &[
    "account",
    "block",
    "chassis",
    "cluster",
    "datacenter",
    "host",
    "hostname",
    "instance",
    "location",
    "network",
    "nodegroup",
    "nodepool",
    "agentpool",
    "pool",
    "project",
    "rack",
    "region",
    "room",
    "row",
    "site",
    "subblock",
    "subnet",
    "switch",
    "tenant",
    "vpc",
    "zone",
];
/// Words in names of attributes and labels whose values describe hardware, also if a word of [`PLACE`] is in the name.
const DESCRIPTION: &[&str] = &[
    "class",
    "count",
    "driver",
    "family",
    "generation",
    "kind",
    "mode",
    "model",
    "product",
    "profile",
    "size",
    "speed",
    "state",
    "topology",
    "type",
    "version",
];

fn meaning(name: &str) -> Option<Meaning> {
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    if has(SERIAL) {
        return Some(Meaning::Serial);
    }
    (has(PLACE) && !has(DESCRIPTION)).then_some(Meaning::Place)
}

/// Whether a number is a serial number, by the name of its attribute.
pub(super) fn is_serial(name: &str) -> bool {
    matches!(meaning(name), Some(Meaning::Serial))
}

/// Whether a label names a place or a group of machines.
pub(super) fn is_place(name: &str) -> bool {
    matches!(meaning(name), Some(Meaning::Place))
}

/// The words of a name without its domain, in lower case: `gke-nodepool`, `serialNumber`, `clusterUUID`.
fn words(name: &str) -> Vec<String> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let characters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, character) in characters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| characters[at]);
        let after = characters.get(at + 1);
        let begins = character.is_ascii_uppercase()
            && (before.is_some_and(|before| !before.is_ascii_uppercase())
                || after.is_some_and(char::is_ascii_lowercase));
        if begins || !character.is_ascii_alphanumeric() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (character.is_ascii_alphanumeric(), words.last_mut()) {
            word.push(character.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The beginning of a text that consists of some characters.
fn run(text: &str, accept: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c| !accept(c)).unwrap_or(text.len());
    &text[..end]
}

fn found(sort: Sort, text: &str) -> Option<(usize, Part<'static>)> {
    Some((text.len(), Part::Found(Identifier::new(sort, text))))
}

/// The form of a UUID.
const UUID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

fn uuid(text: &str) -> Option<(usize, Part<'static>)> {
    let start = text.get(..UUID.len())?;
    let same = start
        .bytes()
        .zip(UUID.bytes())
        .all(|(byte, form)| match form {
            b'-' => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    if same { found(Sort::Uuid, start) } else { None }
}

/// Six bytes or more in groups of equal length: MAC addresses, GUIDs, addresses of InfiniBand.
fn address(text: &str) -> Option<(usize, Part<'static>)> {
    [(':', 2, 6), ('-', 2, 6), (':', 4, 4)]
        .into_iter()
        .find_map(|(separator, length, least)| {
            let run = run(text, |c| c.is_ascii_alphanumeric() || c == separator);
            let whole = run.trim_end_matches(separator);
            let groups: Vec<&str> = whole.split(separator).collect();
            let group = |group: &&str| {
                group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
            };
            // Eight groups of four digits are an IPv6 address.
            let ip = length == 4 && groups.len() == 8;
            if groups.len() >= least && groups.len() <= 20 && !ip && groups.iter().all(group) {
                return found(Sort::Address, whole);
            }
            None
        })
}

fn ip(text: &str) -> Option<(usize, Part<'static>)> {
    let ends = |end: usize| !text[end..].starts_with(|c: char| c.is_ascii_alphanumeric());
    // Also if more numbers follow.
    let four = run(text, |c| c.is_ascii_digit() || c == '.');
    let four = four
        .match_indices('.')
        .nth(3)
        .map_or(four, |(at, _)| &four[..at]);
    let four = four.trim_end_matches('.');
    if ends(four.len()) && four.parse::<Ipv4Addr>().is_ok() {
        return found(Sort::V4, four);
    }
    // With an IPv4 address at its end, or followed by a dot.
    let six = run(text, |c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    [six, run(six, |c| c != '.')].into_iter().find_map(|six| {
        let address = six.parse::<Ipv6Addr>().ok().filter(|_| ends(six.len()))?;
        let says_nothing = address.is_unspecified() || address.is_loopback();
        if says_nothing {
            None
        } else {
            found(Sort::V6, six)
        }
    })
}

/// A word that is unlikely in the name of a product: ten or more letters and digits, of which four or more are digits.
fn serial(text: &str) -> Option<(usize, Part<'static>)> {
    let word = run(text, |c| c.is_ascii_alphanumeric());
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    if word.len() >= 10 && digits >= 4 {
        return found(Sort::Serial, word);
    }
    None
}
