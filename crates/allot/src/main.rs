//! The `allot` binary: every component behind one command line.

#![forbid(unsafe_code)]
// `println!` panics when the output is closed (`allot … | head -1`): use writes that return errors.
#![deny(clippy::print_stdout)]

mod apiserver;
mod bounds;
mod cluster;
mod clusters;
mod cmd;
mod command_line;
mod component;
#[cfg(test)]
mod documents;
mod gpus;
mod logging;
mod machine;
mod modelled;
mod plugin;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

/// Objects of the API are trees of small pieces, and a fifth of all time went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Kubernetes Dynamic Resource Allocation in one binary.
#[derive(Debug, Parser)]
#[command(name = "allot", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    log: logging::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run an embedded control plane and nodes on this machine
    #[command(alias = "start")]
    Up(Box<cmd::up::Args>),
    /// Show whether a cluster runs, and its content
    Status(cmd::status::Args),
    /// Print the log of a cluster that runs in the background
    Logs(cmd::logs::Args),
    /// Stop a cluster and everything that it runs
    #[command(alias = "stop")]
    Down(cmd::down::Args),
    /// Start a temporary cluster, run the examples and show what happens
    Demo(cmd::demo::Args),
    /// Run the API server alone
    Apiserver(Box<cmd::apiserver::Args>),
    /// Run the scheduler against a Kubernetes API server
    Scheduler(cmd::scheduler::Args),
    /// Run the controllers against a Kubernetes API server
    Controllers(cmd::controllers::Args),
    /// Take a driver out of service: taint its devices, wait for their users, remove its slices
    DrainDriver(cmd::drain_driver::Args),
    /// Run a node agent against a Kubernetes API server
    Node(Box<cmd::node::Args>),
    /// Import, list, remove and pull container images
    Image(cmd::image::Args),
    /// Run a DRA driver
    Driver(cmd::driver::Args),
    /// Try a DRA driver against the rules that kubelets, runtimes and the API server rely on
    Conformance(cmd::conformance::Args),
    /// Explain why a pod gets no device, node by node; without a name, why pods are pending
    Explain(cmd::explain::Args),
    /// List devices: which are free, which are in use and by which claims
    Devices(cmd::devices::Args),
    /// Serve a web page about devices, pending pods, and claims
    Dashboard(cmd::dashboard::Args),
    /// Models of hardware: list and show them, make devices fail
    Hardware(cmd::hardware::Args),
    /// Save everything that scheduling of pods and devices depends on, to analyse it elsewhere
    Snapshot(cmd::snapshot::Args),
    /// Predict what a cluster would do with a workload: the scheduler in virtual time, without a cluster
    Simulate(Box<cmd::simulate::Args>),
    /// Solve allocation problems given as JSON
    Allocate(cmd::allocate::Args),
    /// Compile a CEL device selector and evaluate it on devices
    Cel(cmd::cel::Args),
    /// Turn manifests of older releases into resource.k8s.io/v1
    Convert(cmd::convert::Args),
    /// Report which fields a cluster's release drops or rejects, and which names do not exist
    Lint(cmd::lint::Args),
    /// Check, dump or compact a store file
    Store(cmd::store::Args),
    /// Measure an API server or a scheduler
    Bench(cmd::bench::Args),
    /// Print a shell completion script
    Completion(cmd::completion::Args),
    /// Print the version, as --version does
    #[command(hide = true)]
    Version,
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Manual(cmd::manual::Args),
}

impl Command {
    /// The default log level: a long-running component logs at info, a command that prints a result only warns.
    fn log_level(&self) -> &'static str {
        match self {
            Command::Apiserver(_)
            | Command::Scheduler(_)
            | Command::Controllers(_)
            | Command::Node(_)
            | Command::Driver(_) => "info",
            _ => "warn",
        }
    }
}

/// Keeps other users from writing to the directories with keys and sockets, whatever mask this process was started with.
fn restrict_mask() {
    use rustix::fs::Mode;
    let others = Mode::WGRP | Mode::WOTH;
    let before = rustix::process::umask(others);
    rustix::process::umask(before | others);
}

