//! Logs on standard error, the same for every command.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// Flags that every command takes.
#[derive(Debug, clap::Args)]
#[group(id = "logging")]
pub struct Args {
    /// Log more: -v informs, -v=2 and above debug. RUST_LOG overrides
    #[arg(short, long, global = true, help_heading = "Logging", value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    verbose: Option<u8>,
    /// Form of the log lines
    #[arg(long, global = true, help_heading = "Logging", value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

/// Form of the log lines.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// One line to read.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging. `default` is the level of a command whose user asked for nothing.
pub fn init(args: &Args, default: &str) {
    let level = match args.verbose {
        None => default,
        Some(0) => "warn",
        Some(1) => "info",
        Some(2..=4) => "debug",
        Some(_) => "trace",
    };
    // `level` is about our own crates (all begin with allot); of the others only what goes wrong is of interest, and what
    // the client logs as an error is an answer that its caller handles.
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,allot={level},kube_client=off")));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // It would be told on standard error, where nobody reads any more, and that is a panic.
        .log_internal_errors(false);
    // A second call in one process changes nothing.
    let _ = match args.log_format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().try_init(),
    };
}
