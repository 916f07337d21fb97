//! CEL rules of custom schemas (`x-kubernetes-validations`): compiled once per schema, run on every write.
//!
//! A rule sees the value where it stands as `self` and the value before an update as `oldSelf`. Rules that use `oldSelf` run only where there
//! is a value to compare with, unless they say `optionalOldSelf`. What a rule may cost is limited per rule and per object.

use std::{collections::BTreeMap, sync::Arc};

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_cel::{
    env::{DeclType, Env},
    program::{Limits, Program},
    types::Type,
    value::Value as Cel,
};
use serde_json::Value;

use crate::structural::{Additional, Rule, Structural};

mod cost;
mod decl;

/// What all rules of one object may cost together.
const OBJECT_BUDGET: u64 = 10_000_000;
/// The longest message that an expression may give.
const MAX_MESSAGE: usize = 5 * 1024;

/// The compiled rules of a schema.
#[derive(Debug)]
pub struct Rules {
    root: Node,
}

#[derive(Debug)]
struct Node {
    decl: DeclType,
    kind: String,
    rules: Vec<Compiled>,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
    /// The schemas under `allOf`, which say more about the same value.
    all_of: Vec<Node>,
    /// The keys of a list whose elements can be found again after an update.
    keys: Vec<String>,
    /// Keys of an object can be found again after an update.
    correlatable: bool,
}

#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Result<Program, String>,
    message: Option<Result<Program, String>>,
    uses_old: bool,
    /// The most that one evaluation costs by estimate, and the same for the message.
    cost: (u64, u64),
}

impl Rules {
    /// Compiles the rules of a custom resource's schema; none where it has none.
    pub fn compile(schema: &Structural) -> Option<Self> {
        schema.has_rules().then(|| Self {
            root: Node::new(schema, schema, decl::root(schema), true),
        })
    }

    /// Runs the rules on an object; `old` is what it was before an update.
    pub fn validate(&self, object: &Value, old: Option<&Value>, path: &Path) -> ErrorList {
        let mut run = Run {
            errors: ErrorList::new(),
            left: OBJECT_BUDGET,
            ended: false,
        };
        run.visit(&self.root, object, old, path);
        run.errors
    }

    /// What is wrong with the rules themselves: they do not compile, or cost too much. `path` leads to the schema.
    pub fn errors(&self, path: &Path) -> ErrorList {
        let mut errors = ErrorList::new();
        let mut total = 0;
        self.root.errors(path, 1, &mut total, &mut errors);
        if total > cost::DEFINITION_LIMIT {
            let detail = cost::message(
                "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema",
                total,
                cost::DEFINITION_LIMIT,
            );
            errors.push(Error::forbidden(path, detail));
        }
        errors
    }
}

impl Node {
    /// The rules of `schema`; `shape` declares the value. They are two only under `allOf`, where schemas have no types.
    fn new(schema: &Structural, shape: &Structural, decl: DeclType, root: bool) -> Self {
        let part = |sub: &Structural, shape: &Structural, decl: Option<&DeclType>| {
            let own = || decl::of(shape, "selfType").unwrap_or_else(decl::anything);
            let decl = decl.cloned().unwrap_or_else(own);
            Node::new(sub, shape, decl, shape.embedded)
        };
        let properties = schema
            .properties
            .iter()
            .filter(|(_, sub)| sub.has_rules())
            .map(|(name, sub)| {
                let declared = shape.properties.get(name).unwrap_or(sub);
                let decl = decl.field(&decl::escape(name));
                (name.clone(), part(sub, declared, decl))
            })
            .collect();
        let additional = match (&schema.additional, &shape.additional) {
            (Additional::Schema(sub), Additional::Schema(shape)) if sub.has_rules() => {
                Some(Box::new(part(sub, shape, None)))
            }
            _ => None,
        };
        let items = schema
            .items
            .as_deref()
            .filter(|sub| sub.has_rules())
            .map(|sub| Box::new(part(sub, shape.items.as_deref().unwrap_or(sub), None)));
        let all_of = schema
            .checks
            .all_of
            .iter()
            .map(|sub| Node::new(sub, shape, decl.clone(), root))
            .collect();
        let rules = if schema.rules.is_empty() {
            Vec::new()
        } else {
            compile(schema, &decl)
        };
        Self {
            kind: if root {
                "object".to_owned()
            } else {
                shape.ty.clone()
            },
            rules,
            properties,
            additional,
            items,
            all_of,
            keys: if shape.list_type == "map" {
                shape.list_map_keys.clone()
            } else {
                Vec::new()
            },
            correlatable: shape.map_type != "atomic",
            decl,
        }
    }