fn main() -> ExitCode {
    restrict_mask();
    // The container shim is internal, and must run before any thread is started.
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    if first.as_ref().is_some_and(|arg| arg == "node-shim") {
        allot_node::shim::main(args);
    }
    // Before the flags are parsed, which allocates memory.
    if first.is_some_and(|arg| arg == "node") {
        allot_node::go_without_huge_pages();
    }
    if let Some(ended) = plugin::run_if_called() {
        return ended;
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return fail(&error),
    };
    if matches!(
        &cli.command,
        Command::Up(_) | Command::Demo(_) | Command::Node(_)
    ) {
        allot_node::shim::leave_keyring();
    }
    let into_file = matches!(&cli.command, Command::Up(args) if args.logs_into_file());
    // A log file has a limited size, and is the only record of what happened in the background.
    let level = match into_file {
        true => "info",
        false => cli.command.log_level(),
    };
    logging::init(&cli.log, level, into_file);
    let result = match cli.command {
        Command::Up(args) => match cmd::up::run(*args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Status(args) => match cmd::status::run(args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Logs(args) => cmd::logs::run(args),
        Command::Down(args) => cmd::down::run(args),
        Command::Demo(args) => cmd::demo::run(args),
        Command::Apiserver(args) => cmd::apiserver::run(*args),
        Command::Scheduler(args) => cmd::scheduler::run(args),
        Command::Controllers(args) => cmd::controllers::run(args),
        Command::DrainDriver(args) => cmd::drain_driver::run(args),
        Command::Node(args) => cmd::node::run(*args),
        Command::Image(args) => cmd::image::run(args),
        Command::Driver(args) => cmd::driver::run(args),
        Command::Conformance(args) => return cmd::conformance::run(args),
        Command::Explain(args) => return cmd::explain::run(args),
        Command::Devices(args) => cmd::devices::run(args),
        Command::Dashboard(args) => cmd::dashboard::run(args),
        Command::Hardware(args) => cmd::hardware::run(args),
        Command::Snapshot(args) => cmd::snapshot::run(args),
        Command::Simulate(args) => cmd::simulate::run(*args),
        Command::Allocate(args) => cmd::allocate::run(args),
        Command::Cel(args) => cmd::cel::run(args),
        Command::Convert(args) => cmd::convert::run(args),
        Command::Lint(args) => cmd::lint::run(args),
        Command::Store(args) => cmd::store::run(args),
        Command::Bench(args) => cmd::bench::run(args),
        Command::Completion(args) => cmd::completion::run(args),
        Command::Version => {
            let text = Cli::command().render_version();
            std::io::stdout()
                .write_all(text.as_bytes())
                .map_err(anyhow::Error::from)
        }
        Command::Manual(args) => cmd::manual::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    print_error(error);
    ExitCode::FAILURE
}

/// Prints an error, unless the output was closed by its reader.
fn print_error(error: &anyhow::Error) {
    if !is_broken_pipe(error) {
        let _ = writeln!(std::io::stderr(), "error: {}", describe(error));
    }
}

/// The command line of the program.
fn command() -> clap::Command {
    command_line::with_negative_numbers(Cli::command())
}

/// Reads arguments, the name of the program first.
fn parse_from(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments);
    let matches = matches.map_err(|error| command_line::with_tip(error, &command, arguments))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The command line, with the flags of a configuration file.
fn parse() -> anyhow::Result<Cli> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = parse_from(&arguments).unwrap_or_else(|error| error.exit());
    let Command::Up(up) = &cli.command else {
        return Ok(cli);
    };
    let Some(file) = up.config() else {
        return Ok(cli);
    };
    let arguments = cmd::up::configuration::expand(command(), &arguments, file)?;
    parse_from(&arguments).map_err(|error| {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        anyhow::anyhow!("{}: {}", file.display(), text.trim_end())
    })
}

/// An error with its causes in one line. Many libraries include the cause in their own text: it is printed once.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let request = cause.downcast_ref::<kube::Error>();
        let is_answered =
            |error: &&kube::Error| matches!(error, kube::Error::Api(_) | kube::Error::Service(_));
        let cause = match request.filter(is_answered) {
            // With its own causes.
            Some(error) => {
                let told = component::failure(error);
                return match text.contains(&told) {
                    true => text,
                    false => join(text, &told),
                };
            }
            None => without_excerpt(&cause.to_string()),
        };
        // An error of YAML names the place first, and its cause last.
        let bare = cause.rsplit_once(" at line ").map_or(&*cause, |it| it.0);
        if cause.starts_with(&format!("{text}: ")) {
            // Both name the same file.
            text = cause;
        } else if !text.contains(bare) {
            text = join(text, &cause);
        }
    }
    text
}

