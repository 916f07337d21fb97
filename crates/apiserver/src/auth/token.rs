//! Service-account tokens: signed JSON web tokens, bound to their account and optionally to a pod or node.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::config::AccountTokens;
use crate::identity::SERVICE_ACCOUNT_PREFIX;
use crate::keys::{TokenKey, VerifyingKey};

/// Seconds by which clocks may differ, and for which what a token is bound to may still be deleted; as upstream.
pub(super) const LEEWAY: i64 = 60;

/// The longest life of a token that can be requested, in seconds.
pub const LONGEST_SECONDS: i64 = 1 << 32;

/// Signs and verifies.
pub struct Signer {
    key: TokenKey,
    /// The keys whose tokens are accepted.
    accepted: Vec<VerifyingKey>,
    options: AccountTokens,
}

/// Why a token does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not one of ours.
    #[error("invalid bearer token")]
    Foreign,
    /// Signature or form are wrong.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Invalid,
    /// No key has the name that is in the token.
    #[error("invalid signature, no keys found")]
    UnknownKey,
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("service account token is not valid yet")]
    Early,
    /// Its issue time is in the future.
    #[error("service account token is issued in the future")]
    Future,
    /// The key cannot be used.
    #[error("service account key: {0}")]
    Key(String),
}

/// The objects that a service account token is bound to. It is valid only as long as these exist (KEP 1205).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bound {
    /// Namespace of the account.
    pub namespace: String,
    /// Name and uid of the account.
    pub account: (String, String),
    /// Name and uid of a pod.
    pub pod: Option<(String, String)>,
    /// Name and uid of a node.
    pub node: Option<(String, String)>,
    /// Name and uid of a secret.
    pub secret: Option<(String, String)>,
    /// The servers for which the token is valid.
    pub audiences: Vec<String>,
    /// Identifies this token.
    pub id: String,
    /// A proven token has the longest life that can be requested, as those that the controller of service accounts writes
    /// into secrets.
    pub lasts: bool,
    /// The time, in seconds since 1970, after which its use is noted.
    pub noted_after: Option<i64>,
}

/// How long a token is good, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Life {
    /// Until it ends.
    pub seconds: i64,
    /// Until its use is noted, if that is earlier.
    pub noted_after: Option<i64>,
}

impl Bound {
    /// The user name of the account.
    pub fn subject(&self) -> String {
        let (name, _) = &self.account;
        format!("{SERVICE_ACCOUNT_PREFIX}{}:{name}", self.namespace)
    }
}

impl Signer {
    /// A signer with the configured keys, or with a new one.
    ///
    /// # Errors
    /// [`TokenError::Key`].
    pub fn new(options: &AccountTokens) -> Result<Self, TokenError> {
        let key = match &options.signing_key {
            Some(key) => key.clone(),
            None => TokenKey::generate().map_err(TokenError::Key)?,
        };
        let mut accepted = options.keys.clone();
        // What this server signs with a key of its own it also accepts. A key that was chosen has to be among the accepted ones.
        if accepted.is_empty() || !options.key_is_chosen && !accepted.contains(key.public()) {
            accepted.push(key.public().clone());
        }
        Ok(Signer {
            key,
            accepted,
            options: options.clone(),
        })
    }

    /// What was configured.
    pub fn options(&self) -> &AccountTokens {
        &self.options
    }

