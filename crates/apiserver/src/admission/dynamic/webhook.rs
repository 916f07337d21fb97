//! Admission webhooks: which requests they are called for.

use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::Status;
use allot_cel::authorization::Answers;
use serde_json::Value;

use super::definition::met;
use super::evaluate::{EvaluationContext, settle};
use super::matching::Criteria;
use super::request::{Request, Target};
use crate::config::Credentials;
use crate::config::ReviewVersion;
use crate::error::Result;
use crate::expression::{Compiler, Expression, ResultType};
use crate::object::{meta, strings, text};
use crate::webhook::Client;

/// Default `timeoutSeconds`.
const TIMEOUT_SECONDS: u64 = 10;

/// The webhooks of one object.
#[derive(Debug)]
pub(super) struct Configuration {
    /// The name of the webhook configuration.
    pub name: String,
    /// The revision of the configuration object.
    pub revision: u64,
    /// The webhooks in their order.
    pub webhooks: Vec<Webhook>,
}

/// One webhook.
#[derive(Debug)]
pub(super) struct Webhook {
    /// The name of the webhook in its configuration, for messages and metrics.
    pub name: String,
    /// A failed call rejects the request.
    pub fails: bool,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether the webhook may be called for a dry run.
    pub without_effects: bool,
    /// Whether the webhook is called again when the object has changed since its last call (`IfNeeded`).
    pub reinvoked: bool,
    /// The version of its AdmissionReview; absent if the server supports none of its versions.
    pub version: Option<ReviewVersion>,
    /// Its address and connections.
    pub client: Client,
    criteria: Criteria,
    conditions: Vec<Expression>,
}

impl Configuration {
    /// The webhooks of a stored object, which are called with these credentials.
    pub fn of(object: &Value, revision: u64, credentials: &Credentials) -> Self {
        let webhooks = object["webhooks"].as_array().into_iter().flatten();
        Configuration {
            name: meta(object, "name").to_owned(),
            revision,
            webhooks: webhooks.map(|it| Webhook::of(it, credentials)).collect(),
        }
    }
}

impl Webhook {
    fn of(value: &Value, credentials: &Credentials) -> Self {
        let compiler = Compiler::new(false, false);
        let conditions = value["matchConditions"].as_array().into_iter().flatten();
        let conditions = conditions
            .map(|it| compiler.compile(text(it, &["expression"]), ResultType::Bool, true))
            .collect();
        let versions = strings(&value["admissionReviewVersions"]);
        let seconds = value["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT_SECONDS);
        Webhook {
            name: text(value, &["name"]).to_owned(),
            fails: text(value, &["failurePolicy"]) != "Ignore",
            timeout: Duration::from_secs(seconds),
            without_effects: matches!(text(value, &["sideEffects"]), "None" | "NoneOnDryRun"),
            reinvoked: text(value, &["reinvocationPolicy"]) == "IfNeeded",
            version: versions.iter().find_map(|name| ReviewVersion::named(name)),
            client: Client::new(&value["clientConfig"], credentials),
            criteria: Criteria::of_webhook(value),
            conditions,
        }
    }

    /// The form of the request for the webhook, if it matches.
    ///
    /// # Errors
    /// 403 if its match conditions fail, and it fails closed.
    pub async fn target(&self, request: &Request<'_>, object: &Value) -> Result<Option<Target>> {
        let Some(target) = self.criteria.matches_rules(request, object).await? else {
            return Ok(None);
        };
        if self.conditions.is_empty() {
            return Ok(Some(target));
        }
        let internal = |error: crate::ApiError| Status::internal(&error.0.message);
        let object = request.versioned(object, &target).await.map_err(internal)?;
        let old = request.old_versioned(&target).await.map_err(internal)?;
        let (described, check) = (request.to_json(&target), request.check());
        let answers = Arc::new(Answers::default());
        let scene = EvaluationContext {
            object: &object,
            old: &old,
            namespace: &Value::Null,
            request: &described,
            params: None,
            variables: &[],
            check: &check,
            answers: &answers,
        };
        let evaluate = || met(&self.conditions, &scene);
        match settle(request.core, request.user(), &answers, evaluate).await {
            Ok(met) => Ok(met.then_some(target)),
            Err(_) if !self.fails => Ok(None),
            Err(error) => {
                let resource = request.target.resource.group_resource();
                Err(Status::forbidden(&resource, &request.name, &error).into())
            }
        }
    }
}
