//! What an identity may do: authorizers in order; the first that allows decides.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::fields::FieldSelector;
use allot_apimachinery::gvk::GroupResource;
use allot_apimachinery::quote::quote;
use allot_store::Watcher;
use tokio::sync::Mutex;

use super::index::{Index, Part};
use super::node;
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
}

impl<'a> AuthorizerAttributes<'a> {
    /// Access to a resource.
    pub fn resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        AuthorizerAttributes {
            user,
            verb,
            is_resource: true,
            group,
            resource,
            subresource: "",
            namespace: "",
            name: "",
            path: "",
            fields: None,
        }
    }

    /// Access to a path that is no resource.
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        AuthorizerAttributes {
            is_resource: false,
            path,
            ..AuthorizerAttributes::resource(user, verb, "", "")
        }
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

/// The decision of an authorizer, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Allowed.
    Allow(String),
    /// No rule allows it.
    NoOpinion(String),
}

impl Decision {
    /// Whether some authorizer allows it; nothing else does.
    pub fn allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// Why, or why not.
    pub fn reason(&self) -> &str {
        match self {
            Decision::Allow(reason) | Decision::NoOpinion(reason) => reason,
        }
    }

    /// Success if it is allowed.
    ///
    /// # Errors
    /// 403 with upstream's text.
    pub(crate) fn required(&self, attributes: &AuthorizerAttributes<'_>) -> Result<()> {
        match self {
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(reason) => Err(forbidden(attributes, reason)),
        }
    }
}

/// The authorizers of a server, in order.
pub struct Authorizer {
    modes: Vec<AuthorizationMode>,
    cache: Mutex<Option<Cache>>,
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
    /// The authorizers that the options of the server name.
    pub fn new(config: &Config) -> Self {
        Authorizer {
            modes: config.authorization.clone(),
            cache: Mutex::new(None),
        }
    }

    /// The decision of the first authorizer that allows the access; otherwise the reasons of all.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn decide(
        &self,
        core: &ServerState,
        attributes: &AuthorizerAttributes<'_>,
    ) -> Result<Decision> {
        if attributes.user.in_group(MASTERS) {
            return Ok(Decision::Allow(String::new()));
        }
        let mut reasons = Vec::new();
        for mode in &self.modes {
            let decision = match mode {
                AuthorizationMode::AlwaysAllow => Decision::Allow(String::new()),
                AuthorizationMode::AlwaysDeny => {
                    Decision::NoOpinion("Everything is forbidden.".to_owned())
                }
                AuthorizationMode::Node => node::decide(core, attributes).await?,
                AuthorizationMode::Rbac => self.index(core).await?.decide(attributes),
            };
            match decision {
                Decision::Allow(reason) => return Ok(Decision::Allow(reason)),
                Decision::NoOpinion(reason) if !reason.is_empty() => reasons.push(reason),
                Decision::NoOpinion(_) => {}
            }
        }
        Ok(Decision::NoOpinion(reasons.join("\n")))
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

/// The field selector of a request. An invalid selector is rejected later; here it is treated as absent.
pub(crate) fn selected(request: &Incoming) -> Option<FieldSelector> {
    FieldSelector::parse(request.query.text("fieldSelector")?).ok()
}

/// The attributes of a request, as upstream's `GetAuthorizerAttributes` returns them.
pub(crate) fn authorizer_attributes<'a>(
    request: &'a Incoming,
    fields: Option<&'a FieldSelector>,
) -> AuthorizerAttributes<'a> {
    let info = &request.info;
    let restricted = fields.and_then(|fields| fields.exact("metadata.name"));
    // A deletion of a collection is not one of the object that its selector names.
    let collection_verb = matches!(info.verb.as_str(), "list" | "watch");
    AuthorizerAttributes {
        user: &request.user,
        verb: &info.verb,
        is_resource: info.is_resource,
        group: &info.group,
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
