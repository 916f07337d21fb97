//! Validating admission policies: compiled, and what they say to a request.

use serde_json::Value;

use super::evaluate::{BUDGET, CONDITIONS_BUDGET, Given, Scene};
use super::expression::{Compiler, Expression, Wanted};
use super::matching::Criteria;
use super::params::{ParamKind, ParamRef};
use crate::object::{meta, strings, text};

/// The longest message that an expression may give, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

/// A compiled policy.
#[derive(Debug)]
pub(super) struct Policy {
    /// Its name.
    pub name: String,
    /// The revision of the object that it was compiled from.
    pub revision: u64,
    /// What goes wrong is held against the request.
    pub fails: bool,
    /// Which requests it is about.
    pub criteria: Criteria,
    /// What it takes as parameters.
    pub param_kind: Option<ParamKind>,
    /// Its variables.
    pub variables: Vec<(String, Expression)>,
    conditions: Vec<Expression>,
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

/// Where a policy applies, and what happens to what it refuses.
#[derive(Debug)]
pub(super) struct Binding {
    /// Its name.
    pub name: String,
    /// The name of the policy.
    pub policy: String,
    /// Which requests it is about; all where it says nothing.
    pub criteria: Option<Criteria>,
    /// The parameters.
    pub params: Option<ParamRef>,
    /// The request fails.
    pub deny: bool,
    /// The client is warned.
    pub warn: bool,
}

/// What a policy has against a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Why.
    pub message: String,
    /// Reason of the Status, empty for the usual one.
    pub reason: String,
    /// It counts whatever the binding says.
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
        let param_kind = ParamKind::of(&spec["paramKind"]);
        let has_variables = list("variables").next().is_some();
        let mut compiler = Compiler::new(param_kind.is_some(), has_variables);
        let variables = list("variables").map(|variable| {
            let name = text(variable, &["name"]);
            let expression = compiler.variable(name, text(variable, &["expression"]));
            (name.to_owned(), expression)
        });
        let variables = variables.collect();
        let conditions = list("matchConditions")
            .map(|it| compiler.compile(text(it, &["expression"]), Wanted::Bool, true));
        let validations = list("validations").map(|validation| {
            let message_expression = match text(validation, &["messageExpression"]) {
                "" => None,
                text => Some(compiler.compile(text, Wanted::Text, false)),
            };
            let expression = text(validation, &["expression"]);
            Validation {
                expression: compiler.compile(expression, Wanted::Bool, true),
                message: text(validation, &["message"]).trim().to_owned(),
                message_expression,
                reason: text(validation, &["reason"]).to_owned(),
            }
        });
        let annotations = list("auditAnnotations")
            .map(|it| compiler.compile(text(it, &["valueExpression"]), Wanted::TextOrNull, true));
        Policy {
            name: meta(object, "name").to_owned(),
            revision,
            fails: text(spec, &["failurePolicy"]) != "Ignore",
            criteria: Criteria::of_policy(&spec["matchConstraints"]),
            param_kind,
            variables,
            conditions: conditions.collect(),
            validations: validations.collect(),
            annotations: annotations.collect(),
        }
    }

    /// What it has against what the scenes show: `conditions` without the namespace, as upstream has it there.
    pub fn refusals(&self, conditions: &Scene<'_>, scene: &Scene<'_>) -> Vec<Refusal> {
        let fail = |message: String| match self.fails {
            true => vec![Refusal::error(message)],
            false => Vec::new(),
        };
        match met(&self.conditions, conditions) {
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
                (Given::Failed(error), _) => refusals.extend(fail(error)),
                (_, Err(error)) => {
                    refusals.extend(fail(format!("failed messageExpression: {error}")))
                }
                (Given::Bool(true), _) => {}
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
                    if let (Given::Failed(message), true) = (result, self.fails) {
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

/// All conditions hold. One that does not decides, also over errors.
///
/// # Errors
/// What went wrong with the others.
pub(super) fn met(conditions: &[Expression], scene: &Scene<'_>) -> Result<bool, String> {
    let (results, _) = scene.run(conditions.iter().map(Some), true, CONDITIONS_BUDGET)?;
    if results.contains(&Given::Bool(false)) {
        return Ok(false);
    }
    let mut errors: Vec<String> = Vec::new();
    for result in results {
        if let Given::Failed(error) = result
            && !errors.contains(&error)
        {
            errors.push(error);
        }
    }
    match &mut errors[..] {
        [] => Ok(true),
        [one] => Err(std::mem::take(one)),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

impl Validation {
    /// What its expression made, its own message, or the expression that was not met.
    fn message(&self, made: &Given) -> String {
        if let Given::Text(text) = made {
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

impl Binding {
    /// The binding in a stored object.
    pub fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let actions = strings(&spec["validationActions"]);
        let does = |action: &str| actions.iter().any(|it| it == action);
        let resources = &spec["matchResources"];
        Binding {
            name: meta(object, "name").to_owned(),
            policy: text(spec, &["policyName"]).to_owned(),
            criteria: resources
                .is_object()
                .then(|| Criteria::of_policy(resources)),
            params: ParamRef::of(&spec["paramRef"]),
            deny: does("Deny"),
            warn: does("Warn"),
        }
    }
}
