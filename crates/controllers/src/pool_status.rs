//! Answers ResourcePoolStatusRequests: how many devices of each pool are in use.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1alpha3::ResourcePoolStatusRequest;
use kube::Api;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use serde_json::json;

use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::clock::{Clock, until};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};

/// A request is answered at once; incomplete pools are waited for that many attempts, then reported.
const ATTEMPTS: u32 = 5;

struct Requests {
    client: kube::Client,
    clock: Clock,
    requests: Informer<ResourcePoolStatusRequest>,
    slices: Informer<ResourceSlice>,
    claims: Informer<ResourceClaim>,
    queue: Queue<Key>,
    processed: Counter,
    errors: Counter,
    duration: Histogram,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let this = Arc::new(Requests {
        client: context.client.clone(),
        clock: context.clock.clone(),
        requests: context.informer::<ResourcePoolStatusRequest>(),
        slices: context.informer::<ResourceSlice>(),
        claims: context.informer::<ResourceClaim>(),
        queue: context.queue("resourcepoolstatusrequest"),
        processed: Counter::default(),
        errors: Counter::default(),
        duration: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
    });
    let metrics = &context.metrics;
    let prefix = "resourcepoolstatusrequest_controller";
    metrics.register(
        &format!("{prefix}_requests_processed"),
        "Requests answered",
        this.processed.clone(),
    );
    metrics.register(
        &format!("{prefix}_request_processing_errors"),
        "Failed attempts",
        this.errors.clone(),
    );
    metrics.register(
        &format!("{prefix}_request_processing_duration_seconds"),
        "Time to answer",
        this.duration.clone(),
    );
    let queue = this.queue.clone();
    this.requests
        .on(move |change| queue.add(key_of(&**change.object())));
    let queue = this.queue.clone();
    Box::pin(queue.run(1, context.shutdown.clone(), move |key| {
        let this = this.clone();
        async move {
            let result = this.sync(&key).await;
            if result.is_err() {
                this.errors.inc();
            }
            result
        }
    }))
}

impl Requests {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(request) = self.requests.get(key) else {
            return Ok(Next::Done);
        };
        let now = self.clock.now();
        let expires = plan::expires(&request, now);
        let api: Api<ResourcePoolStatusRequest> = Api::all(self.client.clone());
        if expires <= now {
            api::delete(&api, key, meta::uid(&*request), Delete::default()).await?;
            return Ok(Next::Done);
        }
        let wait = Next::After(until(now, expires).max(Duration::from_secs(1)));
        if request.status.is_some() {
            return Ok(wait);
        }
        let start = std::time::Instant::now();
        let answer = plan::answer(&request.spec, &self.slices.list(), &self.claims.list(), now);
        if answer.incomplete > 0 && self.queue.failures(&key.to_owned()) < ATTEMPTS {
            return Err(Error::Invalid(
                "incomplete pools detected, requeueing".to_owned(),
            ));
        }
        let body = json!({"metadata": api::unchanged(&*request), "status": answer.status});
        match api::patch(&api, key, Part::Status, &body).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        self.processed.inc();
        self.duration.observe(start.elapsed().as_secs_f64());
        Ok(wait)
    }
}
