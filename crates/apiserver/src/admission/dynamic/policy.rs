//! Validating admission policies: compiled, and their evaluation.

use serde_json::Value;

use super::definition::Definition;
use super::evaluate::{BUDGET, Evaluation, EvaluationContext};
use crate::expression::{Expression, ResultType};
use crate::object::text;

/// The longest message that an expression may give, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
/// How much of a note is kept, in bytes.
const MAX_NOTE: usize = 10 * 1024;

/// A compiled policy.
#[derive(Debug)]
pub(super) struct Policy {
    /// The part common to all policies.
    pub definition: Definition,
    validations: Vec<Validation>,
    /// Keys and values of what is noted in the audit log.
    notes: Vec<(String, Expression)>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// What a policy has against a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The reason, for the response.
    pub message: String,
    /// Reason of the Status, empty for the usual one.
    pub reason: String,
    /// It applies independent of the binding.
    pub always: bool,
    /// Which of the validations it is.
    pub index: usize,
}

/// What a policy finds about a request.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The violations.
    pub refusals: Vec<Refusal>,
    /// What the audit log is to have.
    pub notes: Vec<(String, String)>,
}

impl Verdict {
    fn of(refusals: Vec<Refusal>) -> Self {
        Verdict {
            refusals,
            notes: Vec::new(),
        }
    }
}

impl Refusal {
    fn error(message: impl Into<String>) -> Self {
        Refusal {
            message: message.into(),
            reason: String::new(),
            always: false,
            index: 0,
        }
    }
}

impl Policy {
    /// Compiles the policy in a stored object.
    pub fn compile(object: &Value, revision: u64) -> Self {
        let spec = &object["spec"];
        let list = |key: &str| spec[key].as_array().into_iter().flatten();
        let has_variables = list("variables").next().is_some();
        let (definition, compiler) = Definition::compile(object, revision, has_variables);
        let validations = list("validations").map(|validation| {
            let message_expression = match text(validation, &["messageExpression"]) {
                "" => None,
                text => Some(compiler.compile(text, ResultType::Text, false)),
            };
            let expression = text(validation, &["expression"]);
            Validation {
                expression: compiler.compile(expression, ResultType::Bool, true),
                message: text(validation, &["message"]).trim().to_owned(),
                message_expression,
                reason: text(validation, &["reason"]).to_owned(),
            }
        });
        let notes = list("auditAnnotations").map(|it| {
            let value = text(it, &["valueExpression"]);
            let value = compiler.compile(value, ResultType::TextOrNull, true);
            (text(it, &["key"]).to_owned(), value)
        });
        Policy {
            definition,
            validations: validations.collect(),
            notes: notes.collect(),
        }
    }

    /// The violations in the scene, and notes about it.
    pub fn judge(&self, scene: &EvaluationContext<'_>) -> Verdict {
        let fails = self.definition.fails;
        let fail_at = |index: usize, message: String| match fails {
            true => vec![Refusal {
                index,
                ..Refusal::error(message)
            }],
            false => Vec::new(),
        };
        let fail = |message: String| Verdict::of(fail_at(0, message));
        match self.definition.applies(scene) {
            Ok(true) => {}
            Ok(false) => return Verdict::default(),
            Err(error) => return fail(error),
        }
        let expressions = self.validations.iter().map(|it| Some(&it.expression));
        let (results, left) = match scene.run(expressions, true, BUDGET) {
            Ok(results) => results,
            Err(error) => return fail(error),
        };
        let messages = self
            .validations
            .iter()
            .map(|it| it.message_expression.as_ref());
        let messages = scene
            .run(messages, false, left)
            .map(|(messages, _)| messages);
        let mut refusals = Vec::new();
        for (index, (validation, result)) in self.validations.iter().zip(results).enumerate() {
            match (result, &messages) {
                (Evaluation::Failed(error), _) => refusals.extend(fail_at(index, error)),
                (_, Err(error)) => {
                    let error = format!("failed messageExpression: {error}");
                    refusals.extend(fail_at(index, error));
                }
                (Evaluation::Bool(true), _) => {}
                (_, Ok(messages)) => refusals.push(Refusal {
                    message: validation.message(&messages[index]),
                    reason: validation.reason.clone(),
                    always: false,
                    index,
                }),
            }
        }
        let values = self.notes.iter().map(|(_, value)| Some(value));
        match scene.run(values, true, BUDGET) {
            Err(error) => fail(error),
            Ok((values, _)) => {
                let mut notes = Vec::new();
                for ((key, _), value) in self.notes.iter().zip(values) {
                    match value {
                        Evaluation::Text(text) => {
                            let text = text.trim();
                            let kept = &text[..text.floor_char_boundary(MAX_NOTE)];
                            if !kept.is_empty() {
                                notes.push((key.clone(), kept.to_owned()));
                            }
                        }
                        Evaluation::Failed(message) if fails => refusals.push(Refusal {
                            always: true,
                            ..Refusal::error(message)
                        }),
                        _ => {}
                    }
                }
                Verdict { refusals, notes }
            }
        }
    }
}

impl Validation {
    /// The result of its message expression, its own message, or the failed expression.
    fn message(&self, made: &Evaluation) -> String {
        if let Evaluation::Text(text) = made {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n') {
                return text.to_owned();
            }
        }
        match self.message.as_str() {
            "" => format!("failed expression: {}", self.expression.text.trim()),
            message => message.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
