//! Evaluation of the validation rules on an object.

use std::collections::HashMap;
use std::sync::Arc;

use allot_apimachinery::{
    field::{BadValue, Error, ErrorList, Path},
    interrupt,
    quote::{go_json, quote},
};
use allot_cel::{
    program::{Limits, Program},
    value::Value as Cel,
};
use serde_json::Value;

use super::{Compiled, Node};
use crate::structural::{Pair, Rule, key_of, keyed};

/// Limit of the cost of all rules of one object (`RuntimeCELCostBudget`).
const OBJECT_BUDGET: u64 = 10_000_000;
/// The longest message that an expression may evaluate to, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
/// The length of all error texts, in bytes, after which no more rules are evaluated.
const MOST_TEXT: usize = 4 << 20;

/// The limits of one evaluation, which ends when the request times out.
fn limits() -> Limits<'static> {
    Limits {
        interrupted: Some(&interrupt::is_requested),
        ..Limits::default()
    }
}

pub(super) struct Run {
    errors: ErrorList,
    /// The length of their texts in bytes.
    text_length: usize,
    /// The rest of the cost budget.
    left: u64,
    /// Nothing more is evaluated, for example because the budget is spent.
    ended: bool,
}

/// Why no more rules are evaluated after a message expression; the texts are upstream's.
#[derive(Debug, thiserror::Error)]
enum MessageError {
    #[error(
        "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
    )]
    Budget,
    #[error(
        "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
        quote(.0)
    )]
    CallCost(String),
}

/// The value before the update, to determine whether it changed: that of the visited value, or else of the nearest value
/// around it that has an old one.
#[derive(Clone, Copy, Default)]
struct Before<'a> {
    here: Option<Pair<'a>>,
    around: Option<Pair<'a>>,
}

impl<'a> Before<'a> {
    fn key(self, name: &str) -> Self {
        match self.here {
            None => self,
            // The type of an object says nothing about the type of the old one.
            Some(_) if self.around.is_none() && matches!(name, "apiVersion" | "kind") => {
                Self::default()
            }
            Some(here) => Self {
                here: here.key(name),
                around: Some(here),
            },
        }
    }

    /// The values before the update for the elements of a list of this length.
    fn elements(self, count: usize) -> Vec<Self> {
        let Some(here) = self.here else {
            return vec![self; count];
        };
        let around = Some(here);
        let mut all: Vec<Self> = here
            .elements()
            .into_iter()
            .map(|here| Self { here, around })
            .collect();
        all.resize(count, Self { here: None, around });
        all
    }

    fn unchanged(self) -> bool {
        self.here.or(self.around).is_some_and(Pair::unchanged)
    }
}

impl Run {
    pub(super) fn over(
        node: &Node,
        object: &Value,
        old: Option<&Value>,
        before: Option<Pair<'_>>,
        path: &Path,
    ) -> ErrorList {
        let mut run = Self {
            errors: ErrorList::new(),
            text_length: 0,
            left: OBJECT_BUDGET,
            ended: false,
        };
        let before = Before {
            here: before,
            around: None,
        };
        run.visit(node, object, old, before, path);
        run.errors
    }

    fn visit(
        &mut self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        before: Before<'_>,
        path: &Path,
    ) {
        // Rules of a nullable value are not evaluated if it is null.
        if value.is_null() || self.ended || node.decl.is_none() {
            return;
        }
        if interrupt::is_requested() {
            return self.end(interrupt::error(path));
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, value, old, before, path);
        for more in &node.all_of {
            let before = Before {
                here: None,
                around: before.around,
            };
            self.visit(more, value, old, before, path);
        }
        match value {
            Value::Array(items) => {
                let Some(element) = &node.items else { return };
                let known = old.and_then(|old| node.elements(old));
                let all = items.iter().zip(before.elements(items.len()));
                for (index, (item, before)) in all.enumerate() {
                    if self.ended {
                        return;
                    }
                    let known = known.as_ref();
                    let was = known.and_then(|all| all.get(&key_of(item, &node.keys)).copied());
                    self.visit(element, item, was, before, &path.index(index));
                }
            }
            Value::Object(map) => {
                for (key, item) in map {
                    let was = old.and_then(|old| old.get(key));
                    if let Some(additional) = &node.additional {
                        self.visit(additional, item, was, before.key(key), &path.key(key));
                    } else if let Some(property) = node.properties.get(key) {
                        self.visit(property, item, was, before.key(key), &path.child(key));
                    }
                }
            }
            _ => {}
        }
    }

    fn rules(
        &mut self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        before: Before<'_>,
        path: &Path,
    ) {
        for compiled in &node.rules {
            if self.ended {
                return;
            }
            let optional = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old && old.is_none() && !optional {
                continue;
            }
            self.rule(node, compiled, value, old, before, path);
        }
    }

    /// Adds an error. It is the last one when the texts are too long together, since a rule and its message are repeated for
    /// each element of a list.
    fn report(&mut self, error: Error) {
        self.text_length += error.field.len() + error.detail.len();
        self.errors.push(error);
        self.ended |= self.text_length > MOST_TEXT;
    }

    /// Adds the last error.
    fn end(&mut self, error: Error) {
        self.report(error);
        self.ended = true;
    }

