//! The same binary as a plugin of kubectl: called through a link named `kubectl-dra` it is `kubectl dra`, and through
//! one named `kubectl_complete-dra` it completes the words of that command, as kubectl requires of plugins.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use crate::cmd;
use crate::command_line;
use crate::logging;

mod names;

use names::{Named, Place};

/// The name of the command in kubectl.
const NAME: &str = "kubectl dra";
/// Tells kubectl's shell script that files are no completions (`ShellCompDirectiveNoFileComp`).
const NO_FILES: &str = ":4";
/// The same, if files are completions.
const FILES: &str = ":0";

/// Inspect devices and pending pods.
#[derive(Debug, Parser)]
#[command(name = "kubectl-dra", bin_name = NAME, version, max_term_width = 100)]
struct Plugin {
    #[command(flatten)]
    log: logging::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Explain why a pod gets no device, node by node; without a name, why pods are pending
    Explain(cmd::explain::Args),
    /// List devices: which are free, which are in use and by which claims
    Devices(cmd::devices::Args),
    /// Serve a web page about devices, pending pods, and claims
    Dashboard(cmd::dashboard::Args),
    /// Take a driver out of service: taint its devices, wait for their users, remove its slices
    #[command(visible_alias = "drain-driver")]
    Drain(cmd::drain_driver::Args),
    /// Compile a CEL device selector and evaluate it on devices
    Cel(cmd::cel::Args),
    /// Report which fields a cluster's release drops or rejects, and which names do not exist
    Lint(cmd::lint::Args),
    /// Turn manifests of older releases into resource.k8s.io/v1
    Convert(cmd::convert::Args),
    /// Save everything that scheduling of pods and devices depends on, to analyse it elsewhere
    Snapshot(cmd::snapshot::Args),
}

/// The role selected by the name of the binary.
#[derive(Debug, PartialEq, Eq)]
enum Role {
    Plugin,
    Completion,
}

fn role(program: &OsStr) -> Option<Role> {
    let name = Path::new(program).file_name()?.to_str()?;
    // krew and Windows add to the name.
    let name = name.strip_suffix(".exe").unwrap_or(name);
    match name {
        "kubectl-dra" => Some(Role::Plugin),
        "kubectl_complete-dra" => Some(Role::Completion),
        _ => None,
    }
}

/// Runs as the plugin if the binary was called as such.
pub fn run_if_called() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    match role(&arguments.next()?)? {
        Role::Plugin => Some(run()),
        Role::Completion => {
            let words: Vec<String> = arguments
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            let mut text = String::new();
            for line in complete(&command(), &words, names::find) {
                text += &line;
                text.push('\n');
            }
            // A shell that went away needs no completions.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Some(ExitCode::SUCCESS)
        }
    }
}

/// The command, with examples for the plugin.
pub fn command() -> clap::Command {
    let mut command = Plugin::command();
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        command = command.mut_subcommand(name, |sub| {
            let help = sub
                .get_after_help()
                .map(|help| in_kubectl(&help.to_string()));
            match help {
                Some(help) => sub.after_help(help),
                None => sub,
            }
        });
    }
    command
}

/// Examples as they are typed with kubectl.
fn in_kubectl(help: &str) -> String {
    let help = help.replace("allot drain-driver ", "kubectl dra drain ");
    help.replace("  allot ", "  kubectl dra ")
}

fn run() -> ExitCode {
    let command = command_line::with_negative_numbers(command());
    let arguments: Vec<_> = std::env::args_os().collect();
    let matches = command.clone().try_get_matches_from(&arguments);
    let parsed = matches
        .map_err(|error| command_line::with_tip(error, &command, &arguments))
        .and_then(|matches| Plugin::from_arg_matches(&matches));
    let plugin = match parsed {
        Ok(plugin) => plugin,
        Err(error) => error.exit(),
    };
    logging::init(&plugin.log, "warn", false);
    let result = match plugin.command {
        Command::Explain(args) => return cmd::explain::run(args),
        Command::Devices(args) => cmd::devices::run(args),
        Command::Dashboard(args) => cmd::dashboard::run(args),
        Command::Drain(args) => cmd::drain_driver::run(args),
        Command::Cel(args) => cmd::cel::run(args),
        Command::Lint(args) => cmd::lint::run(args),
        Command::Convert(args) => cmd::convert::run(args),
        Command::Snapshot(args) => cmd::snapshot::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::fail(&error),
    }
}

