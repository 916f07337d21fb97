//! What scheduler, controllers, node and drivers need alike as clients of a Kubernetes API, in one place: which versions
//! a server has ([`discovery`]), deletes that cannot hit another object of the same name ([`delete`]), events within
//! client-go's limits ([`events`]), writes whose answer is lost ([`retry`]), one operation on an object at a time
//! ([`KeyMutex`]), keys of objects to be handled ([`work_queue`]), and the text of an error.
//!
//! The crate works with any API server and has no cache; lists and watches are in `allot-reflector`.

#![forbid(unsafe_code)]

use kube::api::{PatchParams, ValidationDirective};

pub mod delete;
pub mod discovery;
pub mod events;
mod key_mutex;
pub mod retry;
pub mod work_queue;

pub use key_mutex::KeyMutex;

/// How components send patches: without field validation, since warnings about unknown fields are not read and cost the
/// server time.
#[must_use]
pub fn patch_params() -> PatchParams {
    PatchParams {
        field_validation: Some(ValidationDirective::Ignore),
        ..PatchParams::default()
    }
}

/// The message of an error that the API server returned. The client's own text repeats it, with the whole Status.
#[must_use]
pub fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
