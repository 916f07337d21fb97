//! The recorded scenarios, played against simulations: what a control plane places where, a simulation places there too.
//!
//! `tests/conformance/simulated.py` plays the scenarios with the runner that plays them against control planes, and asks
//! this program, started with `--serve`, in place of an API server. Scenarios about what is not simulated are left out,
//! each with its reason; `cargo test -p allot-simulate --test crosscheck -- --list` tells all of them.

use std::io::{BufRead as _, Write as _};
use std::process::{Command, ExitCode};
use std::time::Duration;

use allot_model::features::Features;
use allot_scheduler::Config;
use allot_simulate::{Options, Simulation, prepare};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Plays the scenarios.
const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/conformance/simulated.py"
);

/// What this program tests, as the test harness would name it.
const NAME: &str = "simulations_place_what_a_control_plane_places";

/// Fewer scenarios than this are a failure: something is left out that was not.
const AT_LEAST: usize = 600;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--serve") {
        serve();
        return ExitCode::SUCCESS;
    }
    if args.iter().any(|arg| arg == "--list") {
        println!("{NAME}: test");
    }
    // Other flags are those of the test harness.
    let chosen = args
        .iter()
        .filter(|arg| !arg.starts_with('-') && *arg != NAME || *arg == "--list");
    let chosen: Vec<&String> = chosen.collect();
    let this = std::env::current_exe().expect("this program");
    let status = Command::new("python3")
        .arg(SCRIPT)
        .arg("--program")
        .arg(this)
        .args(chosen.is_empty().then(|| format!("--at-least={AT_LEAST}")))
        .args(chosen)
        .status()
        .expect("python3 is installed: the scenarios need it");
    // As the test harness tells it, for what counts tests.
    let (outcome, passed) = match status.success() {
        true => ("ok", 1),
        false => ("FAILED", 0),
    };
    let failed = 1 - passed;
    println!("test {NAME} ... {outcome}");
    println!("\ntest result: {outcome}. {passed} passed; {failed} failed; 0 ignored");
    match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Answers requests, one JSON object a line.
fn serve() {
    let mut server = Server::new();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let answer = match server.answer(&request) {
            Ok(value) => json!({"ok": value}),
            Err(error) => json!({"error": format!("{error:#}")}),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")
            .and_then(|()| out.flush())
            .expect("a reader");
    }
}

struct Server {
    features: Features,
    simulation: Simulation,
}

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

impl Server {
    fn new() -> Self {
        let mut features = Features::default();
        features.set("DRADeviceTaintRules=true").expect("features");
        let mut config = Config {
            features: features.clone(),
            ..Config::default()
        };
        config.profiles[0].dynamic_resources.binding_timeout = Duration::from_secs(10);
        let options = Options {
            start: start(),
            stopping: Duration::from_millis(100),
            devices_ready: false,
            keep_objects: true,
            ..Options::default()
        };
        let simulation = Simulation::new(config, options, Vec::new()).expect("nothing to read");
        Self {
            features,
            simulation,
        }
    }

    fn answer(&mut self, request: &Value) -> anyhow::Result<Value> {
        let text = |field: &str| request[field].as_str().unwrap_or_default();
        let (kind, namespace, name) = (text("kind"), text("namespace"), text("name"));
        let simulation = &mut self.simulation;
        match text("do") {
            "reset" => {
                *self = Self::new();
                Ok(Value::Null)
            }
            "create" | "put" => {
                let object = request["object"].clone();
                let object = prepare::stored(object, namespace, &self.features, start())?;
                let identity = |field: &str| {
                    object["metadata"][field]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                };
                let (namespace, name) = (identity("namespace"), identity("name"));
                let kind = object["kind"].as_str().unwrap_or_default().to_owned();
                match text("do") {
                    "create" => simulation.create(object)?,
                    _ => simulation.put(object)?,
                }
                Ok(simulation.get(&kind, &namespace, &name).unwrap_or_default())
            }
            "get" => Ok(simulation.get(kind, namespace, name).unwrap_or_default()),
            "list" => Ok(simulation.list(kind, request["namespace"].as_str()).into()),
            "patch" => Ok(simulation
                .patch(kind, namespace, name, &request["patch"])?
                .unwrap_or_default()),
            "delete" if request["now"] == true && kind == "Pod" => {
                simulation.delete_now(namespace, name)?;
                Ok(Value::Null)
            }
            "delete" => {
                simulation.delete(kind, namespace, name)?;
                Ok(Value::Null)
            }
            "pass" => {
                let seconds = request["seconds"].as_f64().unwrap_or_default();
                simulation.run_for(Duration::from_secs_f64(seconds))?;
                Ok(Value::Null)
            }
            other => anyhow::bail!("what is {other:?}?"),
        }
    }
}
