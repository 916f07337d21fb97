//! Mutating admission policies: compiled, and their effect on an object.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::quote::quote;
use allot_apimachinery::status::Cause;
use allot_cel::authorization::Answers;
use serde_json::Value;

use super::changes;
use super::definition::{Binding, Definition, Step};
use super::evaluate::{BUDGET, Evaluation, Stage, settle};
use super::reinvocation::Reinvocations;
use super::request::Request;
use super::set::Bound;
use crate::error::{ApiError, Result};
use crate::expression::{Expression, ResultType};
use crate::limits;
use crate::object::{meta, text};

/// How much of what went wrong a refusal tells: parameters can be as many as their authors make.
const MOST_COMPLAINTS: usize = 100;

/// A compiled policy.
#[derive(Debug)]
pub(super) struct Mutator {
    /// The part common to all policies.
    pub definition: Definition,
    mutations: Vec<Mutation>,
    /// It runs again when the object has been changed since (`IfNeeded`).
    reinvoked: bool,
}

/// One change.
#[derive(Debug)]
enum Mutation {
    /// The operations of a JSON patch.
    Patch(Expression),
    /// An apply configuration that is merged into the object.
    Apply(Expression),
}

impl Mutator {
    /// Compiles the policy in a stored object.
    pub fn compile(object: &Value, revision: u64) -> Self {
        let spec = &object["spec"];
        let has_variables = spec["variables"]
            .as_array()
            .is_some_and(|it| !it.is_empty());
        let (definition, compiler) = Definition::compile(object, revision, has_variables);
        let mutations = spec["mutations"].as_array().into_iter().flatten();
        let mutations = mutations.map(|mutation| {
            if text(mutation, &["patchType"]) == "JSONPatch" {
                let expression = text(mutation, &["jsonPatch", "expression"]);
                Mutation::Patch(compiler.compile(expression, ResultType::Operations, true))
            } else {
                let expression = text(mutation, &["applyConfiguration", "expression"]);
                Mutation::Apply(compiler.compile(expression, ResultType::Applied, true))
            }
        });
        Mutator {
            definition,
            mutations: mutations.collect(),
            reinvoked: text(spec, &["reinvocationPolicy"]) == "IfNeeded",
        }
    }
}

/// A reason to reject the request.
struct Denial {
    message: String,
    /// Reason of the Status, empty for the usual one.
    reason: &'static str,
}

impl Denial {
    fn new(definition: &Definition, binding: Option<&Binding>, why: &str) -> Self {
        let name = &definition.name;
        let by = match binding {
            Some(binding) => format!("'{name}' with binding '{}'", binding.name),
            None => quote(name),
        };
        Denial {
            message: format!("policy {by} denied request: {why}"),
            reason: "",
        }
    }
}

/// Runs the policies on the object; returns whether one has changed it.
///
/// # Errors
/// Everything that went wrong, in one refusal.
pub(super) async fn mutate(
    mutators: &[Bound<Mutator>],
    request: &Request<'_>,
    object: &mut Value,
    rounds: &mut Reinvocations,
) -> Result<bool> {
    let mut complaints = Vec::new();
    let mut evaluations = Vec::new();
    // Matching uses the object before any policy has changed it.
    for (mutator, bindings) in mutators {
        let definition = &mutator.definition;
        for step in definition.steps(bindings, request, object).await? {
            match step {
                Step::Evaluate(binding, target, params) => {
                    evaluations.push((mutator, binding, target, params))
                }
                Step::Misconfigured(binding, why) if definition.fails => {
                    let what = if binding.is_some() {
                        "binding"
                    } else {
                        "policy"
                    };
                    let why = format!("failed to configure {what}: {why}");
                    complaints.push(Denial::new(definition, binding, &why));
                }
                Step::Misconfigured(..) => {}
            }
        }
    }
    let internal = |error: ApiError| ApiError::from(Status::internal(&error.0.message));
    let answers = Arc::new(Answers::default());
    let mut mutated = false;
    for (mutator, binding, target, params) in evaluations {
        limits::checkpoint().await;
        let definition = &mutator.definition;
        let params = params.read(definition.param_kind.as_ref())?;
        let mut complain = |why: &str| {
            if definition.fails && complaints.len() < MOST_COMPLAINTS {
                complaints.push(Denial {
                    reason: "Invalid",
                    ..Denial::new(definition, Some(binding), why)
                });
            }
        };
        let stage = Stage::new(request, &target, object)
            .await?
            .map_err(internal)?;
        let applies = || definition.applies(&stage.scene(definition, &params, &answers));
        match settle(request.core, request.user(), &answers, applies).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                complain(&error);
                continue;
            }
        }
        let (of, named) = (meta(&params, "namespace"), meta(&params, "name"));
        let key = format!("{}/{}/{of}/{named}", definition.name, binding.name);
        if !rounds.has(&key) {
            continue;
        }
        for mutation in &mutator.mutations {
            // Without an object there is nothing to mutate.
            if object.is_null() {
                break;
            }
            let stage = Stage::new(request, &target, object)
                .await?
                .map_err(internal)?;
            let (Mutation::Patch(expression) | Mutation::Apply(expression)) = mutation;
            let evaluate = || {
                let scene = stage.scene(definition, &params, &answers);
                made(scene.run([Some(expression)].into_iter(), true, BUDGET))
            };
            let made = settle(request.core, request.user(), &answers, evaluate).await;
            let after = made.and_then(|made| match mutation {
                Mutation::Patch(_) => changes::patched(&stage.object, &made),
                Mutation::Apply(_) => changes::applied(request, &target, &stage.object, made),
            });
            match after {
                Err(why) => complain(&why),
                Ok(after) => {
                    mutated = true;
                    if after != *stage.object {
                        let after = request.restored(object, after, &target).await;
                        *object = after.map_err(internal)?;
                        rounds.changed();
                    }
                }
            }
        }
        if mutator.reinvoked {
            rounds.asked(key);
        }
    }
    if mutated {
        // As upstream: a policy with reinvocation sees the result of the round, including its own changes.
        rounds.changed();
    }
    rounds.end(object);
    if complaints.is_empty() {
        return Ok(mutated);
    }
    Err(refusal(request, object, complaints))
}

/// One error about all complaints, which the first of them words.
fn refusal(request: &Request<'_>, object: &Value, complaints: Vec<Denial>) -> ApiError {
    let mut status = request.forbidden(object, "");
    if let Some(first) = complaints.first() {
        first.message.clone_into(&mut status.message);
        if !first.reason.is_empty() {
            first.reason.clone_into(&mut status.reason);
        }
    }
    if let Some(details) = &mut status.details {
        details
            .causes
            .extend(complaints.into_iter().map(|it| Cause {
                message: it.message,
                ..Cause::default()
            }));
    }
    status.into()
}

/// The value that an expression produced.
fn made(given: Result<(Vec<Evaluation>, u64), String>) -> Result<Value, String> {
    match given?.0.pop() {
        Some(Evaluation::Made(made)) => made,
        // A compilation error is reported as it is.
        Some(Evaluation::Failed(error)) => Err(match error.strip_prefix("compilation error: ") {
            Some(error) => error.to_owned(),
            None => error,
        }),
        // The types have been checked.
        _ => Err("unsupported return type".to_owned()),
    }
}
