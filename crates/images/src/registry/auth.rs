//! Authorization as registries require it: by password, or by a token from another server.

use base64::Engine as _;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde::Deserialize;
use url::Url;

use super::{Body, Registry, leads_here, status_text};
use crate::{Error, Result};

/// Longest answer of a token server.
const MAX_TOKEN: u64 = 64 << 10;
/// Challenges in one answer.
const MAX_CHALLENGES: usize = 8;

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl Registry {
    /// Answers the challenges of a server: the value for the header `Authorization`.
    pub(super) async fn authorize(
        &self,
        challenges: &[String],
        scope: &str,
        what: &str,
    ) -> Result<HeaderValue> {
        let refused = |reason: &str| Error::Unauthorized(what.to_owned(), reason.to_owned());
        let mut basic = false;
        for text in challenges.iter().take(MAX_CHALLENGES) {
            let Ok(parsed) = http_auth::parse_challenges(text) else {
                continue;
            };
            for challenge in parsed {
                if challenge.scheme.eq_ignore_ascii_case("bearer") {
                    let parameter = |wanted: &str| {
                        let mut parameters = challenge.params.iter();
                        let found = parameters.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
                        found.map(|(_, value)| value.to_unescaped())
                    };
                    let realm = parameter("realm")
                        .ok_or_else(|| refused("the server names no token server"))?;
                    let scope = parameter("scope").unwrap_or_else(|| scope.to_owned());
                    return self.token(&realm, parameter("service"), &scope, what).await;
                }
                basic |= challenge.scheme.eq_ignore_ascii_case("basic");
            }
        }
        match &self.credential {
            _ if !basic => Err(refused("401 Unauthorized")),
            None => Err(refused("no basic auth credentials")),
            Some(credential) => basic_header(&credential.username, &credential.password)
                .ok_or_else(|| refused("the credentials can not be sent")),
        }
    }

    /// Requests a token from a token server. Its address comes from the registry; the password is sent only over TLS,
    /// unless the registry itself is used without.
    async fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: &str,
        what: &str,
    ) -> Result<HeaderValue> {
        let refused = |reason: String| Error::Unauthorized(what.to_owned(), reason);
        let mut url = Url::parse(realm)
            .map_err(|_| refused("the token server has no valid address".to_owned()))?;
        let local = leads_here(&url) && !leads_here(&self.url("")?);
        match url.scheme() {
            "https" if !local => {}
            "http" if !local && self.endpoint.plain_http => {}
            _ => {
                return Err(refused(
                    "the token server's address is not acceptable".to_owned(),
                ));
            }
        }
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = &service {
                query.append_pair("service", service);
            }
            query.append_pair("scope", scope);
        }
        let mut headers = Vec::new();
        if let Some(credential) = &self.credential
            && let Some(value) = basic_header(&credential.username, &credential.password)
        {
            headers.push((AUTHORIZATION, value));
        }
        let response = self.send(&url, headers).await?;
        let status = response.status();
        let mut body = Body::new(
            response.into_body(),
            &super::authority(&url),
            &self.timeouts,
        );
        if !status.is_success() {
            let codes = body.error_codes().await;
            return Err(refused(format!(
                "failed to fetch token: {}",
                status_text(status, &codes)
            )));
        }
        let content = body.collect(MAX_TOKEN).await?;
        let token: Option<Token> = serde_json::from_slice(&content).ok();
        let token = token.and_then(|token| {
            token
                .token
                .filter(|token| !token.is_empty())
                .or(token.access_token)
        });
        let value = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let mut value =
            value.ok_or_else(|| refused("the token server gave no token".to_owned()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

fn basic_header(username: &str, password: &str) -> Option<HeaderValue> {
    let encoded =
        base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
    let mut value = HeaderValue::try_from(format!("Basic {encoded}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
