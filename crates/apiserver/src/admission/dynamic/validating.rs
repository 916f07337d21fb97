//! Asking the policies about a request.

use std::sync::Arc;

use allot_apimachinery::status::Cause;
use allot_cel::authorization::Answers;
use serde_json::Value;

use super::evaluate::{Scene, settle};
use super::policy::{Binding, Policy, Refusal};
use super::request::{Request, Target};
use super::set::Set;
use crate::error::{ApiError, Result};

/// Reason of a refusal where a policy names none.
const REASON: &str = "Invalid";

/// Lets every policy have its say; the first that refuses words the error.
///
/// # Errors
/// The refusal.
pub(super) async fn dispatch(set: &Set, request: &Request<'_>, object: &Value) -> Result<()> {
    let mut refused = None;
    // One policy often asks what another has asked.
    let answers = Arc::new(Answers::default());
    for (policy, bindings) in &set.policies {
        let note = |binding: Option<&Binding>, refusal: Refusal| {
            let by = match binding {
                Some(binding) => format!("'{}' with binding '{}'", policy.name, binding.name),
                None => format!("'{}'", policy.name),
            };
            (by, refusal)
        };
        // What is wrong with the configuration counts as the policy says.
        let misconfigured = |binding: Option<&Binding>, why: &str| {
            let what = if binding.is_some() {
                "binding"
            } else {
                "policy"
            };
            let message = format!("failed to configure {what}: {why}");
            let refusal = Refusal {
                message,
                reason: String::new(),
                always: true,
            };
            policy.fails.then(|| note(binding, refusal))
        };
        let target = match policy.criteria.matches(request, object).await {
            Ok(Some(target)) => target,
            Ok(None) => continue,
            Err(error) => {
                refused = refused.or(misconfigured(None, &error.0.message));
                continue;
            }
        };
        let params = policy.param_kind.as_ref().map(|kind| kind.resolve(request));
        let params = match params.transpose() {
            Ok(params) => params,
            Err(error) => {
                refused = refused.or(misconfigured(None, &error));
                continue;
            }
        };
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
                    refused = refused.or(misconfigured(Some(binding), &error.0.message));
                    continue;
                }
            }
            let params = match (&policy.param_kind, &params, &binding.params) {
                (Some(kind), Some(resource), Some(wanted)) => {
                    match wanted.collect(kind, resource, request).await? {
                        Ok(params) => params,
                        Err(error) => {
                            refused = refused.or(misconfigured(Some(binding), &error));
                            continue;
                        }
                    }
                }
                _ => vec![Value::Null],
            };
            let mut refusals = Vec::new();
            for params in &params {
                match ask(policy, request, &target, object, params, &answers).await? {
                    Ok(more) => refusals.extend(more),
                    Err(error) => {
                        let why = format!("failed to convert object version: {error}");
                        refused = refused.or(misconfigured(Some(binding), &why));
                        break;
                    }
                }
            }
            for refusal in refusals {
                if binding.warn && !refusal.always {
                    request.asked.call.request.warnings.add(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                        policy.name, binding.name, refusal.message
                    ));
                }
                if binding.deny || refusal.always {
                    refused = refused.or(Some(note(Some(binding), refusal)));
                }
            }
        }
    }
    match refused {
        None => Ok(()),
        Some((by, refusal)) => Err(error(request, object, &by, &refusal)),
    }
}

/// What a policy has against the request with these parameters; the inner error says that the objects can not be shown
/// as it wants to see them.
async fn ask(
    policy: &Policy,
    request: &Request<'_>,
    target: &Target,
    object: &Value,
    params: &Value,
    answers: &Arc<Answers>,
) -> Result<Result<Vec<Refusal>, ApiError>> {
    let old = request.attributes.old.unwrap_or(&Value::Null);
    let (object, old) = match (
        request.versioned(object, target),
        request.versioned(old, target),
    ) {
        (Ok(object), Ok(old)) => (object, old),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
    };
    let is_namespace = request.target.kind_group.is_empty() && request.target.kind == "Namespace";
    let namespace = if request.namespace.is_empty() || is_namespace {
        &Value::Null
    } else {
        let found = request.namespace_object().await?;
        found.ok_or_else(|| request.no_namespace())?
    };
    let described = request.to_json(target);
    let check = request.check();
    let scene = |namespace| Scene {
        object: &object,
        old: &old,
        namespace,
        request: &described,
        params: policy.param_kind.as_ref().map(|_| params),
        variables: &policy.variables,
        check: &check,
        answers,
    };
    let evaluate = || policy.refusals(&scene(&Value::Null), &scene(namespace));
    Ok(Ok(
        settle(request.core, request.user(), answers, evaluate).await
    ))
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
