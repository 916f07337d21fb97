//! The plugin ImagePolicyWebhook: another server decides which images pods may have.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Admission, Attributes, Operation, forbidden};
use crate::auth::answer_cache::{self, AnswerCache};
use crate::config::ImagePolicy as Options;
use crate::error::Result;
use crate::object::{at, items, text};
use crate::webhook::{Reviewer, excerpt};

const VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
/// What keys of annotations contain that the webhook is sent.
const ANNOTATIONS: &str = ".image-policy.k8s.io/";
/// What keys in the audit log begin with.
const NOTES: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// The time of one call, as upstream.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The number of answers that are kept, as upstream.
const MOST_KEPT: usize = 1024;
/// Larger answers, in bytes, are requested each time.
const LARGEST_KEPT: usize = 8 << 10;

/// The webhook and its answers.
pub(crate) struct ImagePolicy {
    options: Options,
    reviewer: std::result::Result<Reviewer, String>,
    cache: AnswerCache<Answer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    allowed: Option<bool>,
    reason: Option<String>,
    audit_annotations: Option<BTreeMap<String, String>>,
}

impl ImagePolicy {
    /// A webhook that has not been called.
    pub(crate) fn new(options: &Options) -> Self {
        let reviewer = Reviewer::new(&options.kubeconfig, TIMEOUT);
        ImagePolicy {
            reviewer: reviewer.map(|it| it.waiting(options.retry_backoff)),
            options: options.clone(),
            cache: AnswerCache::holding(MOST_KEPT),
        }
    }

    /// Whether the webhook can be called.
    ///
    /// # Errors
    /// Certificates or keys of its client cannot be used.
    pub(crate) fn usable(&self) -> std::result::Result<&Reviewer, String> {
        self.reviewer.as_ref().map_err(Clone::clone)
    }

    /// The answer about what a review asks, from before or from the webhook.
    async fn answer(&self, core: &Admission, spec: &Value) -> std::result::Result<Answer, String> {
        let asked = spec.to_string();
        let key = answer_cache::key(b"", [asked.as_bytes()]);
        if let Some(answer) = self.cache.get(&key) {
            return Ok(answer);
        }
        let review = json!({
            "kind": "ImageReview", "apiVersion": VERSION, "metadata": {}, "spec": spec,
            "status": {"allowed": false},
        });
        let reviewer = self.usable()?;
        let answer = reviewer.review(&*core.backend, &review).await;
        let answer: Answer = answer.map_err(|error| error.text)?;
        // A webhook can write texts of any length, and they are kept.
        let reason = answer.reason.as_deref();
        let reason = reason.map(|reason| excerpt(reason).to_owned());
        let answer = Answer { reason, ..answer };
        let notes = answer.audit_annotations.iter().flatten();
        if notes
            .map(|(key, text)| key.len() + text.len())
            .sum::<usize>()
            <= LARGEST_KEPT
        {
            let time = match answer.allowed.unwrap_or_default() {
                true => self.options.allow_ttl,
                false => self.options.deny_ttl,
            };
            self.cache.insert(key, answer.clone(), time);
        }
        Ok(answer)
    }
}

/// Asks the webhook about the images of a pod that is created or changed, or of its new ephemeral containers.
///
/// # Errors
/// 403 if it does not allow them, or cannot be asked and is not meant to be ignored then.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &Value,
) -> Result<()> {
    let Some(policy) = &core.image_policy else {
        return Ok(());
    };
    let lists: &[&str] = match attributes.subresource {
        "" => &["containers", "initContainers"],
        "ephemeralcontainers" => &["ephemeralContainers"],
        _ => return Ok(()),
    };
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !writes || !attributes.resource.is("", "pods") {
        return Ok(());
    }
    let spec = spec(attributes.namespace, lists, pod);
    let answer = match policy.answer(core, &spec).await {
        Ok(answer) => answer,
        Err(why) => {
            let why = excerpt(&why);
            tracing::warn!(why, "the webhook of images could not be asked");
            if policy.options.default_allow {
                note(attributes, "failed-open", "true");
                return Ok(());
            }
            return Err(forbidden(attributes, why));
        }
    };
    for (key, text) in answer.audit_annotations.iter().flatten() {
        note(attributes, key, text);
    }
    match (answer.allowed.unwrap_or_default(), answer.reason) {
        (true, _) => Ok(()),
        (false, Some(reason)) if !reason.is_empty() => {
            let why = format!("image policy webhook backend denied one or more images: {reason}");
            Err(forbidden(attributes, &why))
        }
        (false, _) => Err(forbidden(
            attributes,
            "one or more images rejected by webhook backend",
        )),
    }
}

/// The `spec` of an ImageReview.
fn spec(namespace: &str, lists: &[&str], pod: &Value) -> Value {
    let containers = lists
        .iter()
        .flat_map(|list| items(at(pod, &["spec", list])));
    let containers = containers.map(|it| match text(it, &["image"]) {
        "" => json!({}),
        image => json!({"image": image}),
    });
    let containers: Vec<Value> = containers.collect();
    let annotations = pod["metadata"]["annotations"].as_object();
    let annotations = annotations.into_iter().flatten();
    let annotations: Map<String, Value> = annotations
        .filter(|(key, _)| key.contains(ANNOTATIONS))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut spec = Map::new();
    if !containers.is_empty() {
        spec.insert("containers".to_owned(), containers.into());
    }
    if !annotations.is_empty() {
        spec.insert("annotations".to_owned(), annotations.into());
    }
    spec.insert("namespace".to_owned(), namespace.into());
    spec.into()
}

/// Adds an annotation to the audit event of the request.
fn note(attributes: &Attributes<'_>, key: &str, text: &str) {
    if let Some(asked) = &attributes.asked {
        let annotations = &asked.request.annotations;
        annotations.add(format!("{NOTES}{key}"), || text.to_owned());
    }
}
