//! Sets of field paths: what a field manager owns.
//!
//! A set is a tree of path elements. Its JSON form is `FieldsV1`: `f:name` for a field, `k:{…}` for a list element told by its keys,
//! `v:…` for an element told by its value, `i:…` for an index, and `.` for the element itself where it has members of its own.

use std::{cmp::Ordering, collections::BTreeMap, fmt};

use serde_json::{Map, Value};

mod compare;

pub use compare::compare_values;

/// One step of a path. The order is that of the published form: fields, keys, values, indices.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// A field of an object or a key of a map.
    Field(String),
    /// An element of a list of objects, by its key fields (sorted by name).
    Key(Vec<(String, Value)>),
    /// An element of a set of scalars.
    Value(Value),
    /// A place in a list.
    Index(usize),
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// The key in `FieldsV1`.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let map: Map<String, Value> = fields.iter().cloned().collect();
                format!("k:{}", Value::Object(map))
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Reads a key of `FieldsV1`.
    pub fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => match serde_json::from_str(rest).ok()? {
                Value::Object(map) => {
                    let mut fields: Vec<(String, Value)> = map.into_iter().collect();
                    fields.sort_by(|a, b| a.0.cmp(&b.0));
                    Some(Self::Key(fields))
                }
                _ => None,
            },
            "v" => serde_json::from_str(rest).ok().map(Self::Value),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                for ((name_a, value_a), (name_b, value_b)) in a.iter().zip(b) {
                    let order = name_a
                        .cmp(name_b)
                        .then_with(|| compare_values(value_a, value_b));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={value}")?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A set of field paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    nodes: BTreeMap<PathElement, Node>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    children: Set,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl Set {
    /// The set of these paths; each is a list of field names.
    pub fn of_fields<'a>(paths: impl IntoIterator<Item = &'a [&'a str]>) -> Self {
        let mut set = Self::default();
        for path in paths {
            let elements: Vec<PathElement> = path
                .iter()
                .map(|name| PathElement::Field((*name).to_owned()))
                .collect();
            set.insert(&elements);
        }
        set
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path; the empty path is no path.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let node = self.nodes.entry(first.clone()).or_default();
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// The path itself is in the set.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else {
            return false;
        };
        self.nodes.get(first).is_some_and(|node| {
            if rest.is_empty() {
                node.member
            } else {
                node.children.contains(rest)
            }
        })
    }

    /// The element itself is in the set.
    pub fn has_member(&self, element: &PathElement) -> bool {
        self.nodes.get(element).is_some_and(|node| node.member)
    }

    /// What the set holds below an element.
    pub fn below(&self, element: &PathElement) -> Option<&Set> {
        self.nodes
            .get(element)
            .map(|node| &node.children)
            .filter(|set| !set.is_empty())
    }

    /// The elements at the top, with whether each is a member itself and what is below it.
    pub fn elements(&self) -> impl Iterator<Item = (&PathElement, bool, &Set)> {
        self.nodes
            .iter()
            .map(|(element, node)| (element, node.member, &node.children))
    }

    /// The paths of both.
    pub fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        for (element, node) in &other.nodes {
            let mine = result.nodes.entry(element.clone()).or_default();
            mine.member |= node.member;
            mine.children = mine.children.union(&node.children);
        }
        result
    }

    /// The paths that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let nodes = self.nodes.iter().filter_map(|(element, node)| {
            let theirs = other.nodes.get(element)?;
            let both = Node {
                member: node.member && theirs.member,
                children: node.children.intersection(&theirs.children),
            };
            (!both.is_empty()).then(|| (element.clone(), both))
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// The paths that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let nodes = self.nodes.iter().filter_map(|(element, node)| {
            let rest = match other.nodes.get(element) {
                Some(theirs) => Node {
                    member: node.member && !theirs.member,
                    children: node.children.difference(&theirs.children),
                },
                None => node.clone(),
            };
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// The paths of which neither they nor anything above them is in `other`.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let nodes = self.nodes.iter().filter_map(|(element, node)| {
            let rest = match other.nodes.get(element) {
                Some(theirs) if theirs.member => return None,
                Some(theirs) => Node {
                    member: node.member,
                    children: node.children.recursive_difference(&theirs.children),
                },
                None => node.clone(),
            };
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// The set with a member for each element that has something below it and that `named` says is a declared field.
    pub(crate) fn map_members(&self, named: &mut dyn FnMut(&[PathElement]) -> bool) -> Self {
        fn walk(
            set: &Set,
            path: &mut Vec<PathElement>,
            named: &mut dyn FnMut(&[PathElement]) -> bool,
        ) -> Set {
            let mut nodes = BTreeMap::new();
            for (element, node) in &set.nodes {
                path.push(element.clone());
                let member = node.member || (!node.children.is_empty() && named(path));
                nodes.insert(
                    element.clone(),
                    Node {
                        member,
                        children: walk(&node.children, path, named),
                    },
                );
                path.pop();
            }
            Set { nodes }
        }
        walk(self, &mut Vec::new(), named)
    }

    /// All paths in order.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        fn walk(set: &Set, path: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>) {
            // Members come before what is below any element, as upstream lists them.
            for (element, node) in &set.nodes {
                if node.member {
                    path.push(element.clone());
                    out.push(path.clone());
                    path.pop();
                }
            }
            for (element, node) in &set.nodes {
                path.push(element.clone());
                walk(&node.children, path, out);
                path.pop();
            }
        }
        let mut out = Vec::new();
        walk(self, &mut Vec::new(), &mut out);
        out
    }

    /// The `FieldsV1` form.
    pub fn to_fields_v1(&self) -> Value {
        let mut map = Map::new();
        for (element, node) in &self.nodes {
            let Value::Object(mut below) = node.children.to_fields_v1() else {
                continue;
            };
            if node.member && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            map.insert(element.encode(), Value::Object(below));
        }
        Value::Object(map)
    }

    /// Reads the `FieldsV1` form; none where it is not one.
    pub fn from_fields_v1(value: &Value) -> Option<Self> {
        let Value::Object(map) = value else {
            return None;
        };
        let mut set = Self::default();
        for (key, below) in map {
            if key == "." {
                continue;
            }
            let Value::Object(inner) = below else {
                return None;
            };
            let element = PathElement::decode(key)?;
            let node = Node {
                member: inner.is_empty() || inner.contains_key("."),
                children: Self::from_fields_v1(below)?,
            };
            set.nodes.insert(element, node);
        }
        Some(set)
    }
}

/// A path as conflict messages print it, such as `.spec.containers[name="a"].image`.
pub fn display_path(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
