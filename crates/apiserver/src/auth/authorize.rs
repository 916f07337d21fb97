//! What an identity may do: authorizers in order; the first that allows or denies decides.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::fields::FieldSelector;
use allot_apimachinery::gvk::GroupResource;
use allot_apimachinery::labels::Selector;
use allot_apimachinery::quote::quote;
use allot_model::features::Release;
use allot_store::Watcher;
use arc_swap::ArcSwap;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Mutex;

use super::decision::{Decision, Verdict};
use super::index::{Index, Part};
use super::metrics::Metrics;
use super::webhook::Webhook;
use super::{abac, node};
use crate::config::{AuthorizationMode, Config};
use crate::error::{ApiError, Result};
use crate::identity::{MASTERS, User};
use crate::request::Incoming;
use crate::state::ServerState;

/// What a request is authorized by: the user, and what it would do. Upstream: `authorizer.Attributes`.
#[derive(Debug, Clone)]
pub struct AuthorizerAttributes<'a> {
    /// The user, after impersonation.
    pub user: &'a User,
    /// The verb of the API, or the HTTP method in lower case for a path.
    pub verb: &'a str,
    /// Whether the request is for a resource; otherwise it is for a path.
    pub is_resource: bool,
    /// API group.
    pub group: &'a str,
    /// API version; `*` for all of them.
    pub version: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    /// The name of the object; empty for requests about a collection.
    pub name: &'a str,
    /// The path of a non-resource request.
    pub path: &'a str,
    /// The field selector of a list, watch or deletecollection.
    pub fields: Option<&'a FieldSelector>,
    /// The label selector of such a request.
    pub labels: Option<&'a Selector>,
}

impl<'a> AuthorizerAttributes<'a> {
    /// Access to a resource.
    pub fn resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        AuthorizerAttributes {
            user,
            verb,
            is_resource: true,
            group,
            version: "*",
            resource,
            subresource: "",
            namespace: "",
            name: "",
            path: "",
            fields: None,
            labels: None,
        }
    }

    /// Access to a path that is no resource.
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        AuthorizerAttributes {
            is_resource: false,
            version: "",
            path,
            ..AuthorizerAttributes::resource(user, verb, "", "")
        }
    }

    /// Whether it changes nothing.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }

    /// `resource` or `resource/subresource`.
    pub fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// Upstream's text for a refusal, with the reason if there is one.
    pub fn denial(&self, reason: &str) -> String {
        let AuthorizerAttributes {
            verb,
            group,
            namespace,
            path,
            ..
        } = self;
        let user = quote(&self.user.name);
        let mut text = if self.is_resource {
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {}", quote(namespace))
            };
            format!(
                "User {user} cannot {verb} resource {} in API group {} {scope}",
                quote(&self.full_resource()),
                quote(group)
            )
        } else {
            format!("User {user} cannot {verb} path {}", quote(path))
        };
        text = without_markup(&text);
        if !reason.is_empty() {
            text = format!("{text}: {reason}");
        }
        text
    }

    /// The message of the 403 for a refusal.
    pub fn refusal(&self, reason: &str) -> String {
        refused(self, reason).message
    }
}

/// The authorizers of a server, in order.
pub struct Authorizer {
    steps: ArcSwap<Vec<Step>>,
    metrics: Metrics,
    cache: Mutex<Option<Cache>>,
}

/// One authorizer.
pub(super) struct Step {
    pub(super) judge: Judge,
    allowed: Counter,
    denied: Counter,
}

/// The kinds of authorizers.
pub(super) enum Judge {
    AlwaysAllow,
    AlwaysDeny,
    Node,
    Rbac,
    Abac(Arc<crate::config::authorization::abac::Policies>),
    Webhook(Box<Webhook>),
}

