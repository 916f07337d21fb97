//! Requests on resources: from the resource that a path leads to, to the handler of the verb.

use std::sync::Arc;

use allot_apimachinery::Status;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;

use crate::body::{Body, text_response};
use crate::context::{Call, Core};
use crate::error::{ApiError, Result};
use crate::managed::Known;
use crate::negotiate::{MediaType, Offer, Shape, accepted, negotiate};
use crate::registry::{Resource, Subresource};
use crate::request::{Incoming, RequestInfo};

mod admit;
mod body;
mod change;
mod create;
mod delete;
mod media_type;
mod options;
mod patch;
mod provision;
mod read;
mod route;
mod socket;
mod stored;
mod sub;
mod update;
mod watch;

impl Call<'_> {
    /// 400 for a table with a kind of objects in it that there is not.
    fn check_included(&self) -> Result<()> {
        if matches!(self.media.shape, Shape::Table | Shape::TableV1beta1)
            && let Some(wanted) = self.request.query.text("includeObject")
            && !matches!(wanted, "None" | "Metadata" | "Object")
        {
            return Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {wanted:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            )));
        }
        Ok(())
    }

    /// 406 if the metadata of one object is requested and the response is a list, or the reverse.
    ///
    /// As upstream this is found when there is an answer: a write has been made.
    pub(crate) fn check_shape(&self) -> Result<()> {
        self.check_included()?;
        if !self.media.shape.is_metadata() {
            return Ok(());
        }
        let list = matches!(self.request.info.verb.as_str(), "list" | "deletecollection");
        let items = accepted(&self.request.headers);
        let Some(wanted) = items.iter().find_map(|item| item.parameter("as")) else {
            return Ok(());
        };
        let custom = self.resource.custom.is_some();
        let package = body::internal_package(&self.resource.group);
        let message = match (wanted, list) {
            ("PartialObjectMetadata", true) => {
                let found = match custom {
                    true => "unstructured.UnstructuredList".to_owned(),
                    false => format!("{package}.{}", self.resource.list_kind),
                };
                format!(
                    "you requested PartialObjectMetadata, but the requested object is a list (*{found})"
                )
            }
            ("PartialObjectMetadataList", false) if custom => {
                return Err(ApiError::unknown("content is not a list"));
            }
            ("PartialObjectMetadataList", false) => format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{package}.{})",
                self.resource.kind
            ),
            _ => return Ok(()),
        };
        Err(Status::failure(406, "NotAcceptable", message).into())
    }
}

/// Answers a request on a resource path.
///
/// # Errors
/// Any error of the client, as a Status.
pub async fn dispatch(
    core: &Arc<Core>,
    request: &mut Incoming,
    body: Bytes,
) -> Result<Response<Body>> {
    let Some(resource) = route::resource(core, request)? else {
        return Ok(text_response(404, "404 page not found\n"));
    };
    let info = Arc::clone(&request.info);
    // Only a proxy passes on the rest of the path; for custom resources upstream ignores it.
    if !info.rest.is_empty() && info.subresource != "proxy" && resource.custom.is_none() {
        return Err(ApiError::no_such_path());
    }
    route::check_handler(core, &resource, request)?;
    let connects = connects(&info.subresource);
    if connects && request.query.all("dryRun").next().is_some() {
        return Err(ApiError::bad_request("dryRun is not supported"));
    }
    let media = media_of_answer(&resource, request)?;
    // The options of a request that is passed on are those of its receiver.
    let verb = if connects { "connect" } else { &info.verb };
    let options = options::WriteOptions::of(request, verb)?;
    let call = Call {
        core,
        request,
        version: info.version.clone(),
        media,
        dry_run: options.dry_run,
        field_validation: options.field_validation,
        manager: options.manager,
        object_name: None,
        conversions: Known::default(),
        resource,
    };
    if info.verb == "watch" {
        call.check_included()?;
    }
    if !info.subresource.is_empty() {
        let Some(subresource) = call.resource.subresource(&info.subresource).cloned() else {
            return Err(ApiError::no_such_path());
        };
        return of_subresource(call, &subresource, body).await;
    }
    of_verb(&info.verb, call, body).await
}

// The futures of handlers are large. They are boxed by functions that are not asynchronous: one that awaited them itself
// would have a place for each on the stack, below bodies whose nesting needs the stack.

fn of_subresource<'a>(
    call: Call<'a>,
    subresource: &'a Subresource,
    body: Bytes,
) -> BoxFuture<'a, Result<Response<Body>>> {
    Box::pin(sub::dispatch(call, subresource, body))
}

fn of_verb<'a>(verb: &str, call: Call<'a>, body: Bytes) -> BoxFuture<'a, Result<Response<Body>>> {
    match verb {
        "create" => Box::pin(create::create(call, body)),
        "get" => Box::pin(read::get(call)),
        "list" => Box::pin(read::list(call)),
        "watch" => Box::pin(watch_connection(call)),
        "update" => Box::pin(update::update(call, body)),
        "patch" => Box::pin(patch::patch(call, body)),
        "delete" => Box::pin(delete::delete(call, body)),
        "deletecollection" => Box::pin(delete::delete_collection(call, body)),
        _ => Box::pin(std::future::ready(Err(ApiError::method_not_allowed()))),
    }
}

/// Whether requests of a subresource are passed on to a kubelet or workload.
fn connects(subresource: &str) -> bool {
    matches!(subresource, "proxy" | "exec" | "attach" | "portforward")
}

/// The form of the answer that the request accepts and the resource has.
fn media_of_answer(resource: &Resource, request: &Incoming) -> Result<MediaType> {
    let info = &request.info;
    let offer = match resource.custom {
        // Their scales are objects of a built-in kind.
        Some(_) if info.subresource != "scale" => Offer::Custom,
        _ if has_table(resource, info) => Offer::Builtin,
        _ => Offer::Rowless,
    };
    match negotiate(&request.headers, &request.query, offer) {
        // Neither a proxied response nor a stream is negotiated.
        Err(_) if connects(&info.subresource) => Ok(MediaType::JSON),
        chosen => chosen,
    }
}

/// A watch, as the body of the answer or over a WebSocket, counted against the shares of its user and connection.
async fn watch_connection(call: Call<'_>) -> Result<Response<Body>> {
    let (core, request) = (call.core, call.request);
    let share = core.watches.of(request)?;
    let socket = socket::Socket::of(request, core.config.limits.stall_timeout);
    let stream = socket.is_some().then(|| core.streams.of(request));
    let stream = stream.transpose()?;
    let mut answer = watch::watch(call).await?;
    answer.body_mut().hold(Box::new((share, stream)));
    let Some(socket) = socket else {
        return Ok(answer);
    };
    // The response is only the protocol upgrade, which completes immediately: the watch is measured with its events.
    if let Some(watching) = core.flow.watching(request) {
        answer.body_mut().hold(Box::new(watching));
    }
    Ok(socket.carry_watch(answer))
}

/// Whether answers can be tables: results of actions and reviews cannot.
fn has_table(resource: &Resource, info: &RequestInfo) -> bool {
    match info.subresource.as_str() {
        "" => resource.verbs.iter().any(|verb| verb != "create"),
        "status" => resource.rules.status_has_table,
        // Other endpoints answer with an action, or with an object that they cannot show as a row.
        subresource => subresource == "scale",
    }
}