/// The completions of the last word, one a line, then what kubectl's script may add. `find` lists what the cluster has.
fn complete(
    command: &clap::Command,
    words: &[String],
    find: impl Fn(Named, Place) -> Vec<String>,
) -> Vec<String> {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", &[][..]),
    };
    let mut words = before.iter();
    let sub = words.by_ref().find(|word| !word.starts_with('-'));
    let Some(sub) = sub else {
        let names = command
            .get_subcommands()
            .map(|sub| described(sub.get_name(), sub.get_about()));
        return found(names, last, NO_FILES);
    };
    let Some(sub) = command.find_subcommand(sub) else {
        return vec![NO_FILES.to_owned()];
    };
    // The value of the flag before, or of the flag in the same word.
    let flag = before
        .last()
        .filter(|word| word.starts_with('-') && !word.contains('='));
    let argument = flag
        .and_then(|flag| argument(sub, flag))
        .filter(|a| takes_value(a));
    let (prefix, argument, value) = match (argument, last.split_once('=')) {
        (Some(argument), _) => (String::new(), Some(argument), last),
        (None, Some((flag, value))) if flag.starts_with("--") => {
            (format!("{flag}="), self::argument(sub, flag), value)
        }
        _ => (String::new(), None, last),
    };
    if let Some(argument) = argument {
        let values = argument.get_possible_values();
        if let (Some(named), true) = (Named::of(argument), values.is_empty()) {
            let names = find(named, place(sub, before)).into_iter();
            let names = names.map(|name| format!("{prefix}{name}"));
            return found(names, &format!("{prefix}{value}"), NO_FILES);
        }
        if values.is_empty() {
            return vec![FILES.to_owned()];
        }
        let values = values
            .iter()
            .map(|v| described(&format!("{prefix}{}", v.get_name()), v.get_help()));
        return found(values, &format!("{prefix}{value}"), NO_FILES);
    }
    if last.starts_with('-') {
        let flags = sub
            .get_arguments()
            .filter_map(|a| Some((format!("--{}", a.get_long()?), a)));
        let flags = flags.map(|(name, a)| described(&name, a.get_help()));
        return found(flags, last, NO_FILES);
    }
    let is_first = given(sub, before).is_empty();
    let named = sub.get_positionals().next().and_then(Named::of);
    if let Some(named) = named.filter(|_| is_first) {
        let names = find(named, place(sub, before)).into_iter();
        return found(names, last, NO_FILES);
    }
    let names = sub.get_positionals().filter_map(clap::Arg::get_value_names);
    let takes_files = names.flatten().any(|name| name == "FILE");
    vec![if takes_files { FILES } else { NO_FILES }.to_owned()]
}

fn argument<'a>(command: &'a clap::Command, flag: &str) -> Option<&'a clap::Arg> {
    command.get_arguments().find(|argument| {
        let long = argument.get_long().map(|name| format!("--{name}"));
        let short = argument.get_short().map(|letter| format!("-{letter}"));
        long.as_deref() == Some(flag) || short.as_deref() == Some(flag)
    })
}

/// The words after the subcommand that are neither flags nor their values.
fn given<'a>(sub: &clap::Command, before: &'a [String]) -> Vec<&'a str> {
    let mut words = before
        .iter()
        .skip_while(|word| word.starts_with('-'))
        .skip(1);
    let mut given = Vec::new();
    while let Some(word) = words.next() {
        match word.starts_with('-') {
            true if word.contains('=') => {}
            true if argument(sub, word).is_some_and(takes_value) => {
                words.next();
            }
            true => {}
            false => given.push(word.as_str()),
        }
    }
    given
}

/// The cluster and the namespace that the words before select.
fn place(sub: &clap::Command, before: &[String]) -> Place {
    let value = |id: &str| {
        let is_flag = |flag: &str| argument(sub, flag).is_some_and(|a| a.get_id() == id);
        before
            .iter()
            .enumerate()
            .find_map(|(at, word)| match word.split_once('=') {
                Some((flag, value)) if is_flag(flag) => Some(value.to_owned()),
                None if is_flag(word) => before.get(at + 1).cloned(),
                _ => None,
            })
    };
    Place {
        kubeconfig: value("kubeconfig").map(PathBuf::from),
        context: value("context"),
        // An invalid name must not become a part of a path.
        namespace: value("namespace").filter(|name| cmd::namespace_name(name).is_ok()),
    }
}

fn takes_value(argument: &clap::Arg) -> bool {
    argument.get_action().takes_values()
}

