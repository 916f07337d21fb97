//! A page on the port of the API.

use std::sync::Arc;

use futures::StreamExt as _;
use http::Response;
use http::header::STRICT_TRANSPORT_SECURITY;
use http_body_util::BodyExt as _;

use super::{RemoteService, Server};
use crate::body::Body;
use crate::connections::Connection;
use crate::mount::{Handler, Mount, Page};

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
    pub(crate) fn mounted(&self, path: &str) -> Option<Handler> {
        let mount = self.0.mount.get().filter(|mount| mount.takes(path));
        mount.map(|mount| mount.handler.clone())
    }

    /// The answer of a mounted folder as one of the server: it ends with the server, and keeps its connection from being idle.
    pub(crate) fn page(
        &self,
        answer: Response<Page>,
        connection: &Arc<Connection>,
    ) -> Response<Body> {
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
        body.hold(Box::new(connection.request()));
        Response::from_parts(head, body)
    }
}
