//! `allot conformance driver`: tries a DRA driver against the rules of its API, without a cluster.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use allot_conformance::{
    AtExit, Case, Length, Options, PLACEHOLDERS, Report, Target, chaos, run as try_driver,
};
use anyhow::{Context, bail};

use super::component;

/// Flags of `allot conformance`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Try a DRA driver: an API server and a kubelet in this process register it, prepare and unprepare claims, kill and
    /// restart it, and damage its files
    #[command(after_help = placeholders())]
    Driver(Box<DriverArgs>),
}

#[derive(Debug, clap::Args)]
struct DriverArgs {
    /// Command line of the driver, with placeholders; the test kit starts, kills and restarts it, and removes its files
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["plugin_dir", "registry_dir", "cdi_dir", "kubeconfig"])]
    command: Option<String>,
    /// Command line of an earlier release of the driver, with the same placeholders: it prepares claims, and the release under
    /// test has to know them
    #[arg(long, value_name = "COMMAND", requires = "command")]
    earlier_command: Option<String>,
    /// Directory of a driver that is running; cases that restart it are skipped
    #[arg(long, value_name = "DIR", requires_all = ["registry_dir", "kubeconfig"])]
    plugin_dir: Option<PathBuf>,
    /// Directory of the running driver's registration socket; no kubelet may watch it
    #[arg(long, value_name = "DIR", requires = "plugin_dir")]
    registry_dir: Option<PathBuf>,
    /// Directory of the running driver's CDI files
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    cdi_dir: PathBuf,
    /// The API server that the running driver uses; claims are created and deleted in its namespace default
    #[arg(long, value_name = "FILE", requires = "plugin_dir")]
    kubeconfig: Option<PathBuf>,
    /// Name of the node
    #[arg(long, value_name = "NAME", default_value = "node-0")]
    node: String,
    /// Name of the driver, if the command registers several
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// File with opaque parameters that the driver accepts (JSON or YAML), for the cases about parameters
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File with other parameters that the driver accepts and containers see, for the case about their priority
    #[arg(long, value_name = "FILE", requires = "config")]
    other_config: Option<PathBuf>,
    /// What the driver does with its ResourceSlices when it ends on SIGTERM; without this, either
    #[arg(long, value_enum, value_name = "WHAT")]
    slices_at_exit: Option<Slices>,
    /// Limit for each wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// How long to check that nothing happens, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    quiet: u64,
    /// Number of claims that are created and deleted in the case churn
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
    cycles: u32,
    /// How long the case churn lasts at least, for leaks that show after an hour
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_080))]
    churn_minutes: u32,
    /// Number of concurrent cases, each with a separate driver process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Try only cases that match this pattern (* and ?); can be repeated
    #[arg(long = "case", value_name = "PATTERN")]
    cases: Vec<String>,
    /// Leave out cases that match this pattern; can be repeated
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<String>,
    /// File with the names of cases that are known to fail, one per line, # for comments
    #[arg(long, value_name = "FILE")]
    expected_failures: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write the results as JUnit XML, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Instead of the cases: calls, kills, pauses, reboots and outages at random, the same for the same number; checks the rules
    /// after every step
    #[arg(long, value_name = "SEED", requires = "command", conflicts_with_all = ["cases", "skip", "expected_failures", "jobs", "churn_minutes"])]
    chaos: Option<u64>,
    /// How long chaos lasts
    #[arg(long, value_name = "N", default_value_t = 5, requires = "chaos", conflicts_with_all = ["cases", "skip"], value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: u32,
    /// End chaos after so many steps instead
    #[arg(long, value_name = "N", requires = "chaos", conflicts_with_all = ["minutes", "cases", "skip"], value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// List the cases with their rules, without running them
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Slices {
    /// They stay
    Kept,
    /// They are deleted
    Removed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// A score card
    Text,
    /// One JSON document
    Json,
}

