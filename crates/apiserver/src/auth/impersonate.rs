//! Impersonation.
//!
//! With the gate ConstrainedImpersonation (KEP-5284) there are several modes. A constrained mode checks two permissions: whether the caller may
//! make the request in this mode (`impersonate-on:<mode>:<verb>` on the resource), and whether it may impersonate that
//! identity (`impersonate:<mode>`). The legacy mode, the verb `impersonate` alone, is still tried last; the first
//! denial is the one that is reported.

use std::collections::{BTreeMap, HashMap};

use allot_apimachinery::Status;
use allot_apimachinery::field::{ErrorList, Path, joined};
use allot_apimachinery::names;
use allot_apimachinery::quote::quote;
use allot_model::features::Feature;
use parking_lot::Mutex;

use super::authorize::{
    Authorizer, AuthorizerAttributes, authorizer_attributes, forbidden, selected,
};
use crate::error::Result;
use crate::identity::{
    ANONYMOUS, AUTHENTICATED, EXTRA_NODE_NAME, MASTERS, NODE_PREFIX, NODES, SERVICE_ACCOUNT_PREFIX,
    SERVICE_ACCOUNTS, UNAUTHENTICATED, User,
};
use crate::request::Incoming;
use crate::state::ServerState;
use crate::validate::domain_prefixed_path;

mod headers;

use headers::wanted;

/// API group of the identities in constrained impersonation; users and groups of the legacy mode are in the core group.
const GROUP: &str = "authentication.k8s.io";
/// What the names of all headers of impersonation start with.
const PREFIX: &str = "impersonate-";
/// From this number of groups or extra values on, the permission for all of them is checked first.
const MANY: usize = 4;
/// How many callers are remembered.
const REMEMBERED: usize = 10_000;

/// A mode of impersonation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A service account on a node acts as that node.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    ServiceAccount,
    /// All users except for nodes and service accounts.
    UserInfo,
    /// All users, without constraints.
    Legacy,
}

/// In the order in which they are tried.
const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

impl Mode {
    /// The name in verbs; the old way has none.
    fn name(self) -> Option<&'static str> {
        match self {
            Mode::AssociatedNode => Some("associated-node"),
            Mode::ArbitraryNode => Some("arbitrary-node"),
            Mode::ServiceAccount => Some("serviceaccount"),
            Mode::UserInfo => Some("user-info"),
            Mode::Legacy => None,
        }
    }

    /// The verb that allows to impersonate an identity; the old way has none of its own.
    pub(crate) fn verb(self) -> Option<String> {
        self.name().map(|name| format!("impersonate:{name}"))
    }

    /// This way leads to that identity.
    fn applies(self, wanted: &User, caller: &User) -> bool {
        let node = node_name(&wanted.name);
        let account = account_name(&wanted.name);
        let only_name =
            wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        match self {
            Mode::AssociatedNode => {
                let own = caller.extra.get(EXTRA_NODE_NAME).map(Vec::as_slice);
                only_name
                    && account_name(&caller.name).is_some()
                    && node.is_some_and(|node| own == Some(&[node.to_owned()]))
            }
            Mode::ArbitraryNode => only_name && node.is_some(),
            Mode::ServiceAccount => only_name && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }
}

/// Which way led to the goal last, by caller: it is tried first the next time.
#[derive(Default)]
pub struct Impersonation {
    last: Mutex<HashMap<String, Mode>>,
}

impl Impersonation {
    /// Replaces the caller's identity by the one to impersonate, if there is one; returns the mode.
    ///
    /// # Errors
    /// 400 if no name is given, 403 if the caller may not.
    pub(crate) async fn replace_user(
        &self,
        core: &ServerState,
        authorizer: &Authorizer,
        request: &mut Incoming,
    ) -> Result<Option<Mode>> {
        let Some(wanted) = wanted(&request.headers)? else {
            return Ok(None);
        };
        let selectors = selected(request);
        let attributes = authorizer_attributes(request, &selectors);
        let (mode, user) = self.user(core, authorizer, &wanted, &attributes).await?;
        request.user = user;
        Ok(Some(mode))
    }

