//! Service-account tokens: ES256 JSON web tokens, bound to their account and optionally to a pod or node.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use serde_json::{Value, json};

/// Seconds by which clocks may differ, and for which what a token is bound to may still be deleted; as upstream.
pub(super) const LEEWAY: i64 = 60;

/// Signs and verifies.
pub struct Signer {
    key: EcdsaKeyPair,
    key_id: String,
    issuer: String,
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
}

impl Signer {
    /// A signer with a PKCS#8 key, or a new one.
    ///
    /// # Errors
    /// [`TokenError::Key`].
    pub fn new(pkcs8: Option<&[u8]>, issuer: &str) -> Result<Self, TokenError> {
        let random = SystemRandom::new();
        let bad = |error: &dyn std::fmt::Display| TokenError::Key(error.to_string());
        let generated;
        let bytes = match pkcs8 {
            Some(bytes) => bytes,
            None => {
                generated = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
                    .map_err(|error| bad(&error))?;
                generated.as_ref()
            }
        };
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, bytes, &random)
            .map_err(|error| bad(&error))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key().as_ref());
        let key_id = URL_SAFE_NO_PAD.encode(digest);
        Ok(Signer {
            key,
            key_id,
            issuer: issuer.to_owned(),
        })
    }

    /// A token that is valid from now (seconds since 1970) for some seconds.
    ///
    /// # Errors
    /// [`TokenError::Key`] if signing fails.
    pub fn sign(&self, bound: &Bound, now: i64, seconds: i64) -> Result<String, TokenError> {
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
        let claims = json!({
            "iss": self.issuer, "aud": bound.audiences, "iat": now, "nbf": now, "exp": now + seconds,
            "jti": bound.id, "sub": format!("system:serviceaccount:{}:{}", bound.namespace, bound.account.0),
            "kubernetes.io": private,
        });
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self
            .key
            .sign(&SystemRandom::new(), text.as_bytes())
            .map_err(|error| TokenError::Key(error.to_string()))?;
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
            URL_SAFE_NO_PAD
                .decode(part)
                .map_err(|_| TokenError::Foreign)
        };
        let parsed: Value =
            serde_json::from_slice(&decode(claims)?).map_err(|_| TokenError::Foreign)?;
        if parsed["iss"] != self.issuer.as_str() {
            return Err(TokenError::Foreign);
        }
        let public =
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        let signed = format!("{header}.{claims}");
        public
            .verify(
                signed.as_bytes(),
                &URL_SAFE_NO_PAD
                    .decode(signature)
                    .map_err(|_| TokenError::Invalid)?,
            )
            .map_err(|_| TokenError::Invalid)?;
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
        })
    }

    /// The public key as `/openid/v1/jwks` shows it.
    pub fn jwks(&self) -> Value {
        // Uncompressed point: 0x04, x, y.
        let point = self.key.public_key().as_ref();
        let (x, y) = point[1..].split_at((point.len() - 1) / 2);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }]})
    }

    /// The issuer that tokens name.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }
}
