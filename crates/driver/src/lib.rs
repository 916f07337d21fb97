//! SDK for DRA drivers: plugin server, slice publisher, CDI, checkpoints.

#![forbid(unsafe_code)]
