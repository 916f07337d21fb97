//! Pages beside the API, on its port.
//!
//! Their requests are not the API's: they reach the handler before authentication, and without the identity of a client
//! certificate, which a browser would send for any page. What a page wants of the API, its handler requests with the
//! credentials that the page sent ([`crate::Server::remote_service`]).

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

/// The body of a page's answer.
pub type Page = UnsyncBoxBody<Bytes, Infallible>;

/// Answers the requests of a folder.
pub type Handler =
    Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Page>> + Send + Sync>;

/// A folder of the port that is not part of the API.
pub struct Mount {
    folder: &'static str,
    pub(crate) handler: Handler,
}

impl Mount {
    /// The folder, such as `/dashboard`, with everything below.
    pub fn new(folder: &'static str, handler: Handler) -> Self {
        Self { folder, handler }
    }

    /// Whether a path is in the folder, as written: nothing is decoded or resolved first.
    pub(crate) fn takes(&self, path: &str) -> bool {
        let below = path.strip_prefix(self.folder);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn only_the_folder_is_taken() {
        let unused: Handler = Arc::new(|_| futures::future::pending().boxed());
        let mount = Mount::new("/dashboard", unused);
        for path in ["/dashboard", "/dashboard/", "/dashboard/../api"] {
            assert!(mount.takes(path), "{path}");
        }
        for path in [
            "/",
            "/api",
            "/dashboards",
            "/dashboard%2f",
            "/Dashboard",
            "//dashboard",
            "/api/../dashboard",
            "/api/v1/dashboard",
        ] {
            assert!(!mount.takes(path), "{path}");
        }
    }
}
