//! Logs on standard error, the same for every command; `allot up` can log into a file instead.

pub mod file;

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::{Error, Handle};

/// Flags that every command takes.
#[derive(Debug, clap::Args)]
#[group(id = "logging")]
pub struct Args {
    /// Log more: -v for info, -v=2 and above for debug; RUST_LOG takes precedence
    #[arg(short, long, global = true, help_heading = "Logging", value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    verbose: Option<u8>,
    /// Format of the log
    #[arg(long, global = true, help_heading = "Logging", value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// A progress line is on the terminal: it is cleared before anything else is written there.
pub static PROGRESS: AtomicBool = AtomicBool::new(false);

/// Removes the progress line from the terminal.
pub const CLEAR: &str = "\r\x1b[K";

/// The output of log lines: the log file once there is one, else standard error.
struct Output;

impl std::io::Write for Output {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if let Some(written) = file::write(line) {
            return written.map(|()| line.len());
        }
        let mut stderr = std::io::stderr().lock();
        if PROGRESS.swap(false, Ordering::Relaxed) {
            stderr.write_all(CLEAR.as_bytes())?;
        }
        stderr.write(line)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Libraries that log the content of what they send and receive, and the level at which they do not: the output of a
/// command in a container, Secrets, headers with tokens. No log level enables these.
const WITHOUT_CONTENT: [&str; 3] = [
    "tungstenite=debug",
    "tokio_tungstenite=debug",
    "kube_client::client=error",
];

fn without_content(filter: EnvFilter) -> EnvFilter {
    WITHOUT_CONTENT.iter().fold(filter, |filter, directive| {
        match directive.parse() {
            Ok(directive) => filter.add_directive(directive),
            // A test parses them.
            Err(_) => filter,
        }
    })
}

/// Replaces the filter of the log of this process.
type Replace = Box<dyn Fn(EnvFilter) -> Result<(), Error> + Send + Sync>;

/// Set as soon as the process logs.
static REPLACE: OnceLock<Replace> = OnceLock::new();

/// The level of the log for a verbosity as `-v` and klog count it.
fn level(verbosity: u32) -> &'static str {
    match verbosity {
        0 => "warn",
        1 => "info",
        2..=4 => "debug",
        _ => "trace",
    }
}

/// `level` is for the crates of this project (all begin with allot); of the others only errors are logged, and an
/// error that the client logs is an answer that its caller handles.
fn of_level(level: &str) -> EnvFilter {
    EnvFilter::new(format!(
        "warn,allot={level},kube_client=off,rustls_platform_verifier=off"
    ))
}

/// Changes the verbosity of the log of the whole process while it runs. It replaces `-v` and `RUST_LOG`.
///
/// # Errors
/// The process does not log.
pub fn set_verbosity(verbosity: u32) -> Result<(), String> {
    let replace = REPLACE.get().ok_or("the process does not log")?;
    replace(without_content(of_level(level(verbosity)))).map_err(|error| error.to_string())
}

/// Keeps the way to change the filter.
fn keep<S: 'static>(handle: Handle<EnvFilter, S>) {
    // Of several calls in one process the first one started the log.
    let _ = REPLACE.set(Box::new(move |filter| handle.reload(filter)));
}

/// Starts logging. `default` is the level of a command without a level flag. Colours are for terminals, unless the log
/// goes to a file later.
pub fn init(args: &Args, default: &str, into_file: bool) {
    let level = args
        .verbose
        .map_or(default, |verbosity| level(verbosity.into()));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| of_level(level));
    let filter = without_content(filter);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(!into_file && std::io::stderr().is_terminal())
        .with_writer(|| Output)
        // Such an error would be printed to standard error, which may be closed, and that causes a panic.
        .log_internal_errors(false);
    // A second call in one process has no effect.
    let _ = match args.log_format {
        Format::Text => {
            let builder = builder.with_filter_reloading();
            keep(builder.reload_handle());
            builder.try_init()
        }
        Format::Json => {
            // The format is part of what the filter is reloaded in.
            let builder = builder.json().with_filter_reloading();
            keep(builder.reload_handle());
            builder.try_init()
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of `exec` was in the log of a node agent that traced everything.
    #[test]
    fn regression_no_level_logs_what_is_sent() {
        let asked = ["trace", "tungstenite=trace,kube_client::client=trace"].map(EnvFilter::new);
        for asked in asked.into_iter().chain([of_level(level(u32::MAX))]) {
            let filter = without_content(asked).to_string();
            let directives: Vec<&str> = filter.split(',').collect();
            for wanted in WITHOUT_CONTENT {
                let (target, _) = wanted.split_once('=').unwrap();
                let found = directives
                    .iter()
                    .filter(|it| it.split_once('=').is_some_and(|(known, _)| known == target));
                assert_eq!(found.collect::<Vec<_>>(), [&wanted], "{filter}");
            }
        }
    }
}
