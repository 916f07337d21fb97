//! The conformance suites with the real binary: recorded API conversations, and scenarios of a control plane.
//!
//! It speaks as the test harness of Rust does: every step and scenario is a test, a word selects those whose name holds
//! it, `--exact` names one. `ALLOT_BIN` names another binary than the one of this build.
//!
//!     cargo test -p allot --test conformance                       # all of it
//!     cargo test -p allot --test conformance -- api::watch         # the conversations about watches
//!     cargo test -p allot --test conformance -- scenarios::taint   # the scenarios about taints

mod options;
mod report;
mod scenarios;
mod server;

use std::process::ExitCode;

use allot_testing::outcome::expected_failures;
use allot_testing::replay::{self, Conversations};

use options::Options;
use report::Report;
use scenarios::Scenario;
use server::Server;

fn main() -> ExitCode {
    let options = Options::parse(std::env::args().skip(1));
    let conversations = replay::conversations();
    let scenarios = scenarios::all();
    // A step that is there for its effect is a test once it fails, and can be named.
    let steps = conversations
        .iter()
        .flat_map(Conversations::steps)
        .filter(|step| step.compared || options.exact)
        .map(|step| format!("api::{}", step.name));
    let names = steps.chain(scenarios.iter().map(Scenario::test));
    let (selected, filtered): (Vec<_>, Vec<_>) = names.partition(|name| options.selects(name));
    if options.list {
        for name in &selected {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let mut report = Report::new(selected, filtered.len(), expected_failures());
    play(&conversations, &options, &mut report);
    let chosen: Vec<_> = scenarios
        .into_iter()
        .filter(|scenario| options.selects(&scenario.test()))
        .collect();
    if !chosen.is_empty() {
        let server = Server::cluster();
        scenarios::run(&chosen, &server, &mut report);
        server.stop(&mut report);
    }
    report.finish()
}

/// Replays the selected conversations against a separate API server.
fn play(all: &[Conversations], options: &Options, report: &mut Report) {
    let wanted = |step: &replay::Step| options.selects(&format!("api::{}", step.name));
    if !all.iter().any(|it| it.steps().any(wanted)) {
        return;
    }
    let server = Server::api();
    let url = server.url();
    for conversations in all {
        let server = replay::Server {
            url: &url,
            token: server::TOKEN,
        };
        conversations.play(server, &wanted, &mut |step, result| {
            let name = format!("api::{step}");
            // The rest of a conversation is played for the selected steps of it.
            if options.selects(&name) {
                report.add(&name, result);
            }
        });
        // What was asked for by name and is not compared has done its part unless it failed.
        for step in conversations.steps().filter(|step| !step.compared) {
            report.add_if_missing(&format!("api::{}", step.name));
        }
    }
    server.stop(report);
}
