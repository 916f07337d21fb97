//! The container helper by itself: what a program in a container sees and may do, as root and as an ordinary user.

#[path = "shim/attacks.rs"]
mod attacks;
#[path = "shim/dev.rs"]
mod dev;
#[path = "shim/entering.rs"]
mod entering;
#[path = "shim/harness.rs"]
mod harness;
#[path = "shim/hooks.rs"]
mod hooks;
#[path = "shim/images.rs"]
mod images;
#[path = "shim/keyrings.rs"]
mod keyrings;
#[path = "shim/limits.rs"]
mod limits;
#[path = "shim/own_program.rs"]
mod own_program;
#[path = "support/programs.rs"]
mod programs;
#[path = "shim/seccomp.rs"]
mod seccomp;
#[path = "shim/security.rs"]
mod security;
#[path = "shim/volumes.rs"]
mod volumes;