    async fn user(
        &self,
        core: &ServerState,
        authorizer: &Authorizer,
        wanted: &User,
        attributes: &AuthorizerAttributes<'_>,
    ) -> Result<(Mode, User)> {
        let caller = &attributes.user.name;
        let last = self.last.lock().get(caller).copied();
        let constrained = core
            .config
            .features
            .enabled(Feature::ConstrainedImpersonation);
        let mut refusal = None;
        let rest = MODES.into_iter().filter(|mode| Some(*mode) != last);
        for mode in last.into_iter().chain(rest) {
            let built = constrained || mode == Mode::Legacy;
            if !built || !mode.applies(wanted, attributes.user) {
                continue;
            }
            match allowed(core, authorizer, mode, wanted, attributes).await {
                Ok(user) => {
                    let mut known = self.last.lock();
                    if known.len() >= REMEMBERED {
                        known.clear();
                    }
                    known.insert(caller.clone(), mode);
                    return Ok((mode, user));
                }
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        // The old way is always tried.
        Err(refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed").into()))
    }
}

/// The whole identity, if the caller may act as it in this way.
async fn allowed(
    core: &ServerState,
    authorizer: &Authorizer,
    mode: Mode,
    wanted: &User,
    attributes: &AuthorizerAttributes<'_>,
) -> Result<User> {
    let verb = match (mode.name(), mode.verb()) {
        (Some(name), Some(verb)) => {
            let on = format!("impersonate-on:{name}:{}", attributes.verb);
            let on = AuthorizerAttributes {
                verb: &on,
                ..attributes.clone()
            };
            authorizer.require(core, &on).await?;
            verb
        }
        _ => "impersonate".to_owned(),
    };
    let group = mode.name().map_or("", |_| GROUP);
    let node = node_name(&wanted.name).filter(|_| mode.name().is_some());
    let account = account_name(&wanted.name);
    let as_user = match (node, account) {
        (Some(node), _) => AuthorizerAttributes {
            // Which node it is has been checked already.
            name: if mode == Mode::AssociatedNode {
                "*"
            } else {
                node
            },
            ..AuthorizerAttributes::resource(attributes.user, &verb, group, "nodes")
        },
        (None, Some((namespace, name))) => AuthorizerAttributes {
            namespace,
            name,
            ..AuthorizerAttributes::resource(attributes.user, &verb, group, "serviceaccounts")
        },
        (None, None) => AuthorizerAttributes {
            name: &wanted.name,
            ..AuthorizerAttributes::resource(attributes.user, &verb, group, "users")
        },
    };
    authorizer.require(core, &as_user).await?;
    if !wanted.uid.is_empty() {
        let as_uid = AuthorizerAttributes {
            name: &wanted.uid,
            ..AuthorizerAttributes::resource(attributes.user, &verb, GROUP, "uids")
        };
        authorizer.require(core, &as_uid).await?;
    }
    let constrained = mode.name().is_some();
    let in_group = AuthorizerAttributes::resource(attributes.user, &verb, group, "groups");
    require_groups(core, authorizer, &in_group, &wanted.groups, constrained).await?;
    let with_extra = AuthorizerAttributes::resource(attributes.user, &verb, GROUP, "userextras");
    require_extra(core, authorizer, &with_extra, &wanted.extra, constrained).await?;
    let mut user = wanted.clone();
    if node.is_some() {
        user.groups = vec![NODES.to_owned()];
    } else if let (Some((namespace, _)), true) = (account, user.groups.is_empty()) {
        user.groups = vec![
            SERVICE_ACCOUNTS.to_owned(),
            format!("{SERVICE_ACCOUNTS}:{namespace}"),
        ];
    }
    if user.name == ANONYMOUS {
        user.add_group(UNAUTHENTICATED);
    } else if !user.in_group(UNAUTHENTICATED) {
        user.add_group(AUTHENTICATED);
    }
    Ok(user)
}

async fn require_groups(
    core: &ServerState,
    authorizer: &Authorizer,
    attributes: &AuthorizerAttributes<'_>,
    groups: &[String],
    constrained: bool,
) -> Result<()> {
    let named = |name| AuthorizerAttributes {
        name,
        ..attributes.clone()
    };
    if constrained {
        if groups.iter().any(String::is_empty) {
            let why = "impersonating the empty string group is not allowed";
            return Err(forbidden(attributes, why));
        }
        if groups.iter().any(|group| group == MASTERS) {
            let why = "impersonating the system:masters group is not allowed";
            return Err(forbidden(&named(MASTERS), why));
        }
        let all = named("*");
        if groups.len() >= MANY && authorizer.require(core, &all).await.is_ok() {
            return Ok(());
        }
    }
    for group in groups {
        authorizer.require(core, &named(group)).await?;
    }
    Ok(())
}

async fn require_extra(
    core: &ServerState,
    authorizer: &Authorizer,
    attributes: &AuthorizerAttributes<'_>,
    extra: &BTreeMap<String, Vec<String>>,
    constrained: bool,
) -> Result<()> {
    let named = |subresource, name| AuthorizerAttributes {
        subresource,
        name,
        ..attributes.clone()
    };
    if constrained {
        if let Some(why) = extra
            .iter()
            .find_map(|(key, values)| extra_error(key, values))
        {
            return Err(forbidden(attributes, &why));
        }
        let many = extra.len() >= MANY || extra.values().map(Vec::len).sum::<usize>() >= MANY;
        let all = named("*", "*");
        if many && authorizer.require(core, &all).await.is_ok() {
            return Ok(());
        }
    }
    for (key, values) in extra {
        for value in values {
            authorizer.require(core, &named(key, value)).await?;
        }
    }
    Ok(())
}

/// The reason why an extra key with its values cannot be impersonated in a constrained mode.
fn extra_error(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let mut errors = ErrorList::default();
    domain_prefixed_path(key, &Path::new("extra").child("key"), &mut errors);
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if let Some(errors) = joined(&errors) {
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: {errors}"
        ));
    }
    if key != key.to_lowercase() {
        let key = quote(key);
        return Some(format!(
            "impersonating a non-lowercase key in extra is not allowed: {key}"
        ));
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

/// The node whose agent has that user name.
fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix(NODE_PREFIX)?;
    names::dns1123_subdomain(name).is_empty().then_some(name)
}

/// Namespace and name of the service account with that user name.
fn account_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let valid =
        names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

/// A user without a name as Go prints the struct.
fn go_user(user: &User) -> String {
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|it| quote(it)).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = match user.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => list(groups),
    };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let extra = user.extra.iter();
        let extra: Vec<String> = extra
            .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
            .collect();
        format!("map[string][]string{{{}}}", extra.join(", "))
    };
    let uid = quote(&user.uid);
    format!("&user.DefaultInfo{{Name:\"\", UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}
