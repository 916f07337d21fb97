//! Authorization by another server, which is sent a SubjectAccessReview.

use std::sync::Arc;
use std::time::Instant;

use allot_apimachinery::labels::Operator;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer_cache::{self, AnswerCache};
use super::authorize::{AuthorizerAttributes, sees_selectors};
use super::decision::Decision;
use super::metrics::{Called, Metrics};
use crate::config::authorization::{ReviewVersion, WebhookOptions};
use crate::identity::User;
use crate::limits::of_expression;
use crate::state::ServerState;
use crate::webhook::{Reviewer, excerpt};

const GROUP: &str = "authorization.k8s.io";
/// Requests whose attributes, which the client chooses, are longer together are sent to the webhook each time, as upstream.
const LONGEST_KEPT: usize = 10_000;

/// A webhook that authorizes requests.
pub(super) struct Webhook {
    options: Arc<WebhookOptions>,
    reviewer: Reviewer,
    metrics: Metrics,
    cache: AnswerCache<Answer>,
}

/// What it says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Answer {
    allowed: Option<bool>,
    denied: Option<bool>,
    reason: Option<String>,
}

impl Webhook {
    /// A webhook that has not been called.
    ///
    /// # Errors
    /// Certificates or keys of its client cannot be used.
    pub(super) fn new(options: Arc<WebhookOptions>, metrics: Metrics) -> Result<Self, String> {
        let reviewer = Reviewer::new(&options.kubeconfig, options.timeout)?;
        Ok(Webhook {
            reviewer,
            metrics,
            cache: AnswerCache::new(),
            options,
        })
    }

    /// Decides by what the webhook answers, or has answered.
    pub(super) async fn decide(
        &self,
        core: &ServerState,
        attributes: &AuthorizerAttributes<'_>,
    ) -> Decision {
        let selectors = sees_selectors(core.config.features.release());
        let spec = spec(attributes, selectors);
        let name = &self.options.name;
        match self.options.conditions.met(&spec, &of_expression()) {
            Ok(true) => {}
            Ok(false) => {
                self.metrics.excluded(name);
                return Decision::no_opinion("");
            }
            Err(error) => {
                self.metrics.conditions_failed(name);
                return self.undecided(error);
            }
        }
        let asked = spec.to_string();
        let key = answer_cache::key(b"", [asked.as_bytes()]);
        if let Some(answer) = self.cache.get(&key) {
            return answer.decision();
        }
        let began = Instant::now();
        let answer = self.ask(core, spec).await;
        let how = match &answer {
            Ok(_) => Called::Success,
            Err(error) if error.timed_out => Called::Timeout,
            Err(_) => Called::Error,
        };
        self.metrics.called(name, how, began.elapsed());
        match answer {
            Ok(answer) => {
                if is_cacheable(attributes) {
                    let time = match answer.allowed.unwrap_or_default() {
                        true => self.options.authorized_ttl,
                        false => self.options.unauthorized_ttl,
                    };
                    self.cache.insert(key, answer.clone(), time);
                }
                answer.decision()
            }
            Err(error) => {
                let why = excerpt(&error.text);
                tracing::warn!(name, why, "an authorization webhook could not be asked");
                if !self.options.denies_on_error {
                    self.metrics.failed_open(name, how);
                }
                self.undecided(error.text)
            }
        }
    }

    fn undecided(&self, error: String) -> Decision {
        let decision = match self.options.denies_on_error {
            true => Decision::deny(""),
            false => Decision::no_opinion(""),
        };
        decision.in_spite_of(excerpt(&error).to_owned())
    }

    async fn ask(
        &self,
        core: &ServerState,
        mut spec: Value,
    ) -> Result<Answer, crate::webhook::ReviewError> {
        let version = self.options.version;
        if let (ReviewVersion::V1beta1, Some(spec)) = (version, spec.as_object_mut())
            && let Some(groups) = spec.remove("groups")
        {
            spec.insert("group".to_owned(), groups);
        }
        let version = format!("{GROUP}/{}", version.name());
        let review = json!({
            "kind": "SubjectAccessReview", "apiVersion": version, "metadata": {}, "spec": spec,
            "status": {"allowed": false},
        });
        let backend = &*core.backend;
        let answer: Answer = self.reviewer.review(backend, &review).await?;
        // A webhook can write texts of any length, and they are kept.
        let reason = answer.reason.as_deref();
        let reason = reason.map(|reason| excerpt(reason).to_owned());
        Ok(Answer { reason, ..answer })
    }
}