    fn rule(
        &mut self,
        node: &Node,
        compiled: &Compiled,
        value: &Value,
        old: Option<&Value>,
        before: Before<'_>,
        path: &Path,
    ) {
        let rule = &compiled.rule;
        let fail = |text: String| Error::invalid(path, node.kind.as_str(), text);
        let (program, decl) = match (&compiled.program, &node.decl) {
            (Ok(program), Some(decl)) => (program, decl),
            (Err(error), _) => {
                self.report(fail(format!("rule compile error: {error}")));
                return;
            }
            (_, None) => return,
        };
        let now = decl.value(value);
        let was = old.map(|old| decl.value(old));
        let was = match rule.optional_old_self {
            Some(true) => Cel::Optional(was.map(Arc::new)),
            _ => was.unwrap_or(Cel::Null),
        };
        let variables = [now, was];
        let outcome = program.evaluate(&variables, &limits());
        if outcome.cost > self.left || self.left == 0 {
            let text = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.end(fail(text.to_owned()));
            return;
        }
        self.left -= outcome.cost;
        let name = rule.name();
        match outcome.result {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => self.broken(node, compiled, value, &variables, before, path),
            Err(error) => {
                let text = error.to_string();
                if text.starts_with("no such overload") {
                    self.report(fail(format!(
                        "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                    )));
                } else if text.starts_with("operation cancelled: actual cost limit exceeded") {
                    self.end(fail(format!(
                        "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                    )));
                } else {
                    let text = format!("{text} evaluating rule: {name}");
                    self.report(fail(text));
                }
            }
        }
    }

    /// Reports a rule that is false; errors of an unchanged part are dropped.
    fn broken(
        &mut self,
        node: &Node,
        compiled: &Compiled,
        value: &Value,
        variables: &[Cel<'_>],
        before: Before<'_>,
        path: &Path,
    ) {
        let path = match compiled.field.as_str() {
            "" => path.clone(),
            field => path.child(field),
        };
        let rule = &compiled.rule;
        let forgiven = !compiled.uses_old && before.unchanged();
        let detail = match self.message(compiled, variables) {
            Ok(detail) => detail,
            Err(error) => {
                self.ended = true;
                if !forgiven {
                    let detail = error.to_string();
                    self.report(Error::invalid(&path, node.kind.as_str(), detail));
                }
                return;
            }
        };
        if forgiven {
            return;
        }
        // Objects and lists are not repeated in the message.
        let shown = match node.kind.as_str() {
            "object" | "array" => BadValue::Omitted,
            _ => BadValue::from(value),
        };
        self.report(match rule.reason.as_str() {
            "FieldValueForbidden" => Error::forbidden(&path, detail),
            "FieldValueRequired" => Error::required(&path, detail),
            "FieldValueDuplicate" => Error::duplicate(&path, shown),
            _ => Error::invalid(&path, shown, detail),
        });
    }

    /// The message of a broken rule: the value of its message expression, or its message, or the rule itself.
    fn message(
        &mut self,
        compiled: &Compiled,
        variables: &[Cel<'_>],
    ) -> Result<String, MessageError> {
        if let Some(Ok(program)) = &compiled.message {
            let source = &compiled.rule.message_expression;
            if let Some(text) = self.evaluate_message(program, source, variables)? {
                return Ok(text);
            }
        }
        Ok(match compiled.rule.message.as_str() {
            "" => format!("failed rule: {}", compiled.rule.name()),
            message => message.trim().to_owned(),
        })
    }

    fn evaluate_message(
        &mut self,
        program: &Program,
        source: &str,
        variables: &[Cel<'_>],
    ) -> Result<Option<String>, MessageError> {
        let outcome = program.evaluate(variables, &limits());
        if outcome.cost > self.left {
            return Err(MessageError::Budget);
        }
        self.left -= outcome.cost;
        match outcome.result {
            Ok(Cel::String(text)) => {
                let text = text.trim();
                let good = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
                Ok(good.then(|| text.to_owned()))
            }
            Err(error)
                if error
                    .to_string()
                    .starts_with("operation cancelled: actual cost limit exceeded") =>
            {
                Err(MessageError::CallCost(source.to_owned()))
            }
            _ => Ok(None),
        }
    }
}

impl Node {
    /// The elements of the old list by their keys, in lists of type `map`.
    fn elements<'v>(&self, old: &'v Value) -> Option<HashMap<String, &'v Value>> {
        let old = old.as_array().filter(|_| !self.keys.is_empty())?;
        Some(keyed(old, &self.keys))
    }
}

impl Rule {
    /// What errors call the rule.
    fn name(&self) -> &str {
        if self.message.is_empty() {
            self.rule.trim()
        } else {
            self.message.trim()
        }
    }

    /// The rule as upstream's struct prints.
    pub(super) fn as_go(&self) -> String {
        let text = |text: &str| go_json(&Value::from(text));
        let reason = match self.reason.as_str() {
            "" => "null".to_owned(),
            reason => text(reason),
        };
        let optional = self
            .optional_old_self
            .map_or("null".to_owned(), |value| value.to_string());
        format!(
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
            text(&self.rule),
            text(&self.message),
            text(&self.message_expression),
            text(&self.field_path)
        )
    }
}