    fn errors(&self, path: &Path, cardinality: u64, total: &mut u64, errors: &mut ErrorList) {
        for (index, compiled) in self.rules.iter().enumerate() {
            let at = path.child("x-kubernetes-validations").index(index);
            let shown = || BadValue::raw(rule_as_go(&compiled.rule));
            for (key, name, program, cost) in [
                (
                    "rule",
                    "estimated rule cost",
                    Some(&compiled.program),
                    compiled.cost.0,
                ),
                (
                    "messageExpression",
                    "estimated messageExpression cost",
                    compiled.message.as_ref(),
                    compiled.cost.1,
                ),
            ] {
                let cost = cost.saturating_mul(cardinality);
                *total = total.saturating_add(cost);
                if cost > cost::RULE_LIMIT {
                    errors.push(Error::forbidden(
                        &at.child(key),
                        cost::message(name, cost, cost::RULE_LIMIT),
                    ));
                }
                if let Some(Err(text)) = program {
                    errors.push(Error::invalid(&at.child(key), shown(), text));
                }
            }
        }
        for (name, node) in &self.properties {
            node.errors(
                &path.child("properties").key(name),
                cardinality,
                total,
                errors,
            );
        }
        let many = |max: u64| cardinality.saturating_mul(max.max(1));
        if let Some(node) = &self.additional {
            node.errors(
                &path.child("additionalProperties"),
                many(decl::max_elements(&self.decl)),
                total,
                errors,
            );
        }
        if let Some(node) = &self.items {
            node.errors(
                &path.child("items"),
                many(decl::max_elements(&self.decl)),
                total,
                errors,
            );
        }
        for (index, node) in self.all_of.iter().enumerate() {
            node.errors(
                &path.child("allOf").index(index),
                cardinality,
                total,
                errors,
            );
        }
    }
}

/// A rule as upstream's struct prints.
fn rule_as_go(rule: &Rule) -> String {
    let text = |text: &str| allot_apimachinery::quote::quote(text);
    let reason = if rule.reason.is_empty() {
        "null".to_owned()
    } else {
        text(&rule.reason)
    };
    let optional = rule
        .optional_old_self
        .map_or("null".to_owned(), |value| value.to_string());
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
        text(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        text(&rule.field_path)
    )
}

fn compile(schema: &Structural, decl: &DeclType) -> Vec<Compiled> {
    let base = Env::kubernetes()
        .with_object(decl)
        .with_variable("self", decl.clone());
    schema
        .rules
        .iter()
        .map(|rule| {
            let old = match rule.optional_old_self {
                Some(true) => DeclType::scalar(Type::optional(decl.ty().clone()), 0),
                _ => decl.clone(),
            };
            let full = base.clone().with_variable("oldSelf", old);
            // Whether a rule compares is told by whether it compiles without the old value.
            let uses_old = base.compile(&rule.rule).is_err() && full.compile(&rule.rule).is_ok();
            let (program, cost) = program(
                &full,
                &rule.rule,
                &Type::Bool,
                "",
                "cel expression must evaluate to a bool",
            );
            let message = (!rule.message_expression.is_empty()).then(|| {
                let wrong = "messageExpression must evaluate to a string";
                program_of_message(&full, &rule.message_expression, wrong)
            });
            let message_cost = message.as_ref().map_or(0, |(_, cost)| *cost);
            Compiled {
                rule: rule.clone(),
                program,
                message: message.map(|(program, _)| program),
                uses_old,
                cost: (cost, message_cost),
            }
        })
        .collect()
}

fn program_of_message(env: &Env, source: &str, wrong: &str) -> (Result<Program, String>, u64) {
    program(env, source, &Type::String, "messageExpression ", wrong)
}

fn program(
    env: &Env,
    source: &str,
    wanted: &Type,
    what: &str,
    wrong: &str,
) -> (Result<Program, String>, u64) {
    let checked = match env.compile(source) {
        Ok(checked) => checked,
        Err(error) => return (Err(format!("{what}compilation failed: {error}")), 0),
    };
    if checked.output() != wanted && *checked.output() != Type::Dyn {
        return (Err(wrong.to_owned()), 0);
    }
    // Where the size of a part is not known, the estimate has no upper bound and says nothing; evaluation is limited all the same.
    let cost = Some(checked.cost(env).max)
        .filter(|cost| *cost < u64::MAX / 12)
        .unwrap_or_default();
    (
        Program::new(&checked).map_err(|error| format!("{what}instantiation failed: {error}")),
        cost,
    )
}

struct Run {
    errors: ErrorList,
    left: u64,
    /// The budget is gone; nothing more is run.
    ended: bool,
}

