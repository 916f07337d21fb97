//! Asking the validating policies about a request.

use std::sync::Arc;

use allot_apimachinery::status::Cause;
use allot_cel::authorization::Answers;
use serde_json::Value;

use super::definition::{Binding, Step};
use super::evaluate::{Stage, settle};
use super::policy::{Policy, Refusal};
use super::request::Request;
use super::set::Set;
use crate::error::{ApiError, Result};
use crate::limits;

/// Reason of a rejection if a policy names none.
const REASON: &str = "Invalid";

/// Evaluates every policy; the first rejection determines the error.
///
/// # Errors
/// The refusal.
pub(super) async fn dispatch(set: &Set, request: &Request<'_>, object: &Value) -> Result<()> {
    let mut refused = None;
    // Policies often make the same authorizer checks.
    let answers = Arc::new(Answers::default());
    for (policy, bindings) in &set.policies {
        let definition = &policy.definition;
        for step in definition.steps(bindings, request, object).await? {
            limits::checkpoint().await;
            let (binding, refusals) = match step {
                Step::Misconfigured(binding, why) => {
                    (binding, misconfigured(policy, binding, &why))
                }
                Step::Evaluate(binding, target, params) => {
                    let params = params.read(definition.param_kind.as_ref())?;
                    let refusals = match Stage::new(request, &target, object).await? {
                        Ok(stage) => {
                            let evaluate =
                                || policy.refusals(&stage.scene(definition, &params, &answers));
                            settle(request.core, request.user(), &answers, evaluate).await
                        }
                        Err(error) => {
                            let why = format!("failed to convert object version: {error}");
                            misconfigured(policy, Some(binding), &why)
                        }
                    };
                    (Some(binding), refusals)
                }
            };
            for refusal in refusals {
                if let Some(binding) = binding.filter(|it| it.warn && !refusal.always) {
                    request.asked.request.warnings.add(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                        definition.name, binding.name, refusal.message
                    ));
                }
                if refused.is_none() && (refusal.always || binding.is_some_and(|it| it.deny)) {
                    refused = Some((definition, binding, refusal));
                }
            }
        }
    }
    let Some((definition, binding, refusal)) = refused else {
        return Ok(());
    };
    let by = match binding {
        Some(binding) => format!("'{}' with binding '{}'", definition.name, binding.name),
        None => format!("'{}'", definition.name),
    };
    Err(error(request, object, &by, &refusal))
}

/// A misconfiguration is handled by the policy's `failurePolicy`, whatever the binding's validation actions.
fn misconfigured(policy: &Policy, binding: Option<&Binding>, why: &str) -> Vec<Refusal> {
    if !policy.definition.fails {
        return Vec::new();
    }
    let what = if binding.is_some() {
        "binding"
    } else {
        "policy"
    };
    vec![Refusal {
        message: format!("failed to configure {what}: {why}"),
        reason: String::new(),
        always: true,
    }]
}

fn error(request: &Request<'_>, object: &Value, by: &str, refusal: &Refusal) -> ApiError {
    let message = format!(
        "ValidatingAdmissionPolicy {by} denied request: {}",
        refusal.message
    );
    let mut status = request.forbidden(object, &message);
    let reason = match refusal.reason.as_str() {
        "" => REASON,
        reason => reason,
    };
    reason.clone_into(&mut status.reason);
    status.code = match reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    if let Some(details) = &mut status.details {
        details.causes.push(Cause {
            message,
            ..Cause::default()
        });
    }
    status.into()
}
