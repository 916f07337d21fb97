//! The scheduler: queue, snapshot, plugins and binder.

#![forbid(unsafe_code)]