/// `error: cause`
fn join(error: String, cause: &str) -> String {
    match error.is_empty() {
        true => cause.to_owned(),
        false => format!("{error}: {cause}"),
    }
}

/// The error of a YAML document, without the excerpt on further lines, and without the advice that the library has for
/// programs that call it.
fn without_excerpt(error: &str) -> String {
    const ADVICE: [&str; 2] = [
        ", set DuplicateKeyPolicy in Options if acceptable",
        "; use from_str_multiple or from_str_multiple_with_options",
    ];
    let line = error.split("\n --> <input>").next().unwrap_or_default();
    let line = line.replacen("error: line ", "line ", 1);
    ADVICE
        .iter()
        .fold(line, |line, advice| line.replace(advice, ""))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    use std::io::{Error, ErrorKind};
    let io = |cause: &'_ (dyn std::error::Error + 'static)| {
        let shared = cause.downcast_ref::<std::sync::Arc<Error>>();
        let kind = cause.downcast_ref::<Error>().map(Error::kind);
        kind.or(shared.map(|error| error.kind()))
    };
    error
        .chain()
        .any(|cause| io(cause) == Some(ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn a_cause_is_printed_once() {
        let cause = std::io::Error::other("disk full");
        let error = anyhow::Error::new(cause)
            .context("f: disk full")
            .context("writing");
        assert_eq!(super::describe(&error), "writing: f: disk full");
        let error = anyhow::anyhow!("f: disk full").context("f");
        assert_eq!(super::describe(&error), "f: disk full");
    }

    #[test]
    fn an_error_of_yaml_is_one_line() {
        let error = serde_saphyr::from_str::<serde_json::Value>("one\ntwo: [\n").unwrap_err();
        assert!(error.to_string().contains('\n'), "{error}");
        let text = super::describe(&anyhow::anyhow!("f.yaml: {error}"));
        assert!(
            text.starts_with("f.yaml: line ") && !text.contains('\n'),
            "{text}"
        );
        let error = serde_saphyr::from_str::<serde_json::Value>("nodes: [2\n").unwrap_err();
        let text = super::describe(&anyhow::Error::new(error).context("f.yaml"));
        assert_eq!(text.matches("unclosed bracket").count(), 1, "{text}");
    }

    /// The error for the author of a file was `set DuplicateKeyPolicy in Options`.
    #[test]
    fn regression_an_error_of_yaml_advises_no_programmer() {
        for (text, problem) in [
            ("a: 1\na: 2\n", "duplicate mapping key: a"),
            ("a: 1\n---\na: 2\n", "multiple YAML documents detected"),
        ] {
            let error = serde_saphyr::from_str::<serde_json::Value>(text).unwrap_err();
            let text = super::describe(&anyhow::Error::new(error).context("f.yaml"));
            assert!(
                text.starts_with("f.yaml: line ") && text.ends_with(problem),
                "{text}"
            );
        }
    }

    #[test]
    fn every_command_is_in_the_readme() {
        let readme = include_str!("../../../README.md");
        let command = super::Cli::command();
        let commands = command.get_subcommands().filter(|it| !it.is_hide_set());
        for name in commands.map(clap::Command::get_name) {
            let told = |form: &str| readme.contains(form);
            let listed = told(&format!("`allot {name}")) || told(&format!(", `{name}`"));
            assert!(listed, "README.md does not list `allot {name}`");
        }
    }

    /// Words of kubectl, helm and other tools for clusters on one machine: `stop` had been answered with `store`.
    #[test]
    fn regression_words_of_other_tools_are_understood() {
        use clap::Parser as _;
        for line in [
            "start",
            "stop",
            "version",
            "devices -A",
            "explain pods train-0",
        ] {
            let words = ["allot"].into_iter().chain(line.split(' '));
            let parsed = super::Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
