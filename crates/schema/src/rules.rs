//! CEL rules of custom schemas (`x-kubernetes-validations`): compiled once per schema, run on every write.
//!
//! A rule sees the current value as `self` and the value before an update as `oldSelf`. Rules that use `oldSelf` run
//! only if there is a value to compare with, unless they set `optionalOldSelf`. The cost of a rule is limited per rule
//! and per object.

use std::collections::BTreeMap;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_cel::env::DeclType;
use serde_json::Value;

use crate::structural::{Additional, Pair, Structural};
use compile::{Compiled, compile};
use run::Run;

mod compile;
mod cost;
mod decl;
mod field_path;
mod run;

pub use allot_cel::env::RESERVED;
pub(crate) use decl::escape;
pub(crate) use field_path::resolve as resolve_field_path;

/// The compiled rules of a schema.
#[derive(Debug)]
pub struct Rules {
    schema: Structural,
    root: Node,
}

/// A place in the schema at or below which there are rules.
#[derive(Debug)]
struct Node {
    /// What rules see here; none where they cannot see the value.
    decl: Option<DeclType>,
    kind: String,
    rules: Vec<Compiled>,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
    /// The schemas under `allOf`, which say more about the same value.
    all_of: Vec<Node>,
    /// Rules stand here, whether or not they can see the value.
    ruled: bool,
    /// The keys by which elements of a list are found again after an update.
    keys: Vec<String>,
    /// How many values of the next level a value can hold, where the schema limits it.
    most_below: Option<u64>,
    /// How often the value can stand in a request where nothing else limits it.
    most_here: u64,
}

impl Rules {
    /// Compiles the rules of a custom resource's schema; `None` if it has none.
    pub fn compile(schema: &Structural) -> Option<Self> {
        Self::of(schema, true)
    }

    /// Compiles the rules of a part of a schema; `root` where it describes whole objects.
    pub(crate) fn of(schema: &Structural, root: bool) -> Option<Self> {
        schema.has_rules().then(|| {
            let decl = if root {
                Some(decl::root(schema))
            } else {
                decl::of(schema, "selfType")
            };
            Self {
                root: Node::new(schema, schema, decl, root),
                schema: schema.clone(),
            }
        })
    }

    /// Runs the rules on an object; `old` is what it was before an update.
    pub fn validate(&self, object: &Value, old: Option<&Value>, path: &Path) -> ErrorList {
        let before = old.map(|old| Pair::new(object, old, &self.schema));
        Run::over(&self.root, object, old, before, path)
    }

    /// Runs the rules on an object as if it had not changed, with nothing forgiven.
    pub(crate) fn validate_unchanged(&self, object: &Value, path: &Path) -> ErrorList {
        Run::over(&self.root, object, Some(object), None, path)
    }

    /// What is wrong with the rules themselves: they do not compile, or cost too much. `path` leads to the schema; rules are left alone
    /// where `broken` tells of an error of the schema at or below a path, because they could not be understood there.
    pub fn errors(&self, path: &Path, broken: &dyn Fn(&Path) -> bool) -> ErrorList {
        let mut review = Review {
            broken,
            total: cost::Total::default(),
            errors: ErrorList::new(),
        };
        review.visit(&self.root, path, Some(1), None);
        review.total.errors(path, &mut review.errors);
        review.errors
    }
}

impl Node {
    /// The rules of `schema`; `shape` declares the value. They are two only under `allOf`, where schemas have no types.
    fn new(schema: &Structural, shape: &Structural, decl: Option<DeclType>, root: bool) -> Self {
        // Each place declares its value again: errors call its type by the same name everywhere.
        let part = |sub: &Structural, shape: &Structural| {
            Node::new(sub, shape, decl::of(shape, "selfType"), shape.embedded)
        };
        let properties = schema
            .properties
            .iter()
            .filter(|(_, sub)| sub.has_rules())
            .map(|(name, sub)| {
                let declared = shape.properties.get(name).unwrap_or(sub);
                (name.clone(), part(sub, declared))
            })
            .collect();
        let additional = match (&schema.additional, &shape.additional) {
            (Additional::Schema(sub), Additional::Schema(shape)) if sub.has_rules() => {
                Some(Box::new(part(sub, shape)))
            }
            _ => None,
        };
        let items = schema
            .items
            .as_deref()
            .filter(|sub| sub.has_rules())
            .map(|sub| Box::new(part(sub, shape.items.as_deref().unwrap_or(sub))));
        let all_of = schema
            .checks
            .all_of
            .iter()
            .filter(|sub| sub.has_rules())
            .map(|sub| Node::new(sub, shape, decl.clone(), root))
            .collect();
        let kind = if root { "object" } else { &shape.ty };
        Self {
            kind: kind.to_owned(),
            rules: match &decl {
                Some(decl) if !schema.rules.is_empty() => compile(schema, decl),
                _ => Vec::new(),
            },
            properties,
            additional,
            items,
            all_of,
            ruled: !schema.rules.is_empty(),
            keys: match shape.list_type.as_str() {
                "map" => shape.list_map_keys.clone(),
                _ => Vec::new(),
            },
            most_below: most_below(shape),
            most_here: decl::max_cardinality(shape),
            decl,
        }
    }
}

