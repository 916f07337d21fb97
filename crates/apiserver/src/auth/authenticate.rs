//! Who asks: bearer tokens; client certificates have been checked by TLS before.

use std::collections::BTreeMap;

use allot_apimachinery::Status;
use allot_apimachinery::quote::quote;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::Value;

use super::authorize::Ask;
use super::token::{Bound, Signer, TokenError};
use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::identity::{AUTHENTICATED, SERVICE_ACCOUNT_PREFIX, UNAUTHENTICATED, User};
use crate::object::meta;
use crate::server::{Core, Incoming};

/// Group of all service accounts; with `:NAMESPACE` those of a namespace.
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
const EXTRA: &str = "authentication.kubernetes.io/";

/// Proves identities.
pub struct Authenticator {
    tokens: BTreeMap<String, User>,
    anonymous: bool,
    signer: Result<Signer, TokenError>,
}

impl Authenticator {
    /// With the options of the server.
    pub fn new(config: &Config) -> Self {
        Authenticator {
            tokens: config.tokens.clone(),
            anonymous: config.anonymous,
            signer: Signer::new(
                config.service_account_key.as_deref(),
                &config.service_account_issuer,
            ),
        }
    }

    /// The signer of service-account tokens.
    ///
    /// # Errors
    /// 500 if the configured key can not be used.
    pub fn signer(&self) -> Result<&Signer> {
        self.signer
            .as_ref()
            .map_err(|error| Status::internal(&error.to_string()).into())
    }

    /// The identity that the headers prove.
    ///
    /// # Errors
    /// 401 for a wrong token, and without any where anonymous requests are not allowed.
    pub async fn authenticate(&self, core: &Core, headers: &HeaderMap) -> Result<User> {
        let unauthorized = || ApiError::from(Status::unauthorized("Unauthorized"));
        let bearer = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        match bearer {
            Some(token) if !token.is_empty() => {
                let (user, audiences) = self
                    .token(core, token, &[])
                    .await
                    .map_err(|_| unauthorized())?;
                tracing::trace!(user = user.name, ?audiences, "authenticated");
                Ok(user)
            }
            _ if self.anonymous => Ok(User::anonymous()),
            _ => Err(unauthorized()),
        }
    }

    /// The identity behind a token and the audiences it is meant for.
    ///
    /// `audiences` are those that the asker accepts; the API server's own if empty.
    ///
    /// # Errors
    /// Text for a token review.
    pub async fn token(
        &self,
        core: &Core,
        token: &str,
        audiences: &[String],
    ) -> Result<(User, Vec<String>), String> {
        let signer = self.signer.as_ref().map_err(ToString::to_string)?;
        if let Some(user) = self.tokens.get(token) {
            // Such a token says nothing about audiences: it is for this server.
            let own = signer.issuer();
            if !audiences.is_empty() && !audiences.iter().any(|it| it == own) {
                return Err(TokenError::Foreign.to_string());
            }
            return Ok((user.clone(), vec![own.to_owned()]));
        }
        let now = jiff::Timestamp::now().as_second();
        let bound = signer
            .verify(token, now)
            .map_err(|error| error.to_string())?;
        let own = [signer.issuer().to_owned()];
        let accepted = if audiences.is_empty() {
            &own[..]
        } else {
            audiences
        };
        let matching: Vec<String> = accepted
            .iter()
            .filter(|it| bound.audiences.contains(it))
            .cloned()
            .collect();
        if matching.is_empty() {
            return Err(format!(
                "token audiences {:?} is invalid for the target audiences {accepted:?}",
                bound.audiences
            ));
        }
        still_there(core, &bound).await?;
        Ok((service_account(&bound), matching))
    }

