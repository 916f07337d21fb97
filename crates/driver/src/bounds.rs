//! What an API server can make a driver spend: the size of its answers, and the time until they are complete.
//!
//! A driver has little memory, and the pods of the node wait for it. An API server that is broken, or another program in its place,
//! must not end it: requests fail then, and are repeated later.

use std::time::Duration;

use http::Request;
use http_body_util::Limited;
use kube::Client;
use kube::client::Body;

/// The largest answer. All slices that one driver has on a node are less, a claim is at most a few megabytes.
pub(crate) const LARGEST_ANSWER: usize = 64 << 20;
/// How long an answer may take, from the request to its last byte. In calls of the kubelet the limit is lower.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A client whose answers end with an error after [`LARGEST_ANSWER`]. So does a watch, which continues with another request.
pub(crate) fn bounded(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let answer = client.send(request).await?;
            Ok::<_, kube::Error>(answer.map(|body| Limited::new(body, LARGEST_ANSWER)))
        }
    });
    Client::new(service, namespace)
}
