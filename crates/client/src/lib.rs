//! What scheduler, controllers, node and drivers need alike as clients of a Kubernetes API, in one place: which versions
//! a server has ([`discovery`]), deletes that cannot hit another object of the same name ([`delete`]), and events with
//! client-go's limits ([`events`]).
//!
//! The crate works with any API server and has no cache; lists and watches are in `allot-reflector`.

#![forbid(unsafe_code)]

pub mod delete;
pub mod discovery;
pub mod events;
