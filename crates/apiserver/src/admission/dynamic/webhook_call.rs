//! Calls the webhooks for a request: mutating ones one after the other, validating ones concurrently.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::quote::quote;
use serde_json::Value;

use super::reinvocation::Reinvocations;
use super::request::{Request, Target};
use super::review::{self, Answer};
use super::set;
use super::webhook::{Configuration, Webhook};
use crate::error::{ApiError, Result};
use crate::webhook::excerpt;

/// The last part of the prefixes of what is noted about calls.
const NOTES: &str = "webhook.admission.k8s.io/";
/// How much of an error of a webhook is logged, in bytes.
const MAX_LOGGED: usize = 1024;

/// The reason why a webhook did not admit the request.
enum WebhookFailure {
    /// The call failed, or the response was invalid.
    Call(String),
    /// The webhook rejects the request, or the request cannot be converted for it.
    Refused(ApiError),
}

/// Calls the validating webhooks.
///
/// # Errors
/// The refusal of the first that has one.
pub(super) async fn validate(
    configurations: &[Arc<Configuration>],
    request: &Request<'_>,
    object: &Value,
) -> Result<()> {
    let mut chosen = Vec::new();
    for (_, webhook) in set::webhooks(configurations) {
        if let Some(target) = webhook.target(request, object).await? {
            chosen.push((webhook, target));
        }
    }
    let asked = chosen
        .iter()
        .map(|(webhook, target)| ask(webhook, target, request, object, false));
    let answers = futures::future::join_all(asked).await;
    for (index, ((webhook, _), answer)) in chosen.iter().zip(answers).enumerate() {
        if let Err(trouble) = answer {
            held(webhook, trouble)?;
            let key = format!("failed-open.validating.{NOTES}round_0_index_{index}");
            request.note(key, || webhook.name.clone());
        }
    }
    Ok(())
}

/// Calls the mutating webhooks; returns whether one has changed the object.
///
/// # Errors
/// The first refusal.
pub(super) async fn mutate(
    configurations: &[Arc<Configuration>],
    request: &Request<'_>,
    object: &mut Value,
    rounds: &mut Reinvocations,
) -> Result<bool> {
    let mut changed = false;
    for (index, (configuration, webhook)) in set::webhooks(configurations).enumerate() {
        let Some(target) = webhook.target(request, object).await? else {
            continue;
        };
        let uid = format!("{configuration}/{}", webhook.name);
        if !rounds.has(&uid) {
            continue;
        }
        let call = format!("round_{}_index_{index}", rounds.round());
        let outcome = match ask(webhook, &target, request, object, true).await {
            Ok(answer) => {
                let shown = answer.patch.as_ref().map(|(_, shown)| shown.clone());
                let outcome = apply(webhook, &target, request, object, answer).await;
                if let (Ok(_), Some(patch)) = (&outcome, shown) {
                    let key = format!("patch.{NOTES}{call}");
                    let annotations = &request.asked.request.annotations;
                    annotations.add_with_body(key, || {
                        let [configuration, webhook] = [configuration, webhook.name.as_str()].map(Value::from);
                        format!(
                            "{{\"configuration\":{configuration},\"webhook\":{webhook},\"patch\":{patch},\"patchType\":\"JSONPatch\"}}"
                        )
                    });
                }
                outcome
            }
            Err(trouble) => Err(trouble),
        };
        let mutated = matches!(outcome, Ok(Some(_)));
        request.note(format!("mutation.{NOTES}{call}"), || {
            let [configuration, webhook] = [configuration, webhook.name.as_str()].map(Value::from);
            format!(
                "{{\"configuration\":{configuration},\"webhook\":{webhook},\"mutated\":{mutated}}}"
            )
        });
        let (patched, trouble) = match outcome {
            Ok(patched) => (patched, None),
            Err(trouble) => (None, Some(trouble)),
        };
        if let Some(patched) = patched {
            *object = patched;
            changed = true;
            rounds.changed();
        }
        if webhook.reinvoked {
            rounds.asked(uid);
        }
        if let Some(trouble) = trouble {
            held(webhook, trouble)?;
            let key = format!("failed-open.mutation.{NOTES}{call}");
            request.note(key, || webhook.name.clone());
        }
    }
    rounds.end(object);
    Ok(changed)
}

