//! Receiving the body of a request.
//!
//! A request has a seat among the requests in flight before its body is read, so that bodies are received only where
//! the authorizer permits the request. A client that sends its body slowly, or not at all, must not keep the seat
//! meanwhile: a few hundred such requests would lock out all others.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body::Body as HttpBody;

use super::{Exchange, Server};
use crate::aggregator;
use crate::body::Body;
use crate::error::Result;
use crate::extensions::Extension;
use crate::flow::{Seat, refusal};
use crate::identity::MASTERS;
use crate::limits::timed_out;
use crate::request::is_long_running;
use crate::upload::Upload;

impl Server {
    /// The answer of an extension API server.
    ///
    /// # Errors
    /// As for [`Server::receive`] and [`aggregator::answer`].
    pub(super) async fn by_extension<B>(
        &self,
        exchange: &mut Exchange,
        upload: &mut Upload<B>,
        extension: &Extension,
    ) -> Result<Response<Body>>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let body = match exchange.request.method {
            Method::GET | Method::HEAD => Bytes::new(),
            _ => match self.receive(exchange, upload).await? {
                Ok(body) => body,
                Err(refused) => return Ok(refused),
            },
        };
        let Exchange {
            request,
            audit,
            seat,
            ..
        } = exchange;
        if let Some(trail) = audit {
            trail.sent(&body);
        }
        let id = audit.as_ref().map(|trail| trail.id());
        if request.info.verb == "watch" {
            // As upstream (`RequestDelegated`): the service may never answer, and a watch has no time limit.
            *seat = None;
        }
        aggregator::answer(&self.0, request, extension, body, id).await
    }

    /// The body of a request. If it takes longer than a moment the seat is given up, and taken again when the body is
    /// there; the inner error is the answer if there is no seat or too many wait like this.
    ///
    /// # Errors
    /// 413 and 400 for the body, 504 after the time limit.
    pub(super) async fn receive<B>(
        &self,
        exchange: &mut Exchange,
        upload: &mut Upload<B>,
    ) -> Result<Result<Bytes, Response<Body>>>
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let core = &self.0;
        let limits = &core.config.limits;
        let reading = tokio::time::timeout(limits.request_timeout, upload.read());
        let mut reading = std::pin::pin!(reading);
        if exchange.request.user.in_group(MASTERS) {
            return reading.await.unwrap_or_else(|_| Err(timed_out())).map(Ok);
        }
        let seated = matches!(exchange.seat, Some(Seat::InFlight(..) | Seat::Level(_)));
        let moment = match is_long_running(&exchange.request.info) {
            // Any number of them may run: what they send must be there, or is counted at once.
            true => Duration::ZERO,
            false => limits.seated_upload,
        };
        if let Ok(read) = tokio::time::timeout(moment, &mut reading).await {
            return read.unwrap_or_else(|_| Err(timed_out())).map(Ok);
        }
        let Some(_waits) = core.slow_uploads.take(&exchange.request.user) else {
            return Ok(Err(refusal()));
        };
        exchange.seat = None;
        let body = reading.await.unwrap_or_else(|_| Err(timed_out()))?;
        if !seated {
            return Ok(Ok(body));
        }
        let Exchange {
            request,
            flow,
            seat,
            ..
        } = exchange;
        match core.flow.enter(core, request, flow).await {
            Ok(given) => *seat = Some(given),
            Err(refused) => return Ok(Err(refused)),
        }
        Ok(Ok(body))
    }
}
