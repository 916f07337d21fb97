//! Drives the real binary: real processes, sockets and files. kubectl is used where it is
//! installed.

#[path = "e2e/apart.rs"]
mod apart;
#[path = "e2e/ask.rs"]
mod ask;
#[path = "e2e/binding.rs"]
mod binding;
#[path = "e2e/crash.rs"]
mod crash;
#[path = "e2e/demo_table.rs"]
mod demo_table;
#[path = "e2e/demos.rs"]
mod demos;
#[path = "e2e/deploy.rs"]
mod deploy;
#[path = "e2e/drain.rs"]
mod drain;
#[path = "e2e/example_list.rs"]
mod example_list;
#[path = "e2e/examples.rs"]
mod examples;
#[path = "e2e/explain.rs"]
mod explain;
#[path = "e2e/explain_gang.rs"]
mod explain_gang;
#[path = "e2e/gang.rs"]
mod gang;
#[path = "e2e/hardware.rs"]
mod hardware;
#[path = "e2e/harness.rs"]
mod harness;
#[path = "e2e/input.rs"]
mod input;
#[path = "e2e/kit.rs"]
mod kit;
#[path = "e2e/kubectl.rs"]
mod kubectl;
#[path = "e2e/lifecycle.rs"]
mod lifecycle;
#[path = "e2e/messages.rs"]
mod messages;
#[path = "e2e/modelled.rs"]
mod modelled;
#[path = "e2e/network.rs"]
mod network;
#[path = "e2e/page.rs"]
mod page;
#[path = "e2e/pod_network.rs"]
mod pod_network;
#[path = "e2e/rootless.rs"]
mod rootless;
#[path = "e2e/scarcity.rs"]
mod scarcity;
#[path = "e2e/secrets.rs"]
mod secrets;
#[path = "e2e/upgrade.rs"]
mod upgrade;
#[path = "e2e/webhook.rs"]
mod webhook;