fn most_below(schema: &Structural) -> Option<u64> {
    let limit = |limit: Option<i64>| limit.map(|limit| limit.max(0) as u64);
    match schema.ty.as_str() {
        "object" if !matches!(schema.additional, Additional::Unset) => {
            limit(schema.checks.max_properties)
        }
        "array" => limit(schema.checks.max_items),
        _ => Some(1),
    }
}

/// Looks at the rules of a definition.
struct Review<'a> {
    broken: &'a dyn Fn(&Path) -> bool,
    total: cost::Total,
    errors: ErrorList,
}

impl Review<'_> {
    /// `count` is how often a value can stand here by the limits of the schemas above; none where they set no limit. `moving` is the part
    /// above whose elements cannot be found again after an update.
    fn visit(&mut self, node: &Node, path: &Path, count: Option<u64>, moving: Option<&Path>) {
        let below = count.zip(node.most_below);
        let below = below.map(|(count, most)| count.saturating_mul(most));
        if let Some(sub) = &node.additional {
            self.visit(sub, &path.child("additionalProperties"), below, moving);
        }
        for (name, sub) in &node.properties {
            self.visit(sub, &path.child("properties").key(name), below, moving);
        }
        if let Some(sub) = &node.items {
            let moves = node.keys.is_empty().then_some(path);
            self.visit(sub, &path.child("items"), below, moving.or(moves));
        }
        if node.ruled && !(self.broken)(path) {
            self.rules(node, path, count, moving);
        }
    }

    fn rules(&mut self, node: &Node, path: &Path, count: Option<u64>, moving: Option<&Path>) {
        let rules = path.child("x-kubernetes-validations");
        if node.decl.is_none() {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.errors.push(Error::internal(&rules, detail));
            return;
        }
        let count = count.unwrap_or(node.most_here);
        for (index, compiled) in node.rules.iter().enumerate() {
            let at = rules.index(index);
            let (rule, shown) = (&compiled.rule, BadValue::raw(compiled.rule.as_go()));
            let at_rule = at.child("rule");
            self.cost(
                &at_rule,
                "estimated rule cost",
                compiled.cost.saturating_mul(count),
            );
            if let Err(error) = &compiled.program {
                let error = Error::invalid(&at_rule, shown.clone(), error.to_string());
                self.errors.push(error);
            }
            let at_message = at.child("messageExpression");
            match &compiled.message {
                Some(Err(error)) => {
                    let error = Error::invalid(&at_message, shown, error.to_string());
                    self.errors.push(error);
                }
                Some(Ok(_)) => self.cost(
                    &at_message,
                    "estimated messageExpression cost",
                    compiled.message_cost,
                ),
                None => {}
            }
            if !compiled.uses_old {
                if let Some(optional) = rule.optional_old_self {
                    let detail = "may not be set if oldSelf is not used in rule";
                    let at = at.child("optionalOldSelf");
                    self.errors.push(Error::invalid(&at, optional, detail));
                }
            } else if let Some(moving) = moving {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {moving}"
                );
                self.errors
                    .push(Error::invalid(&at_rule, &rule.rule, detail));
            }
        }
    }

    fn cost(&mut self, path: &Path, what: &str, cost: u64) {
        if cost > cost::RULE_LIMIT {
            let detail = cost::message(what, cost, cost::RULE_LIMIT);
            self.errors.push(Error::forbidden(path, detail));
        }
        self.total.add(path, cost);
    }
}

#[cfg(test)]
mod tests;