    /// A token that is valid from now (seconds since 1970).
    ///
    /// # Errors
    /// [`TokenError::Key`] if signing fails.
    pub fn sign(&self, bound: &Bound, now: i64, life: Life) -> Result<String, TokenError> {
        let reference = |(name, uid): &(String, String)| json!({"name": name, "uid": uid});
        let mut private = json!({
            "namespace": bound.namespace, "serviceaccount": reference(&bound.account),
        });
        for (key, target) in [
            ("pod", &bound.pod),
            ("node", &bound.node),
            ("secret", &bound.secret),
        ] {
            if let Some(target) = target {
                private[key] = reference(target);
            }
        }
        if let Some(seconds) = life.noted_after {
            private["warnafter"] = (now + seconds).into();
        }
        let claims = json!({
            "iss": self.options.issuer(), "aud": bound.audiences, "iat": now, "nbf": now, "exp": now + life.seconds,
            "jti": bound.id, "sub": bound.subject(),
            "kubernetes.io": private,
        });
        let public = self.key.public();
        let header = json!({"alg": public.algorithm(), "kid": public.id()});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self.key.sign(text.as_bytes()).map_err(TokenError::Key)?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token, if its signature is valid and it is valid at `now`.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn verify(&self, token: &str, now: i64) -> Result<Bound, TokenError> {
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Foreign);
        };
        let decode = |part: &str| {
            let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
            serde_json::from_slice::<Value>(&bytes).ok()
        };
        let parsed = decode(claims).ok_or(TokenError::Foreign)?;
        let issuer = parsed["iss"].as_str().unwrap_or_default();
        if !self.options.issuers.iter().any(|known| known == issuer) {
            return Err(TokenError::Foreign);
        }
        let head = decode(header).ok_or(TokenError::Foreign)?;
        self.check_signature(&head, &format!("{header}.{claims}"), signature)?;
        let number = |key: &str| parsed[key].as_i64();
        if number("nbf").is_some_and(|start| now.saturating_add(LEEWAY) < start) {
            return Err(TokenError::Early);
        }
        if number("exp").is_none_or(|end| now.saturating_sub(LEEWAY) > end) {
            return Err(TokenError::Expired);
        }
        if number("iat").is_some_and(|made| now.saturating_add(LEEWAY) < made) {
            return Err(TokenError::Future);
        }
        let longest = self.options.max_seconds.unwrap_or(LONGEST_SECONDS);
        let life = number("exp").zip(number("iat"));
        let life = life.map_or(0, |(end, made)| end.saturating_sub(made));
        let private = &parsed["kubernetes.io"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let reference = |key: &str| {
            private[key]
                .is_object()
                .then(|| (text(&private[key]["name"]), text(&private[key]["uid"])))
        };
        let audiences = match &parsed["aud"] {
            Value::String(one) => vec![one.clone()],
            list => crate::object::strings(list),
        };
        Ok(Bound {
            namespace: text(&private["namespace"]),
            account: reference("serviceaccount").ok_or(TokenError::Invalid)?,
            pod: reference("pod"),
            node: reference("node"),
            secret: reference("secret"),
            audiences,
            id: text(&parsed["jti"]),
            lasts: life >= longest.min(LONGEST_SECONDS),
            noted_after: private["warnafter"].as_i64().filter(|time| *time != 0),
        })
    }

    /// One of the accepted keys has signed the text: the one that the head of the token names, or any if it names none.
    fn check_signature(&self, head: &Value, text: &str, sent: &str) -> Result<(), TokenError> {
        // An extension that has to be understood.
        if !head["crit"].is_null() {
            return Err(TokenError::Invalid);
        }
        let sent = URL_SAFE_NO_PAD.decode(sent);
        let sent = sent.map_err(|_| TokenError::Invalid)?;
        let algorithm = head["alg"].as_str().unwrap_or_default();
        let named = head["kid"].as_str().unwrap_or_default();
        let keys = self.accepted.iter();
        let mut keys = keys
            .filter(|key| named.is_empty() || key.id() == named)
            .peekable();
        if keys.peek().is_none() {
            return Err(TokenError::UnknownKey);
        }
        match keys.any(|key| key.verifies(algorithm, text.as_bytes(), &sent)) {
            true => Ok(()),
            false => Err(TokenError::Invalid),
        }
    }

    /// The accepted keys as `/openid/v1/jwks` shows them.
    pub fn jwks(&self) -> Value {
        let keys: Vec<Value> = self.accepted.iter().map(VerifyingKey::document).collect();
        json!({"keys": keys})
    }

    /// The document by which others find the keys; none if the issuer has no such form (OpenID Connect Discovery 1.0). `host` is
    /// where this server is reached.
    pub fn discovery(&self, host: &str) -> Option<Value> {
        let issuer = self.options.issuer();
        let rest = issuer.strip_prefix("https://")?;
        if rest.contains(['?', '#']) {
            return None;
        }
        let mut algorithms: Vec<&str> = self.accepted.iter().map(|key| key.algorithm()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let keys = match &self.options.keys_uri {
            Some(uri) => uri.clone(),
            None if host.is_empty() => format!("{issuer}/openid/v1/jwks"),
            None => format!("https://{host}/openid/v1/jwks"),
        };
        Some(json!({
            "issuer": issuer, "jwks_uri": keys, "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": algorithms,
        }))
    }
}
