//! Writes of whole objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allot_apimachinery::lean::Keep;
use allot_apimachinery::quote::go_json_bytes;
use allot_schema::protobuf;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use kube::client::Body;
use kube::{Client, Error};
use serde_json::Value;

use crate::read::Readable;
use crate::wire::{self, JSON, PROTOBUF};

/// Writes whole objects. An object is sent in protobuf if the server's last response was in protobuf and this release
/// knows all fields of the object, otherwise in JSON.
#[derive(Clone)]
pub struct Writes {
    client: Client,
    binary: Arc<AtomicBool>,
}

impl Writes {
    /// Writes with this client.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            binary: Arc::default(),
        }
    }

    /// Sends an object, and returns the one in the response.
    ///
    /// # Errors
    /// As [`crate::request`].
    pub async fn send<K: Readable>(
        &self,
        method: Method,
        url: &str,
        object: &Value,
        keep: Keep,
    ) -> Result<K, Error> {
        let text = wire::in_time(async {
            let answer = self.write(method, url, object, K::PROTOBUF).await?;
            wire::text(answer, keep, wire::LARGEST_OBJECT).await
        });
        K::read(&text.await?, keep).map_err(Error::SerdeError)
    }

    /// Like [`Writes::send`], without decoding the response.
    ///
    /// # Errors
    /// The response of the server, or the error if it has more than 64 MiB or does not end within five minutes.
    pub async fn send_only(&self, method: Method, url: &str, object: &Value) -> Result<(), Error> {
        let body = wire::in_time(async {
            let answer = self.write(method, url, object, true).await?;
            wire::collect(answer.into_body(), wire::LARGEST_OBJECT).await
        });
        body.await.map(drop)
    }

    async fn write(
        &self,
        method: Method,
        url: &str,
        object: &Value,
        binary: bool,
    ) -> Result<Response<Body>, Error> {
        let raw = |out: &mut Vec<u8>, value: &Value| out.extend(go_json_bytes(value));
        let message = match self.binary.load(Ordering::Relaxed) {
            true if protobuf::is_whole(object) => protobuf::encode(object, raw),
            _ => None,
        };
        if let Some(message) = message {
            match self
                .request(method.clone(), url, PROTOBUF, message, binary)
                .await
            {
                // The server writes protobuf, but does not read it.
                Err(Error::Api(status)) if status.code == 415 => {
                    self.binary.store(false, Ordering::Relaxed);
                }
                other => return other,
            }
        }
        self.request(method, url, JSON, go_json_bytes(object), binary)
            .await
    }

    /// Sends a body with this content type.
    async fn request(
        &self,
        method: Method,
        url: &str,
        kind: &'static str,
        body: Vec<u8>,
        binary: bool,
    ) -> Result<Response<Body>, Error> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header(CONTENT_TYPE, kind)
            .body(body)
            .map_err(Error::HttpError)?;
        let answer = wire::send(&self.client, request, binary).await?;
        if binary {
            self.binary
                .store(wire::is_binary(&answer), Ordering::Relaxed);
        }
        Ok(answer)
    }
}