fn placeholders() -> String {
    let line = |(name, meaning): (&str, &str)| {
        let name = format!("{{{name}}}");
        format!("  {name:<14}{meaning}\n")
    };
    format!(
        "Placeholders of --command, whose words are split as by a shell and may begin with NAME=value:\n{}\n\
         Exit code: 0 if every case passed or was skipped or failed as expected, 1 if one failed, 2 if the driver did not start or \
         an argument cannot be used.",
        PLACEHOLDERS.map(line).concat()
    )
}

/// The exit code of arguments that cannot be used, as clap's.
const UNUSABLE: u8 = 2;

/// Runs the command; its exit code is for CI.
pub fn run(args: Args) -> ExitCode {
    let What::Driver(args) = args.what;
    let listed = args.list;
    let result = if listed { list(&args) } else { test(*args) };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if crate::is_broken_pipe(&error) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {}", crate::describe(&error));
            ExitCode::from(UNUSABLE)
        }
    }
}

fn list(args: &DriverArgs) -> anyhow::Result<bool> {
    // The program is not started.
    let options = Options::command("driver")?.cases(&args.cases, &args.skip)?;
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Text => {
            for case in options.selected() {
                writeln!(
                    out,
                    "{}\n    {}\n    source: {}",
                    case.name, case.rule, case.source
                )?;
            }
        }
        Output::Json => {
            let case = |case: &Case| serde_json::json!({"case": case.name, "rule": case.rule, "source": case.source, "hint": case.hint});
            let all: Vec<serde_json::Value> = options.selected().map(case).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        }
    }
    Ok(true)
}

fn test(args: DriverArgs) -> anyhow::Result<bool> {
    let options = options(&args)?;
    let junit = args.junit.as_deref().map(create).transpose()?;
    let text = args.output == Output::Text;
    let mut report = None;
    let length = match args.steps {
        Some(steps) => Length::Steps(steps),
        None => Length::Time(minutes(args.minutes)),
    };
    component::block_on(async |shutdown| {
        // A closed pipe must not end the run, which removes what the driver left.
        let say = |line: &str| {
            if text {
                let _ = writeln!(std::io::stdout(), "{line}");
            }
        };
        let work = async {
            match args.chaos {
                Some(seed) => {
                    let report = chaos(options, seed, length, |_, step| say(step)).await?;
                    report.cases.iter().for_each(|record| say(&record.text()));
                    anyhow::Ok(report)
                }
                None => Ok(try_driver(options, |record| say(&record.text())).await?),
            }
        };
        tokio::select! {
            result = work => report = Some(result?),
            () = shutdown.cancelled() => bail!("interrupted"),
        }
        Ok(())
    })?;
    let report: Report = report.context("no report")?;
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Text => writeln!(out, "\n{}", report.summary())?,
        Output::Json => writeln!(out, "{}", report.json()?)?,
    }
    if let Some((mut file, name)) = junit {
        file.write_all(report.junit().as_bytes())
            .with_context(|| format!("cannot write {name}"))?;
    }
    Ok(report.passed())
}

/// The file for a result, before a run that takes minutes; with its name.
fn create(path: &Path) -> anyhow::Result<(File, String)> {
    let name = path.display().to_string();
    let file = File::create(path).with_context(|| format!("cannot write {name}"))?;
    Ok((file, name))
}

fn minutes(count: u32) -> Duration {
    Duration::from_secs(60 * u64::from(count))
}