/// `name<TAB>description`, the form that kubectl's script shows.
fn described(name: &str, about: Option<&clap::builder::StyledStr>) -> String {
    match about {
        Some(about) => format!("{name}\t{}", about.to_string().replace('\n', " ")),
        None => name.to_owned(),
    }
}

fn found(all: impl Iterator<Item = String>, prefix: &str, directive: &str) -> Vec<String> {
    let mut lines: Vec<String> = all.filter(|line| line.starts_with(prefix)).collect();
    lines.push(directive.to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_binary_decides() {
        for (program, expected) in [
            ("/usr/local/bin/kubectl-dra", Some(Role::Plugin)),
            ("kubectl_complete-dra", Some(Role::Completion)),
            ("allot", None),
            ("kubectl-drain", None),
        ] {
            assert_eq!(role(OsStr::new(program)), expected, "{program}");
        }
    }

    #[test]
    fn the_command_line_is_consistent_and_speaks_of_kubectl() {
        command().debug_assert();
        let mut command = command();
        for name in ["explain", "drain"] {
            let sub = command.find_subcommand_mut(name).expect("a subcommand");
            let help = sub.render_long_help().to_string();
            let example = format!("  kubectl dra {name} ");
            assert!(
                help.contains(&example) && !help.contains("  allot "),
                "{help}"
            );
        }
    }

    fn check(words: &[&str], expected: &[&str]) {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let lines = complete(&command(), &words, |named, place| {
            match (named, place.namespace) {
                (Named::Pod, Some(namespace)) => vec![format!("{namespace}-0"), "other".to_owned()],
                (named, _) => vec![format!("{named:?}").to_lowercase()],
            }
        });
        let names: Vec<&str> = lines
            .iter()
            .map(|line| line.split('\t').next().unwrap_or_default())
            .collect();
        assert_eq!(names, expected, "{words:?}");
    }

    #[test]
    fn words_are_completed() {
        check(&["ex"], &["explain", ":4"]);
        check(&["d"], &["devices", "dashboard", "drain", ":4"]);
        check(&["devices", "--wat"], &["--watch", ":4"]);
        check(&["devices", "-o", "w"], &["wide", ":4"]);
        check(&["lint", "a"], &[":0"]);
        check(&["explain", "a"], &[":4"]);
        check(&["explain", "p"], &["pod", ":4"]);
        check(&["explain", "-n", "team", "te"], &["team-0", ":4"]);
        check(
            &["explain", "--namespace=team", "-o", "json", ""],
            &["team-0", "other", ":4"],
        );
        check(&["explain", "-n", "../x", ""], &["pod", ":4"]);
        check(&["explain", "one", ""], &[":4"]);
        check(&["explain", "-n", ""], &["namespace", ":4"]);
        check(&["devices", "--node=n"], &["--node=node", ":4"]);
        check(&["devices", "--class", ""], &["class", ":4"]);
        check(&["devices", "--pool", ""], &["pool", ":4"]);
        check(&["drain", ""], &["driver", ":4"]);
        check(&["drain", "d", "--node", ""], &["node", ":4"]);
        check(&["devices", "--output=n"], &["--output=name", ":4"]);
        check(&["explain", "--filename", ""], &[":0"]);
        check(&["unknown", "x"], &[":4"]);
        check(&["explain", "train"], &[":4"]);
    }

    #[test]
    fn the_krew_manifest_installs_the_plugin_and_lists_its_commands() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/krew/dra.yaml");
        let text = std::fs::read_to_string(file).expect(file);
        let manifest: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
        let platforms = manifest["spec"]["platforms"].as_array().expect("platforms");
        assert!(!platforms.is_empty());
        for platform in platforms {
            let program = platform["bin"].as_str().expect("a program");
            assert_eq!(role(OsStr::new(program)), Some(Role::Plugin), "{platform}");
            let files = platform["files"].as_array().expect("files");
            let installed = files
                .iter()
                .any(|f| f["from"] == "allot" && f["to"] == program);
            assert!(installed, "{platform}");
        }
        let command = command();
        let description = manifest["spec"]["description"].as_str().expect("a text");
        let lines = description.split("kubectl dra ").skip(1);
        let mut count = 0;
        for words in lines {
            let list = words.lines().next().unwrap_or_default();
            // A command with its description, or several of them.
            let names = list.split(", ").take_while(|name| !name.contains(' '));
            let mut names: Vec<&str> = names.collect();
            if names.is_empty() {
                names.extend(list.split(' ').next());
            }
            for name in names {
                assert!(command.find_subcommand(name).is_some(), "{name}");
                count += 1;
            }
        }
        assert!(count >= 8, "{description}");
    }
}
