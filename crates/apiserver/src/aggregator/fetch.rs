//! Documents that the server itself reads from extension API servers.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::Full;

use super::head;
use crate::extensions::{Extension, Failure};
use crate::identity::User;
use crate::state::ServerState;

/// A document to get.
pub(super) struct Get<'a> {
    pub path: &'a str,
    /// What `Accept` says; without it the service answers as it likes.
    pub accept: Option<&'static str>,
    /// The tag of the document that is known already.
    pub known: Option<&'a HeaderValue>,
    /// The user that asks for it.
    pub user: &'a User,
    /// The most bytes of it.
    pub most: usize,
    /// The time for all of it.
    pub time: Duration,
}

/// What a service answers.
pub(super) struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Get<'_> {
    /// Asks an extension for the document.
    ///
    /// # Errors
    /// See [`Failure`]: also for a document that is longer, or takes longer, than it may.
    pub(super) async fn from(
        self,
        core: &ServerState,
        extension: &Extension,
    ) -> Result<Answer, Failure> {
        let failed = |text: &str| Failure::Exchange(text.to_owned());
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = self.path.parse().map_err(|_| failed("invalid path"))?;
        let headers = request.headers_mut();
        if let Some(accept) = self.accept {
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        if let Some(known) = self.known {
            headers.insert(IF_NONE_MATCH, known.clone());
        }
        head::name_user(headers, self.user).map_err(failed)?;
        head::pass(headers, &core.extensions.own_name);
        let exchange = async {
            let (response, exchange) = extension.client.send(&*core.backend, request).await?;
            let (head, body) = response.into_parts();
            let body = exchange.whole(body, self.most).await;
            let body = body.ok_or_else(|| failed("the document is incomplete or too large"))?;
            Ok(Answer {
                code: head.status.as_u16(),
                headers: head.headers,
                body,
            })
        };
        tokio::time::timeout(self.time, exchange)
            .await
            .unwrap_or_else(|_| {
                Err(failed(
                    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
                ))
            })
    }
}