impl Step {
    fn new(mode: &AuthorizationMode, metrics: &Metrics) -> Result<Self, String> {
        let [allowed, denied] = metrics.decisions(mode.kind(), mode.name());
        let judge = match mode {
            AuthorizationMode::AlwaysAllow => Judge::AlwaysAllow,
            AuthorizationMode::AlwaysDeny => Judge::AlwaysDeny,
            AuthorizationMode::Node => Judge::Node,
            AuthorizationMode::Rbac => Judge::Rbac,
            AuthorizationMode::Abac(policies) => Judge::Abac(Arc::clone(policies)),
            AuthorizationMode::Webhook(options) => {
                let webhook = Webhook::new(Arc::clone(options), metrics.clone())?;
                Judge::Webhook(Box::new(webhook))
            }
        };
        Ok(Step {
            judge,
            allowed,
            denied,
        })
    }
}

/// The roles and bindings, and watchers that report changes of them.
struct Cache {
    /// In the order of the parts.
    watchers: Vec<Watcher>,
    index: Arc<Index>,
}

impl Cache {
    /// Takes over what has changed.
    ///
    /// # Errors
    /// Errors of the store, if it has to be read again because of too many changes.
    fn follow(&mut self) -> Result<(), allot_store::Error> {
        for (part, watcher) in Part::ALL.into_iter().zip(&mut self.watchers) {
            loop {
                let changes = watcher.poll_changes()?;
                if changes.is_empty() {
                    break;
                }
                // While no request is being judged the index is not shared, and is changed in place.
                let index = Arc::make_mut(&mut self.index);
                changes.iter().for_each(|event| index.apply(part, event));
            }
        }
        Ok(())
    }
}

impl Authorizer {
    /// The authorizers that the options of the server name. If one cannot be made, which [`Authorizer::check`] tells before, none
    /// but superusers may do anything.
    pub fn new(config: &Config, metrics: Metrics) -> Self {
        let steps = steps(&config.authorization, &metrics).unwrap_or_else(|error| {
            tracing::error!(error, "there is no authorizer");
            Vec::new()
        });
        Authorizer {
            steps: ArcSwap::from_pointee(steps),
            metrics,
            cache: Mutex::new(None),
        }
    }

    /// Whether authorizers can be made of the options.
    ///
    /// # Errors
    /// Keys or certificates of a webhook's client cannot be used.
    pub fn check(modes: &[AuthorizationMode]) -> Result<(), String> {
        steps(modes, &Metrics::default()).map(drop)
    }

    /// Replaces the authorizers; decisions that are being made are not changed.
    ///
    /// # Errors
    /// As [`Authorizer::check`]; then nothing changes.
    pub fn replace(&self, modes: &[AuthorizationMode]) -> Result<(), String> {
        let steps = steps(modes, &self.metrics)?;
        self.steps.store(Arc::new(steps));
        Ok(())
    }

    /// The authorizers as they are now.
    pub(super) fn steps(&self) -> Arc<Vec<Step>> {
        self.steps.load_full()
    }

    /// The decision of the first authorizer that allows or denies the access; otherwise the reasons of all.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn decide(
        &self,
        core: &ServerState,
        attributes: &AuthorizerAttributes<'_>,
    ) -> Result<Decision> {
        if attributes.user.in_group(MASTERS) {
            return Ok(Decision::allow(""));
        }
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for step in self.steps().iter() {
            let decision = match &step.judge {
                Judge::AlwaysAllow => Decision::allow(""),
                Judge::AlwaysDeny => Decision::no_opinion("Everything is forbidden."),
                Judge::Node => node::decide(core, attributes).await?,
                Judge::Rbac => self.index(core).await?.decide(attributes),
                Judge::Abac(policies) => abac::decide(policies, attributes),
                Judge::Webhook(webhook) => webhook.decide(core, attributes).await,
            };
            match decision.verdict() {
                Verdict::Allow => {
                    step.allowed.inc();
                    return Ok(decision);
                }
                Verdict::Deny => {
                    step.denied.inc();
                    return Ok(decision);
                }
                Verdict::NoOpinion => {
                    let (reason, failed) = decision.into_parts();
                    reasons.extend((!reason.is_empty()).then_some(reason));
                    errors.extend(failed);
                }
            }
        }
        let none = Decision::no_opinion(reasons.join("\n"));
        Ok(errors.into_iter().fold(none, Decision::in_spite_of))
    }

    /// Requires a permission.
    ///
    /// # Errors
    /// 403.
    pub async fn require(
        &self,
        core: &ServerState,
        attributes: &AuthorizerAttributes<'_>,
    ) -> Result<()> {
        self.decide(core, attributes).await?.required(attributes)
    }

    /// The roles and bindings as they are now.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn index(&self, core: &ServerState) -> Result<Arc<Index>> {
        let mut cache = self.cache.lock().await;
        if let Some(known) = cache.as_mut()
            && known.follow().is_ok()
        {
            return Ok(known.index.clone());
        }
        let revision = core.backend.revision();
        let watchers = Part::ALL
            .iter()
            .map(|part| core.backend.watch(part.collection(), "", revision))
            .collect::<Result<Vec<_>, _>>()?;
        let index = Arc::new(Index::load(core).await?);
        *cache = Some(Cache {
            watchers,
            index: index.clone(),
        });
        Ok(index)
    }
}