/// The error that trouble with a webhook is, unless it may fail.
fn held(webhook: &Webhook, trouble: WebhookFailure) -> Result<()> {
    match trouble {
        WebhookFailure::Refused(error) => Err(error),
        WebhookFailure::Call(why) => {
            let (name, why) = (quote(&webhook.name), excerpt(&why));
            let why = format!("failed calling webhook {name}: {why}");
            if webhook.fails {
                return Err(Status::internal(&why).into());
            }
            // It may be the text of a webhook: one line, and not all of it.
            let logged = &why[..why.floor_char_boundary(MAX_LOGGED)];
            tracing::warn!(why = logged, "a webhook is ignored");
            Ok(())
        }
    }
}

async fn ask(
    webhook: &Webhook,
    target: &Target,
    request: &Request<'_>,
    object: &Value,
    mutating: bool,
) -> Result<Answer, WebhookFailure> {
    let internal =
        |error: ApiError| WebhookFailure::Refused(Status::internal(&error.0.message).into());
    if request.attributes.dry_run && !webhook.without_effects {
        let why = format!(
            "admission webhook {} does not support dry run",
            quote(&webhook.name)
        );
        return Err(WebhookFailure::Refused(ApiError::bad_request(why)));
    }
    let Some(version) = webhook.version else {
        let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, \
                   v1beta1)";
        return Err(WebhookFailure::Call(why.to_owned()));
    };
    let uid = uuid::Uuid::new_v4().to_string();
    let mut asked = request.to_json(target);
    asked["uid"] = uid.as_str().into();
    asked["object"] = request
        .versioned(object, target)
        .await
        .map_err(internal)?
        .into_owned();
    asked["oldObject"] = request
        .old_versioned(target)
        .await
        .map_err(internal)?
        .into_owned();
    let headers = webhook
        .client
        .headers()
        .map_err(|why| WebhookFailure::Call(format!("could not get REST client: {why}")))?;
    let answer = webhook
        .client
        .post(
            &*request.core.backend,
            &version.review(&asked),
            webhook.timeout,
            &headers,
        )
        .await
        .map_err(|why| WebhookFailure::Call(format!("failed to call webhook: {why}")))?;
    let answer = review::read(version, &uid, mutating, &answer).map_err(WebhookFailure::Call)?;
    for warning in &answer.warnings {
        request.asked.request.warnings.add(warning);
    }
    for (key, text) in &answer.notes {
        request.note(format!("{}/{key}", webhook.name), || text.clone());
    }
    if answer.allowed {
        return Ok(answer);
    }
    let refusal = review::refusal(&webhook.name, &answer.result);
    Err(WebhookFailure::Refused(refusal.into()))
}

/// The object after the webhook's patch, if it changed.
async fn apply(
    webhook: &Webhook,
    target: &Target,
    request: &Request<'_>,
    object: &Value,
    answer: Answer,
) -> Result<Option<Value>, WebhookFailure> {
    let Some((patch, _)) = answer.patch else {
        return Ok(None);
    };
    // A webhook can return a patch with paths and values of any length.
    let internal = |why: &str| WebhookFailure::Refused(Status::internal(excerpt(why)).into());
    if object.is_null() {
        return Err(internal(&format!(
            "admission webhook {} attempted to modify the object, which is not supported for this operation",
            quote(&webhook.name)
        )));
    }
    let failed = |error: ApiError| internal(&error.0.message);
    let before = request.versioned(object, target).await.map_err(failed)?;
    let mut after = before.clone().into_owned();
    patch
        .apply(&mut after)
        .map_err(|error| internal(&error.to_string()))?;
    if after == *before {
        return Ok(None);
    }
    let owners = &after["metadata"]["managedFields"];
    if *owners != before["metadata"]["managedFields"]
        && let Err(why) = allot_schema::apply::Managed::check(owners)
    {
        request.asked.request.warnings.add(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {}",
            excerpt(&why)
        ));
    }
    request
        .restored(object, after, target)
        .await
        .map(Some)
        .map_err(failed)
}