impl Run {
    fn visit(&mut self, node: &Node, value: &Value, old: Option<&Value>, path: &Path) {
        // Rules on a nullable value see it only where it is not null.
        if value.is_null() || self.ended {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, value, old, path);
        for more in &node.all_of {
            self.visit(more, value, old, path);
        }
        match value {
            Value::Array(items) => {
                let Some(element) = &node.items else { return };
                for (index, item) in items.iter().enumerate() {
                    let before = old
                        .and_then(Value::as_array)
                        .filter(|_| !node.keys.is_empty())
                        .and_then(|old| {
                            old.iter().find(|other| {
                                node.keys.iter().all(|key| other.get(key) == item.get(key))
                            })
                        });
                    self.visit(element, item, before, &path.index(index));
                }
            }
            Value::Object(map) => {
                for (key, item) in map {
                    let before = old
                        .filter(|_| node.correlatable)
                        .and_then(|old| old.get(key));
                    if let Some(property) = node.properties.get(key) {
                        self.visit(property, item, before, &path.child(key));
                    } else if let Some(additional) = &node.additional {
                        self.visit(additional, item, before, &path.key(key));
                    }
                }
            }
            _ => {}
        }
    }

    fn rules(&mut self, node: &Node, value: &Value, old: Option<&Value>, path: &Path) {
        for compiled in &node.rules {
            if self.ended {
                return;
            }
            let optional = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old && old.is_none() && !optional {
                continue;
            }
            self.rule(node, compiled, value, old, path);
        }
    }

    fn rule(
        &mut self,
        node: &Node,
        compiled: &Compiled,
        value: &Value,
        old: Option<&Value>,
        path: &Path,
    ) {
        let rule = &compiled.rule;
        let fail = |text: String| Error::invalid(path, node.kind.as_str(), text);
        let program = match &compiled.program {
            Ok(program) => program,
            Err(text) => {
                self.errors
                    .push(fail(format!("rule compile error: {text}")));
                return;
            }
        };
        let now = node.decl.value(value);
        let before = old.map(|old| node.decl.value(old));
        let before = match rule.optional_old_self {
            Some(true) => Cel::Optional(before.map(Arc::new)),
            _ => before.unwrap_or(Cel::Null),
        };
        let variables = [now, before];
        let outcome = program.evaluate(&variables, &Limits::default());
        if outcome.cost > self.left {
            let text = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.errors.push(fail(text.to_owned()));
            self.ended = true;
            return;
        }
        self.left -= outcome.cost;
        match outcome.result {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => {
                // A part that did not change is held against nobody.
                if !compiled.uses_old && old == Some(value) {
                    return;
                }
                let detail = self.message(compiled, &variables);
                self.errors
                    .push(self.broken(node, rule, value, detail, path));
            }
            Err(error) => {
                let text = error.to_string();
                let name = rule_name(rule);
                if text.starts_with("no such overload") {
                    self.errors.push(fail(format!(
                        "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                    )));
                } else if text.starts_with("operation cancelled: actual cost limit exceeded") {
                    self.errors.push(fail(format!(
                        "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                    )));
                    self.ended = true;
                } else {
                    self.errors
                        .push(fail(format!("{text} evaluating rule: {name}")));
                }
            }
        }
    }

    fn broken(
        &self,
        node: &Node,
        rule: &Rule,
        value: &Value,
        detail: String,
        path: &Path,
    ) -> Error {
        let path = if rule.field_path.is_empty() {
            path.clone()
        } else {
            rule.field_path
                .trim_start_matches('.')
                .split('.')
                .fold(path.clone(), |path, name| path.child(name))
        };
        // Objects and lists are not repeated in the message.
        let whole = matches!(node.kind.as_str(), "object" | "array");
        let shown = if whole {
            BadValue::Omitted
        } else {
            BadValue::from(value)
        };
        match rule.reason.as_str() {
            "FieldValueForbidden" => Error::forbidden(&path, detail),
            "FieldValueRequired" => Error::required(&path, detail),
            "FieldValueDuplicate" => Error::duplicate(&path, shown),
            _ => Error::invalid(&path, shown, detail),
        }
    }

    /// The message of a broken rule: that of its expression, or its own, or the rule itself.
    fn message(&mut self, compiled: &Compiled, variables: &[Cel<'_>]) -> String {
        if let Some(Ok(program)) = &compiled.message {
            let outcome = program.evaluate(variables, &Limits::default());
            self.left = self.left.saturating_sub(outcome.cost);
            if let Ok(Cel::String(text)) = &outcome.result {
                let text = text.trim();
                if !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n') {
                    return text.to_owned();
                }
            }
        }
        match compiled.rule.message.trim() {
            "" => format!("failed rule: {}", compiled.rule.rule.trim()),
            message => message.to_owned(),
        }
    }
}

fn rule_name(rule: &Rule) -> &str {
    if rule.message.is_empty() {
        rule.rule.trim()
    } else {
        rule.message.trim()
    }
}

#[cfg(test)]
mod tests;
