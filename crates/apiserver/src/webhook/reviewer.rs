//! Webhooks of authentication and authorization, which kubeconfigs name: they are sent a review and return it with its status.

use std::sync::Arc;
use std::time::Duration;

use allot_certificates::Trust;
use allot_store::Backend;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, header};
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Client, PORT, refusal};
use crate::config::{Credential, Kubeconfig, Trusted};
use crate::limits::for_call;
use crate::pki::Identity;
use crate::remote;

/// The times of a call that failed in passing, as upstream.
const MOST_CALLS: u32 = 5;
/// The wait before the second call, and by what it grows.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const GROWTH: f64 = 1.5;
/// The part of a wait that is random.
const JITTER: f64 = 0.2;
/// The time of all calls about one request that has no limit of its own.
const LONGEST: Duration = Duration::from_secs(60);
/// The largest file of a token.
const LARGEST_TOKEN: u64 = 64 << 10;

/// A webhook that is sent reviews.
pub(crate) struct Reviewer {
    client: Client,
    /// Its URL in errors.
    shown: String,
    credential: Credential,
    timeout: Duration,
    /// The wait before the second call.
    first_wait: Duration,
}

/// Why there is no review.
#[derive(Debug)]
pub(crate) struct ReviewError {
    /// The error, with Go's wording if available.
    pub text: String,
    /// The webhook has taken too long.
    pub timed_out: bool,
}

impl Reviewer {
    /// Of a kubeconfig. `timeout` is the time of one call.
    ///
    /// # Errors
    /// Authorities, certificates or keys cannot be used.
    pub fn new(kubeconfig: &Kubeconfig, timeout: Duration) -> Result<Self, String> {
        let server = &kubeconfig.server;
        let is_plain = server.scheme_str() == Some("http");
        let host = server.host().unwrap_or_default().to_owned();
        let target = server.path_and_query().map_or("/", |it| it.as_str());
        let client = Client {
            port: server
                .port_u16()
                .unwrap_or(if is_plain { 80 } else { PORT }),
            path: target.to_owned(),
            service: None,
            bundle: Vec::new(),
            user: None,
            tls: Ok(match is_plain {
                true => None,
                false => Some(tls(kubeconfig)?),
            }),
            server_name: kubeconfig
                .server_name
                .clone()
                .unwrap_or_else(|| host.clone()),
            agent: "kube-apiserver",
            idle: Mutex::default(),
            host,
        };
        Ok(Reviewer {
            shown: server.to_string(),
            client,
            credential: kubeconfig.credential.clone(),
            timeout,
            first_wait: FIRST_WAIT,
        })
    }

    /// With another wait before the second call about a review.
    pub fn waiting(mut self, first_wait: Duration) -> Self {
        self.first_wait = first_wait;
        self
    }

