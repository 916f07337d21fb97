//! Validating admission policies: compiled, and their evaluation.

use serde_json::Value;

use super::definition::Definition;
use super::evaluate::{BUDGET, Evaluation, EvaluationContext};
use crate::expression::{Expression, ResultType};
use crate::object::text;

/// The longest message that an expression may give, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

/// A compiled policy.
#[derive(Debug)]
pub(super) struct Policy {
    /// The part common to all policies.
    pub definition: Definition,
    validations: Vec<Validation>,
    annotations: Vec<Expression>,
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
}

impl Refusal {
    fn error(message: impl Into<String>) -> Self {
        Refusal {
            message: message.into(),
            reason: String::new(),
            always: false,
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
        let annotations = list("auditAnnotations").map(|it| {
            compiler.compile(text(it, &["valueExpression"]), ResultType::TextOrNull, true)
        });
        Policy {
            definition,
            validations: validations.collect(),
            annotations: annotations.collect(),
        }
    }

    /// The violations in the scene.
    pub fn refusals(&self, scene: &EvaluationContext<'_>) -> Vec<Refusal> {
        let fails = self.definition.fails;
        let fail = |message: String| match fails {
            true => vec![Refusal::error(message)],
            false => Vec::new(),
        };
        match self.definition.applies(scene) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
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
                (Evaluation::Failed(error), _) => refusals.extend(fail(error)),
                (_, Err(error)) => {
                    refusals.extend(fail(format!("failed messageExpression: {error}")))
                }
                (Evaluation::Bool(true), _) => {}
                (_, Ok(messages)) => refusals.push(Refusal {
                    message: validation.message(&messages[index]),
                    reason: validation.reason.clone(),
                    always: false,
                }),
            }
        }
        match scene.run(self.annotations.iter().map(Some), true, BUDGET) {
            Err(error) => fail(error),
            Ok((annotations, _)) => {
                for result in annotations {
                    if let (Evaluation::Failed(message), true) = (result, fails) {
                        refusals.push(Refusal {
                            always: true,
                            ..Refusal::error(message)
                        });
                    }
                }
                refusals
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
