//! The agent against a real API server in this process, a real driver over sockets, and real containers.

#[path = "agent/access.rs"]
mod access;
#[path = "agent/certificates.rs"]
mod certificates;
#[path = "agent/claims.rs"]
mod claims;
#[path = "agent/classic.rs"]
mod classic;
#[path = "agent/complete.rs"]
mod complete;
#[path = "agent/complete_faults.rs"]
mod complete_faults;
#[path = "agent/complete_images.rs"]
mod complete_images;
#[path = "agent/containers.rs"]
mod containers;
#[path = "agent/harness.rs"]
mod harness;
#[path = "agent/health.rs"]
mod health;
#[path = "agent/hostile.rs"]
mod hostile;
#[path = "agent/hostile_driver.rs"]
mod hostile_driver;
#[path = "agent/images.rs"]
mod images;
#[path = "agent/interfaces.rs"]
mod interfaces;
#[path = "agent/isolation.rs"]
mod isolation;
#[path = "agent/lost.rs"]
mod lost;
#[path = "agent/network.rs"]
mod network;
#[path = "agent/nri.rs"]
mod nri;
#[path = "agent/pods.rs"]
mod pods;
#[path = "agent/pressure.rs"]
mod pressure;
#[path = "support/programs.rs"]
mod programs;
#[path = "agent/pulls.rs"]
mod pulls;
#[path = "agent/reboot.rs"]
mod reboot;
#[path = "agent/recording.rs"]
mod recording;
#[path = "agent/resize.rs"]
mod resize;
#[path = "support/runtime.rs"]
mod runtime;
#[path = "agent/setup.rs"]
mod setup;
#[path = "agent/static_pods.rs"]
mod static_pods;
#[path = "agent/streams.rs"]
mod streams;
#[path = "agent/usage.rs"]
mod usage;
#[path = "agent/volumes.rs"]
mod volumes;
