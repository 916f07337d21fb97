//! A page on the port of the API.

use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _};
use http::header::STRICT_TRANSPORT_SECURITY;
use http::{Request, Response};
use http_body_util::BodyExt as _;

use super::{RemoteService, Server};
use crate::body::{Body, ReadDeadlines, text_response};
use crate::connections::InFlight;
use crate::mount::{Handler, Mount};
use crate::panics;
use crate::request::RequestInfo;

/// How many of its request time-outs the server gives a page to answer: the page itself asks the API, with time-outs of its
/// own, and may have to ask twice.
const PAGE_REQUESTS: u32 = 3;

impl Server {
    /// Serves a folder beside the API, over sockets only. The first one stays.
    pub fn mount(&self, mount: Mount) {
        let _first = self.0.mount.set(mount);
    }

    /// The server for a client in this process whose requests carry their own credentials: they are authenticated,
    /// limited and audited like those over a socket.
    pub fn remote_service(&self) -> RemoteService {
        RemoteService(self.clone())
    }

    /// What answers the requests of a path, if it is in the mounted folder.
    pub(super) fn mounted(&self, path: &str) -> Option<Handler> {
        let mount = self.0.mount.get().filter(|mount| mount.takes(path));
        mount.map(|mount| mount.handler.clone())
    }

    /// The answer of a mounted folder as one of the server: a panic or a handler that takes too long ends the request, a
    /// reader that does not read loses the answer, and the answer ends with the server.
    pub(super) async fn page(
        &self,
        handler: &Handler,
        request: Request<hyper::body::Incoming>,
        in_flight: &Arc<InFlight>,
    ) -> Response<Body> {
        let info = RequestInfo {
            verb: request.method().as_str().to_ascii_lowercase(),
            path: request.uri().path().to_owned(),
            ..RequestInfo::default()
        };
        let limits = &self.0.config.limits;
        // A handler may panic before it returns a future.
        let answer = async { handler(request).await }.boxed();
        let answer = panics::caught(&info, answer);
        let answer =
            match tokio::time::timeout(PAGE_REQUESTS * limits.request_timeout, answer).await {
                Ok(Some(answer)) => answer,
                Ok(None) => {
                    self.0.metrics.panicked();
                    return text_response(500, panics::ANSWER);
                }
                Err(_) => return text_response(504, "the page did not answer in time\n"),
            };
        let (mut head, body) = answer.into_parts();
        if let Some(directives) = &self.0.config.strict_transport_security {
            let value = directives.clone();
            head.headers.insert(STRICT_TRANSPORT_SECURITY, value);
        }
        // A page's stream has no end of its own at which the server could stop.
        let stop = self.0.shutdown.clone().cancelled_owned();
        let pieces = body.into_data_stream().take_until(Box::pin(stop));
        let pieces = pieces.map(|piece| piece.map_err(|never| match never {}));
        let mut body = Body::stream(pieces);
        body.hold(Box::new(in_flight.clone()));
        let body = body.paced(ReadDeadlines {
            stall: limits.stall_timeout,
            until: None,
            connection: Some(in_flight.connection.abort.clone()),
            account: Some(in_flight.account()),
            counters: self.0.counters.clone(),
        });
        Response::from_parts(head, body)
    }
}