    /// Puts the identity that the caller wants to act as in place of its own.
    ///
    /// # Errors
    /// 403 if it may not.
    pub async fn impersonate(&self, core: &Core, request: &mut Incoming) -> Result<()> {
        let all = |name: &str| -> Vec<String> {
            request
                .headers
                .get_all(name)
                .iter()
                .filter_map(|it| it.to_str().ok().map(str::to_owned))
                .collect()
        };
        let (users, groups, uids) = (
            all("impersonate-user"),
            all("impersonate-group"),
            all("impersonate-uid"),
        );
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in &request.headers {
            if let (Some(key), Ok(value)) = (
                name.as_str().strip_prefix("impersonate-extra-"),
                value.to_str(),
            ) {
                let key = percent_encoding::percent_decode_str(key)
                    .decode_utf8_lossy()
                    .into_owned();
                extra.entry(key).or_default().push(value.to_owned());
            }
        }
        let Some(name) = users.into_iter().next().filter(|name| !name.is_empty()) else {
            if groups.is_empty() && uids.is_empty() && extra.is_empty() {
                return Ok(());
            }
            let uid = uids.first().map_or("", String::as_str);
            let wanted = go_user(uid, &groups, &extra);
            let why = format!("requested {wanted} without impersonating a user name");
            return Err(Status::bad_request(why).into());
        };
        let account = name
            .strip_prefix(SERVICE_ACCOUNT_PREFIX)
            .and_then(|rest| rest.split_once(':'));
        let caller = request.user.clone();
        let mut asks = vec![match account {
            Some((namespace, account)) => Ask {
                namespace,
                name: account,
                ..Ask::resource(&caller, "impersonate", "", "serviceaccounts")
            },
            None => Ask {
                name: &name,
                ..Ask::resource(&caller, "impersonate", "", "users")
            },
        }];
        for group in &groups {
            asks.push(Ask {
                name: group,
                ..Ask::resource(&caller, "impersonate", "", "groups")
            });
        }
        for uid in &uids {
            asks.push(Ask {
                name: uid,
                ..Ask::resource(&caller, "impersonate", "authentication.k8s.io", "uids")
            });
        }
        for (key, values) in &extra {
            for value in values {
                let ask = Ask::resource(
                    &caller,
                    "impersonate",
                    "authentication.k8s.io",
                    "userextras",
                );
                asks.push(Ask {
                    subresource: key,
                    name: value,
                    ..ask
                });
            }
        }
        for ask in asks {
            core.authorizer.require(core, &ask).await?;
        }
        let mut user = User {
            name: name.clone(),
            uid: uids.into_iter().next().unwrap_or_default(),
            groups,
            extra,
        };
        if let (Some((namespace, _)), true) = (account, user.groups.is_empty()) {
            user.groups = vec![
                SERVICE_ACCOUNTS.to_owned(),
                format!("{SERVICE_ACCOUNTS}:{namespace}"),
            ];
        }
        if user.name == crate::identity::ANONYMOUS {
            user.add_group(UNAUTHENTICATED);
        } else if !user.in_group(UNAUTHENTICATED) {
            user.add_group(AUTHENTICATED);
        }
        request.user = user;
        Ok(())
    }
}

/// A user without a name as Go prints the struct.
fn go_user(uid: &str, groups: &[String], extra: &BTreeMap<String, Vec<String>>) -> String {
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|it| quote(it)).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = match groups {
        [] => "[]string(nil)".to_owned(),
        groups => list(groups),
    };
    let extra = if extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let extra = extra.iter();
        let extra: Vec<String> = extra
            .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
            .collect();
        format!("map[string][]string{{{}}}", extra.join(", "))
    };
    let uid = quote(uid);
    format!("&user.DefaultInfo{{Name:\"\", UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

/// The identity of a service account.
fn service_account(bound: &Bound) -> User {
    let (name, uid) = &bound.account;
    let mut user = User::new(
        format!("{SERVICE_ACCOUNT_PREFIX}{}:{name}", bound.namespace),
        [
            SERVICE_ACCOUNTS.to_owned(),
            format!("{SERVICE_ACCOUNTS}:{}", bound.namespace),
        ],
    );
    user.uid = uid.clone();
    let mut set = |key: &str, value: &str| {
        user.extra
            .insert(format!("{EXTRA}{key}"), vec![value.to_owned()]);
    };
    if !bound.id.is_empty() {
        set("credential-id", &format!("JTI={}", bound.id));
    }
    for (kind, target) in [("pod", &bound.pod), ("node", &bound.node)] {
        if let Some((name, uid)) = target {
            set(&format!("{kind}-name"), name);
            // A pod may be bound to a node that does not exist.
            if !uid.is_empty() {
                set(&format!("{kind}-uid"), uid);
            }
        }
    }
    user
}

/// The account and what the token is bound to exist and are the same objects.
async fn still_there(core: &Core, bound: &Bound) -> Result<(), String> {
    let namespaced = |name: &str| format!("{}/{name}", bound.namespace);
    let mut targets = vec![(
        "serviceaccounts",
        namespaced(&bound.account.0),
        &bound.account.1,
    )];
    if let Some((name, uid)) = &bound.pod {
        targets.push(("pods", namespaced(name), uid));
    }
    if let Some((name, uid)) = &bound.secret {
        targets.push(("secrets", namespaced(name), uid));
    }
    // A token for a pod names its node only for information.
    if let (Some((name, uid)), None) = (&bound.node, &bound.pod) {
        targets.push(("nodes", name.clone(), uid));
    }
    for (collection, key, uid) in targets {
        let entry = core
            .backend
            .get(collection, &key)
            .await
            .map_err(|error| error.to_string())?;
        let found: Value = entry
            .and_then(|entry| serde_json::from_slice(&entry.value).ok())
            .unwrap_or(Value::Null);
        if found.is_null() || meta(&found, "uid") != uid {
            return Err("service account token has been invalidated".to_owned());
        }
    }
    Ok(())
}
