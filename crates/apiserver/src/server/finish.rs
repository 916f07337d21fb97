//! From the result of a request to the answer that is sent: headers of filters, audit log, metrics, pace.

use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{Method, Response};
use tokio::time::Instant;

use super::{Exchange, Server};
use crate::body::{Body, ReadDeadlines};
use crate::connections::InFlight;
use crate::error::{ApiError, Result};
use crate::flow::Seat;
use crate::health;
use crate::limits::CHUNK;
use crate::negotiate::{MediaType, Offer, negotiate};
use crate::request::{Incoming, RequestInfo};

impl Server {
    /// The answer as it is sent: with the headers of filters, in the audit log and the metrics, at the pace of its
    /// client.
    pub(super) async fn finish(
        &self,
        exchange: Exchange,
        result: Result<Response<Body>>,
        started: Instant,
    ) -> Response<Body> {
        let Exchange {
            request,
            denied,
            in_flight,
            flow,
            seat,
            audit,
            ..
        } = exchange;
        let info = Arc::clone(&request.info);
        let mut response = match result {
            Ok(response) => response,
            Err(error) => error_response(&error, &request),
        };
        if denied {
            response.headers_mut().insert(
                http::header::X_CONTENT_TYPE_OPTIONS,
                http::HeaderValue::from_static("nosniff"),
            );
        }
        if request.method == Method::HEAD {
            response = without_body(response);
        }
        if let Some(trail) = audit {
            crate::audit::write_id(response.headers_mut(), trail.id());
            trail.answered(&mut response, &request.annotations);
        } else if !request.in_process {
            let id = crate::audit::id(&request.headers);
            crate::audit::write_id(response.headers_mut(), &id);
        }
        if let Some(classified) = &flow {
            classified.write_to(response.headers_mut());
        }
        // A watch has a seat until it has begun, a small answer until it is made, a large one until it has been sent. A
        // small answer beyond what its connection can hold has its seat as long as a large one.
        let seat = seat.filter(|_| info.verb != "watch");
        if response.status().is_success()
            && let Some(watching) = self.0.flow.watching(&request)
        {
            response.body_mut().hold(Box::new(watching));
        }
        if !request.in_process {
            response = self.paced(response, &request, in_flight, seat).await;
        }
        self.0.metrics.answered(
            &request,
            self.is_known(&info),
            response.status().as_u16(),
            started.elapsed(),
        );
        request.warnings.write_to(response.headers_mut());
        self.add_common_headers(&info, &mut response);
        response
    }

    /// Whether the request is for a resource and subresource that exist: metrics name no others.
    fn is_known(&self, info: &RequestInfo) -> bool {
        let registry = self.0.registry.load();
        let resource = registry.get(&info.group, &info.resource);
        info.is_resource
            && resource.is_some_and(|resource| {
                resource.version(&info.version).is_some()
                    && (info.subresource.is_empty()
                        || resource.subresource(&info.subresource).is_some())
            })
    }

    /// The headers of every answer: for how long it may be kept, and `--strict-transport-security-directives`.
    fn add_common_headers(&self, info: &RequestInfo, response: &mut Response<Body>) {
        let kept = match health::may_be_kept(&info.path) && response.status().is_success() {
            true => "public, max-age=3600",
            false => "no-cache, private",
        };
        response.headers_mut().insert(
            http::header::CACHE_CONTROL,
            http::HeaderValue::from_static(kept),
        );
        if let Some(directives) = &self.0.config.strict_transport_security {
            response
                .headers_mut()
                .insert(http::header::STRICT_TRANSPORT_SECURITY, directives.clone());
        }
    }

    /// The answer with an eye on how fast its client takes it.
    async fn paced(
        &self,
        mut response: Response<Body>,
        request: &Incoming,
        in_flight: Option<Arc<InFlight>>,
        seat: Option<Seat>,
    ) -> Response<Body> {
        let abort = in_flight.as_ref().map(|it| it.connection.abort.clone());
        let account = in_flight.as_ref().map(|it| it.account());
        let whole = response.body().whole_size();
        if whole.is_some_and(|size| size <= CHUNK) {
            let (Some(in_flight), Some(account)) = (&in_flight, &account) else {
                return response;
            };
            if response.body_mut().count(account) {
                response.body_mut().hold(Box::new(in_flight.clone()));
                return response;
            }
        } else if let Some(size) = whole.filter(|_| !response.body().is_reserved()) {
            match self.0.answers.reserve(size).await {
                Ok(share) => response.body_mut().reserve(Box::new(share)),
                Err(error) => response = error_response(&error, request),
            }
        }
        let account = account.filter(|_| !response.body().is_reserved());
        if let Some(in_flight) = in_flight {
            response.body_mut().hold(Box::new(in_flight));
        }
        if let Some(seat) = seat {
            response.body_mut().hold(Box::new(seat));
        }
        let pace = ReadDeadlines {
            stall: self.0.config.limits.stall_timeout,
            until: request.deadline,
            connection: abort,
            account,
            counters: self.0.counters.clone(),
        };
        response.map(|body| body.paced(pace))
    }
}

/// The answer to HEAD: its body is left out, which HTTP/2 does not do by itself; its length stays.
fn without_body(mut response: Response<Body>) -> Response<Body> {
    if let Some(size) = response.body().whole_size() {
        let size = http::HeaderValue::from(size);
        response.headers_mut().insert(CONTENT_LENGTH, size);
    }
    response.map(|_| Body::empty())
}

fn error_response(error: &ApiError, request: &Incoming) -> Response<Body> {
    let status = error.0.to_json();
    let media =
        negotiate(&request.headers, &request.query, Offer::Status).unwrap_or(MediaType::JSON);
    let mut response = crate::encode::value_response(error.code(), &status, media);
    if let Some(details) = &error.0.details
        && details.retry_after_seconds > 0
    {
        response.headers_mut().insert(
            http::header::RETRY_AFTER,
            details.retry_after_seconds.into(),
        );
    }
    response
}