fn options(args: &DriverArgs) -> anyhow::Result<Options> {
    let mut options = match (
        &args.command,
        &args.plugin_dir,
        &args.registry_dir,
        &args.kubeconfig,
    ) {
        (Some(command), ..) => Options::command(command).context("--command")?,
        (None, Some(plugin), Some(registry), Some(kubeconfig)) => Options::new(Target::Running {
            registry: registry.clone(),
            plugin: plugin.clone(),
            cdi: args.cdi_dir.clone(),
            kubeconfig: kubeconfig.clone(),
        }),
        _ => bail!(
            "no driver is given: --command starts one; --plugin-dir, --registry-dir and --kubeconfig select one that is running"
        ),
    };
    options = options
        .node(&args.node)
        .timeout(Duration::from_secs(args.timeout))
        .quiet(Duration::from_secs(args.quiet))
        .cycles(args.cycles)
        .churn(minutes(args.churn_minutes))
        .jobs(args.jobs.into())
        .cases(&args.cases, &args.skip)?;
    if let Some(driver) = &args.driver {
        options = options.driver(driver);
    }
    if let Some(command) = &args.earlier_command {
        options = options.earlier(command).context("--earlier-command")?;
    }
    if let Some(file) = &args.config {
        let parameters = parameters(file)?;
        options = options
            .parameters(parameters)
            .with_context(|| file.display().to_string())?;
    }
    if let Some(file) = &args.other_config {
        let parameters = parameters(file)?;
        options = options
            .other_parameters(parameters)
            .with_context(|| file.display().to_string())?;
    }
    if let Some(declared) = args.slices_at_exit {
        options = options.slices_at_exit(match declared {
            Slices::Kept => AtExit::Kept,
            Slices::Removed => AtExit::Removed,
        });
    }
    if let Some(file) = &args.expected_failures {
        options = options
            .expected_failures(&read(file)?)
            .with_context(|| file.display().to_string())?;
    }
    Ok(options)
}

fn parameters(file: &Path) -> anyhow::Result<serde_json::Value> {
    let text = read(file)?;
    serde_saphyr::from_str(&text).with_context(|| file.display().to_string())
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        args: DriverArgs,
    }

    /// The result of clap or the command for arguments.
    fn check(arguments: &[&str], expected: Result<(), &str>) {
        let parsed =
            <Parsed as clap::Parser>::try_parse_from([&["driver"][..], arguments].concat());
        let result = match parsed {
            Ok(parsed) => options(&parsed.args)
                .map(drop)
                .map_err(|error| format!("{error:#}")),
            Err(error) => Err(error.to_string()),
        };
        match (result, expected) {
            (Ok(()), Ok(())) => {}
            (Err(text), Err(part)) if text.contains(part) => {}
            (result, expected) => panic!("{arguments:?}: {result:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn arguments_are_checked_before_anything_is_started() {
        check(&["--command", "./d --node {node}"], Ok(()));
        check(
            &["--command", "./d", "--case", "cdi-*", "--skip", "churn"],
            Ok(()),
        );
        check(
            &[
                "--plugin-dir",
                "p",
                "--registry-dir",
                "r",
                "--kubeconfig",
                "k",
            ],
            Ok(()),
        );
        check(&[], Err("no driver is given: "));
        check(
            &["--command", "./d {nod}"],
            Err("unknown placeholder {nod}"),
        );
        check(
            &["--command", "./d", "--case", "nothing"],
            Err("no case matches"),
        );
        check(
            &["--command", "./d", "--kubeconfig", "k"],
            Err("cannot be used with"),
        );
        check(&["--plugin-dir", "p"], Err("--registry-dir"));
        check(&["--command", "./d", "--timeout", "0"], Err("0 is not in"));
        check(
            &["--command", "./d", "--case", "churn", "--skip", "churn"],
            Err("no case is left"),
        );
        check(
            &["--command", "./d", "--case", "churn", "--steps", "3"],
            Err("cannot be used with"),
        );
        check(
            &["--command", "./d", "--config", "/proc/sys/kernel/ostype"],
            Err("parameters are an object"),
        );
        check(
            &["--command", "./d", "--other-config", "f"],
            Err("--config <FILE>"),
        );
        check(&["--command", "./d", "--slices-at-exit", "kept"], Ok(()));
        check(&["--command", "./d", "--churn-minutes", "60"], Ok(()));
        check(
            &["--command", "./d", "--churn-minutes", "60", "--chaos", "7"],
            Err("cannot be used with"),
        );
        check(
            &["--command", "./d", "--expected-failures", "/nowhere"],
            Err("cannot read /nowhere"),
        );
    }
}
