//! What validating and mutating policies have in common: what they are about, and what binds them.

use allot_apimachinery::field::joined;
use serde_json::Value;

use super::evaluate::{CONDITIONS_BUDGET, Evaluation, EvaluationContext};
use super::matching::Criteria;
use super::params::{Param, ParamKind, ParamRef};
use super::request::{Request, Target};
use crate::error::Result;
use crate::expression::{Compiler, Expression, ResultType};
use crate::object::{meta, strings, text};

/// The part of a policy that determines when it applies.
#[derive(Debug)]
pub(super) struct Definition {
    /// The name of the policy, for messages, metrics and audit annotations.
    pub name: String,
    /// The revision of the object that it was compiled from.
    pub revision: u64,
    /// Whether an error rejects the request (`failurePolicy: Fail`).
    pub fails: bool,
    /// The kind of the objects that bindings refer to as parameters.
    pub param_kind: Option<ParamKind>,
    /// `spec.variables` in their order: each can use those before it.
    pub variables: Vec<(String, Expression)>,
    criteria: Criteria,
    conditions: Vec<Expression>,
}

/// A binding: the requests that a policy applies to, and the validation actions.
#[derive(Debug)]
pub(super) struct Binding {
    /// The name of the binding, for messages and audit annotations.
    pub name: String,
    /// The name of the policy.
    pub policy: String,
    /// The requests it matches; all if absent.
    pub criteria: Option<Criteria>,
    /// Where the parameters are; none if the policy has no `paramKind`.
    pub params: Option<ParamRef>,
    /// The request fails.
    pub deny: bool,
    /// The client is warned.
    pub warn: bool,
    /// The audit log has it.
    pub audit: bool,
    /// All of these actions, as they are listed.
    pub actions: Vec<String>,
}

/// What there is to do about a policy.
pub(super) enum Step<'p> {
    /// The policy, or a binding, is misconfigured.
    Misconfigured(Option<&'p Binding>, String),
    /// It must be evaluated, with a form of the request and parameters.
    Evaluate(&'p Binding, Target, Param),
}

impl Definition {
    /// Of a stored policy, with what compiles its other expressions.
    pub fn compile(object: &Value, revision: u64, has_variables: bool) -> (Self, Compiler) {
        let spec = &object["spec"];
        let list = |key: &str| spec[key].as_array().into_iter().flatten();
        let param_kind = ParamKind::of(&spec["paramKind"]);
        let mut compiler = Compiler::new(param_kind.is_some(), has_variables);
        let variables = list("variables").map(|variable| {
            let name = text(variable, &["name"]);
            let expression = compiler.variable(name, text(variable, &["expression"]));
            (name.to_owned(), expression)
        });
        let variables = variables.collect();
        let conditions = list("matchConditions")
            .map(|it| compiler.compile(text(it, &["expression"]), ResultType::Bool, true));
        let definition = Definition {
            name: meta(object, "name").to_owned(),
            revision,
            fails: text(spec, &["failurePolicy"]) != "Ignore",
            param_kind,
            variables,
            criteria: Criteria::of_policy(&spec["matchConstraints"]),
            conditions: conditions.collect(),
        };
        (definition, compiler)
    }

    /// Its conditions hold.
    ///
    /// # Errors
    /// What went wrong with them.
    pub fn applies(&self, scene: &EvaluationContext<'_>) -> Result<bool, String> {
        met(&self.conditions, &scene.of_conditions())
    }

    /// What there is to do about a request.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn steps<'p>(
        &self,
        bindings: &'p [Binding],
        request: &Request<'_>,
        object: &Value,
    ) -> Result<Vec<Step<'p>>> {
        let target = match self.criteria.matches(request, object).await {
            Ok(Some(target)) => target,
            Ok(None) => return Ok(Vec::new()),
            Err(error) => return Ok(vec![Step::Misconfigured(None, error.0.message)]),
        };
        let resource = self.param_kind.as_ref().map(|kind| kind.resolve(request));
        let resource = match resource.transpose() {
            Ok(resource) => resource,
            Err(error) => return Ok(vec![Step::Misconfigured(None, error)]),
        };
        let mut steps = Vec::new();
        for binding in bindings {
            let chosen = match &binding.criteria {
                Some(criteria) => criteria
                    .matches(request, object)
                    .await
                    .map(|it| it.is_some()),
                None => Ok(true),
            };
            match chosen {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    steps.push(Step::Misconfigured(Some(binding), error.0.message));
                    continue;
                }
            }
            let params = match (&self.param_kind, &resource, &binding.params) {
                (Some(kind), Some(resource), Some(wanted)) => {
                    wanted.collect(kind, resource, request).await?
                }
                _ => Ok(vec![Param::NONE]),
            };
            match params {
                Ok(params) => {
                    let asks = params
                        .into_iter()
                        .map(|it| Step::Evaluate(binding, target.clone(), it));
                    steps.extend(asks);
                }
                Err(error) => steps.push(Step::Misconfigured(Some(binding), error)),
            }
        }
        Ok(steps)
    }
}

/// All conditions hold. One that does not decides, also over errors.
///
/// # Errors
/// What went wrong with the others.
pub(super) fn met(
    conditions: &[Expression],
    scene: &EvaluationContext<'_>,
) -> Result<bool, String> {
    let (results, _) = scene.run(conditions.iter().map(Some), true, CONDITIONS_BUDGET)?;
    if results.contains(&Evaluation::Bool(false)) {
        return Ok(false);
    }
    let mut errors: Vec<String> = Vec::new();
    for result in results {
        if let Evaluation::Failed(error) = result
            && !errors.contains(&error)
        {
            errors.push(error);
        }
    }
    joined(&errors).map_or(Ok(true), Err)
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
            audit: does("Audit"),
            actions,
        }
    }
}
