//! How the command line is read, the same for every command.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// A command whose flags take numbers below zero as values, so that `--nodes -1` is answered with the numbers that
/// `--nodes` takes, not with an unknown flag `-1`.
#[must_use]
pub fn with_negative_numbers(command: Command) -> Command {
    let accepting = |arg: Arg| match arg.get_action().takes_values() && !arg.is_positional() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command
        .mut_args(accepting)
        .mut_subcommands(with_negative_numbers)
}

/// Adds to an error about a surplus word how the command takes files, if the word is one.
#[must_use]
pub fn with_tip(mut error: clap::Error, command: &Command, arguments: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if !is_manifest(Path::new(word)) {
        return error;
    }
    let mut tip = StyledStr::new();
    let takes = |long: &str| {
        let mut flags = called(command, arguments).get_arguments();
        flags.any(|arg| arg.get_long() == Some(long))
    };
    let written = match (takes("filename"), takes("from")) {
        (true, _) => write!(tip, "'-f {word}' reads manifests from it"),
        (false, true) => write!(tip, "'--from {word}' reads a snapshot from it"),
        (false, false) => return error,
    };
    if written.is_ok() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

/// Whether a path can only be that of a file with objects.
#[must_use]
pub fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|it| it.to_str());
    matches!(extension, Some("yaml" | "yml" | "json" | "gz"))
}

/// The command below `command` that the arguments call.
fn called<'a>(command: &'a Command, arguments: &[OsString]) -> &'a Command {
    let mut found = command;
    for word in arguments.iter().skip(1) {
        match found.find_subcommand(word) {
            Some(below) => found = below,
            None if word.to_string_lossy().starts_with('-') => {}
            None => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let command = crate::command();
        let error = command.clone().try_get_matches_from(&arguments);
        let error = error.expect_err(line);
        with_tip(error, &command, &arguments).to_string()
    }

    #[test]
    fn regression_a_number_below_zero_is_answered_with_the_numbers_that_are_possible() {
        let text = error("allot up --nodes -1");
        let expected =
            "error: invalid value '-1' for '--nodes <N>': it must be between 0 and 5000\n";
        assert!(text.starts_with(expected), "{text}");
        let text = error("allot node --node-name n --nodes many");
        assert!(
            text.contains("it must be a number between 0 and 5000"),
            "{text}"
        );
        let text = error("allot up --listen 6443");
        assert!(
            text.contains("it must be ADDRESS:PORT, such as 127.0.0.1:6443"),
            "{text}"
        );
    }

    #[test]
    fn regression_a_file_without_its_flag_is_answered_with_the_flag() {
        for (line, expected) in [
            (
                "allot simulate job.yaml",
                "tip: '-f job.yaml' reads manifests from it",
            ),
            (
                "allot -v devices monday.json.gz",
                "tip: '--from monday.json.gz' reads a snapshot from it",
            ),
            (
                "allot explain train-0 x more.yaml",
                "tip: '-f more.yaml' reads manifests from it",
            ),
        ] {
            let text = error(line);
            assert!(text.contains(expected), "{line}: {text}");
        }
        let text = error("allot simulate job");
        assert!(!text.contains("tip:"), "{text}");
    }
}