fn steps(modes: &[AuthorizationMode], metrics: &Metrics) -> Result<Vec<Step>, String> {
    let steps = modes.iter().map(|mode| Step::new(mode, metrics));
    steps.collect()
}

/// The first release whose authorizers see selectors.
const SELECTORS_SINCE: Release = Release::new(32);

/// The selectors of a request by which authorizers may judge it.
#[derive(Debug, Default)]
pub(crate) struct Selectors {
    fields: Option<FieldSelector>,
    labels: Option<Selector>,
}

/// The selectors of a request; of requests whose objects they do not restrict they mean nothing. An invalid one is rejected later;
/// here it is treated as absent.
pub(crate) fn selected(request: &Incoming) -> Selectors {
    let verb = request.info.verb.as_str();
    if !request.info.is_resource || !matches!(verb, "list" | "watch" | "deletecollection") {
        return Selectors::default();
    }
    let query = &request.query;
    let fields = query.text("fieldSelector");
    let labels = query.text("labelSelector");
    Selectors {
        fields: fields.and_then(|text| FieldSelector::parse(text).ok()),
        labels: labels.and_then(|text| Selector::parse(text).ok()),
    }
}

/// Whether authorizers of a release see selectors.
pub(super) fn sees_selectors(release: Release) -> bool {
    release >= SELECTORS_SINCE
}

/// The attributes of a request, as upstream's `GetAuthorizerAttributes` returns them.
pub(crate) fn authorizer_attributes<'a>(
    request: &'a Incoming,
    selectors: &'a Selectors,
) -> AuthorizerAttributes<'a> {
    let info = &request.info;
    let fields = selectors.fields.as_ref();
    let restricted = fields.and_then(|fields| fields.exact("metadata.name"));
    // A deletion of a collection is not one of the object that its selector names.
    let collection_verb = matches!(info.verb.as_str(), "list" | "watch");
    AuthorizerAttributes {
        user: &request.user,
        verb: &info.verb,
        is_resource: info.is_resource,
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: if info.name.is_empty() && collection_verb {
            restricted.unwrap_or_default()
        } else {
            &info.name
        },
        path: if info.is_resource { "" } else { &info.path },
        fields,
        labels: selectors.labels.as_ref(),
    }
}

/// The text with all that a browser interprets as markup escaped.
pub(crate) fn without_markup(text: &str) -> String {
    let mut text = text.to_owned();
    for (found, shown) in [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;")] {
        text = text.replace(found, shown);
    }
    text
}

/// 500 for a request that no authorizer allows, while one has failed.
pub(crate) fn undecided(attributes: &AuthorizerAttributes<'_>, error: &str) -> ApiError {
    let text = attributes.denial("");
    ApiError::unknown(format!("Internal Server Error: {text}: {error}"))
}

/// 403 as upstream words it.
pub(super) fn forbidden(attributes: &AuthorizerAttributes<'_>, reason: &str) -> ApiError {
    refused(attributes, reason).into()
}

fn refused(attributes: &AuthorizerAttributes<'_>, reason: &str) -> Status {
    let text = attributes.denial(reason);
    if !attributes.is_resource {
        let mut status = Status::failure(403, "Forbidden", format!("forbidden: {text}"));
        status.details = Some(Box::default());
        return status;
    }
    Status::forbidden(
        &GroupResource::new(attributes.group, attributes.resource),
        attributes.name,
        &text,
    )
}
