//! Asking the validating policies about a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::status::Cause;
use allot_cel::authorization::Answers;
use serde_json::Value;

use super::definition::{Binding, Step};
use super::evaluate::{Stage, settle};
use super::policy::{Policy, Refusal, Verdict};
use super::request::Request;
use super::set::Bound;
use crate::error::{ApiError, Result};
use crate::limits;

/// Reason of a rejection if a policy names none.
const REASON: &str = "Invalid";

/// Evaluates every policy; the first rejection determines the error.
///
/// # Errors
/// The refusal.
pub(super) async fn dispatch(
    policies: &[Bound<Policy>],
    request: &Request<'_>,
    object: &Value,
) -> Result<()> {
    let mut refused = None;
    // Policies often make the same authorizer checks.
    let answers = Arc::new(Answers::default());
    for (policy, bindings) in policies {
        let definition = &policy.definition;
        let mut notes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for step in definition.steps(bindings, request, object).await? {
            limits::checkpoint().await;
            let (binding, verdict) = match step {
                Step::Misconfigured(binding, why) => {
                    (binding, misconfigured(policy, binding, &why))
                }
                Step::Evaluate(binding, target, params) => {
                    let params = params.read(definition.param_kind.as_ref())?;
                    let verdict = match Stage::new(request, &target, object).await? {
                        Ok(stage) => {
                            let evaluate =
                                || policy.judge(&stage.scene(definition, &params, &answers));
                            settle(request.core, request.user(), &answers, evaluate).await
                        }
                        Err(error) => {
                            let why = format!("failed to convert object version: {error}");
                            misconfigured(policy, Some(binding), &why)
                        }
                    };
                    (Some(binding), verdict)
                }
            };
            for (key, text) in verdict.notes {
                let texts = notes.entry(key).or_default();
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
            for refusal in verdict.refusals {
                if let Some(binding) = binding.filter(|it| it.audit && !refusal.always) {
                    note_failure(request, binding, &refusal);
                }
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
        for (key, texts) in notes {
            request.note(format!("{}/{key}", definition.name), || texts.join(", "));
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

/// Notes a violation for the audit log: the first of the request, as a list.
fn note_failure(request: &Request<'_>, binding: &Binding, refusal: &Refusal) {
    request.note("validation.policy.admission.k8s.io/validation_failure", || {
        let [message, policy, name] = [&refusal.message, &binding.policy, &binding.name]
            .map(|text| Value::from(text.as_str()));
        let (index, actions) = (refusal.index, Value::from(binding.actions.clone()));
        format!(
            "[{{\"message\":{message},\"policy\":{policy},\"binding\":{name},\"expressionIndex\":{index},\"validationActions\":{actions}}}]"
        )
    });
}

/// A misconfiguration is handled by the policy's `failurePolicy`, regardless of the binding's validation actions.
fn misconfigured(policy: &Policy, binding: Option<&Binding>, why: &str) -> Verdict {
    if !policy.definition.fails {
        return Verdict::default();
    }
    let what = if binding.is_some() {
        "binding"
    } else {
        "policy"
    };
    let refusal = Refusal {
        message: format!("failed to configure {what}: {why}"),
        reason: String::new(),
        always: true,
        index: 0,
    };
    Verdict {
        refusals: vec![refusal],
        notes: Vec::new(),
    }
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