impl Answer {
    fn decision(self) -> Decision {
        let reason = self.reason.unwrap_or_default();
        let [allowed, denied] = [self.allowed, self.denied].map(Option::unwrap_or_default);
        match (allowed, denied) {
            (true, true) => {
                let error = "webhook subject access review returned both allow and deny response";
                Decision::deny(reason).in_spite_of(error.to_owned())
            }
            (false, true) => Decision::deny(reason),
            (true, false) => Decision::allow(reason),
            (false, false) => Decision::no_opinion(reason),
        }
    }
}

fn is_cacheable(attributes: &AuthorizerAttributes<'_>) -> bool {
    let all = [
        attributes.verb,
        attributes.group,
        attributes.version,
        attributes.resource,
        attributes.subresource,
        attributes.namespace,
        attributes.name,
        attributes.path,
    ];
    all.iter().map(|it| it.len()).sum::<usize>() < LONGEST_KEPT
}

/// Adds what is not empty.
fn set(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let value = value.into();
    let is_empty = match &value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    if !is_empty {
        map.insert(key.to_owned(), value);
    }
}

/// The `spec` of a SubjectAccessReview.
pub(super) fn spec(attributes: &AuthorizerAttributes<'_>, selectors: bool) -> Value {
    let User {
        name,
        uid,
        groups,
        extra,
    } = attributes.user;
    let mut spec = Map::new();
    let key = match attributes.is_resource {
        true => "resourceAttributes",
        false => "nonResourceAttributes",
    };
    let mut asked = Map::new();
    set(&mut asked, "verb", attributes.verb);
    if attributes.is_resource {
        set(&mut asked, "namespace", attributes.namespace);
        set(&mut asked, "group", attributes.group);
        set(&mut asked, "version", attributes.version);
        set(&mut asked, "resource", attributes.resource);
        set(&mut asked, "subresource", attributes.subresource);
        set(&mut asked, "name", attributes.name);
        if selectors {
            for (key, list) in [
                ("fieldSelector", field_requirements(attributes)),
                ("labelSelector", label_requirements(attributes)),
            ] {
                if !list.is_empty() {
                    asked.insert(key.to_owned(), json!({"requirements": list}));
                }
            }
        }
    } else {
        set(&mut asked, "path", attributes.path);
    }
    spec.insert(key.to_owned(), asked.into());
    set(&mut spec, "user", name.as_str());
    set(&mut spec, "groups", groups.clone());
    let extra = extra
        .iter()
        .map(|(key, list)| (key.clone(), Value::from(list.clone())));
    set(&mut spec, "extra", extra.collect::<Map<_, _>>());
    set(&mut spec, "uid", uid.as_str());
    spec.into()
}

fn field_requirements(attributes: &AuthorizerAttributes<'_>) -> Vec<Value> {
    let fields = attributes.fields.into_iter();
    let requirements = fields.flat_map(|fields| fields.requirements());
    let requirements = requirements.map(|it| {
        let operator = if it.negated { "NotIn" } else { "In" };
        json!({"key": it.field, "operator": operator, "values": [it.value]})
    });
    requirements.collect()
}

/// Comparisons of numbers have no form in a review. Leaving a requirement out asks for more than the request needs, never for less.
fn label_requirements(attributes: &AuthorizerAttributes<'_>) -> Vec<Value> {
    let labels = attributes.labels.into_iter();
    let requirements = labels.flat_map(|labels| labels.requirements());
    let requirements = requirements.filter_map(|it| {
        let operator = match it.operator() {
            Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
            Operator::NotIn | Operator::NotEquals => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut requirement = json!({"key": it.key(), "operator": operator});
        if !it.values().is_empty() {
            requirement["values"] = it.values().into();
        }
        Some(requirement)
    });
    requirements.collect()
}