    /// Sends a review and returns the `status` of the answer. Failures that may be over soon are tried again.
    ///
    /// # Errors
    /// There is no answer in time, or it is not the review.
    pub async fn review<S: DeserializeOwned + Default>(
        &self,
        backend: &dyn Backend,
        review: &Value,
    ) -> Result<S, ReviewError> {
        let body = Bytes::from(review.to_string());
        let attempts = async {
            let (mut wait, mut calls) = (self.first_wait, 1);
            loop {
                let (error, is_passing) = match self.call(backend, body.clone()).await {
                    Ok(body) => return self.read(review, &body),
                    Err(failed) => failed,
                };
                if !is_passing || calls == MOST_CALLS {
                    return Err(error);
                }
                calls += 1;
                tokio::time::sleep(wait.mul_f64(1.0 + JITTER * rand::random::<f64>())).await;
                wait = wait.mul_f64(GROWTH);
            }
        };
        let attempts = tokio::time::timeout(for_call(LONGEST), attempts);
        attempts.await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    fn failed(&self, why: &str) -> ReviewError {
        ReviewError {
            text: format!("Post \"{}\": {why}", self.shown),
            timed_out: false,
        }
    }

    fn timed_out(&self) -> ReviewError {
        ReviewError {
            timed_out: true,
            ..self.failed("context deadline exceeded")
        }
    }

    /// The body of an answer, or the error and whether it may be over soon.
    async fn call(&self, backend: &dyn Backend, body: Bytes) -> Result<Bytes, (ReviewError, bool)> {
        let exchange = async {
            let authorization = self.authorization().await?;
            let authorization = authorization.map(|value| (header::AUTHORIZATION, value));
            let headers = authorization.into_iter().collect();
            let target = &self.client.path;
            self.client.exchange(backend, target, &headers, body).await
        };
        let outcome = tokio::time::timeout(for_call(self.timeout), exchange).await;
        let (code, body) = match outcome {
            Err(_) => return Err((self.timed_out(), false)),
            Ok(Err(error)) => return Err((self.failed(&error.text), error.is_reset)),
            Ok(Ok(answer)) => answer,
        };
        match refusal(code, &body) {
            None => Ok(body),
            Some(text) => {
                let timed_out = code == 504;
                let error = ReviewError { text, timed_out };
                Err((error, matches!(code, 429 | 500 | 504)))
            }
        }
    }

    fn read<S: DeserializeOwned + Default>(
        &self,
        review: &Value,
        body: &[u8],
    ) -> Result<S, ReviewError> {
        let garbled = |error: serde_json::Error| self.failed(&format!("json parse error: {error}"));
        // Not the type at once: that would also be read out of a list.
        let mut read: Map<String, Value> = serde_json::from_slice(body).map_err(garbled)?;
        for key in ["kind", "apiVersion"] {
            let found = read.get(key).unwrap_or(&Value::Null);
            if !found.is_null() && found != "" && *found != review[key] {
                let found = found.to_string();
                let found = super::excerpt(&found);
                let why = format!("expected {key} {} and got {found}", review[key]);
                return Err(self.failed(&why));
            }
        }
        match read.remove("status").unwrap_or_default() {
            Value::Null => Ok(S::default()),
            status @ Value::Object(_) => serde_json::from_value(status).map_err(garbled),
            _ => Err(self.failed("the status is no object")),
        }
    }

    async fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let text = match &self.credential {
            Credential::None => return Ok(None),
            Credential::Token(token) => format!("Bearer {}", token.trim()),
            Credential::TokenFile(file) => {
                let unreadable = |error: std::io::Error| format!("tokenFile: {error}");
                let size = tokio::fs::metadata(file).await.map_err(unreadable)?.len();
                if size > LARGEST_TOKEN {
                    return Err("tokenFile: it is too large".to_owned());
                }
                let token = tokio::fs::read_to_string(file).await.map_err(unreadable)?;
                format!("Bearer {}", token.trim())
            }
            Credential::Basic(name, password) => {
                format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
            }
        };
        let mut value = HeaderValue::try_from(text)
            .map_err(|_| "the token of the kubeconfig has characters that headers cannot have")?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn tls(kubeconfig: &Kubeconfig) -> Result<Arc<ClientConfig>, String> {
    let own = kubeconfig
        .client
        .as_ref()
        .map(|(certificate, key)| Identity {
            certificate: certificate.clone(),
            key: key.clone(),
        });
    match &kubeconfig.trusted {
        Trusted::System => remote::tls(&[], own.as_ref()),
        Trusted::Pem(bundle) => remote::tls(bundle, own.as_ref()),
        Trusted::Anything => remote::tls_unverified(own.as_ref()),
        Trusted::File(file) => {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let trust = Trust::of_file(file.clone(), provider.clone())?;
            let own = own
                .as_ref()
                .map(|it| (it.certificate.as_str(), it.key.as_str()));
            remote::client(provider, Arc::new(trust), own)
        }
    }
}
