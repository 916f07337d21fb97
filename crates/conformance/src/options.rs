//! What to run, and against what.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::command::{Command, CommandError};
use crate::selection::Selection;

/// The driver under test.
#[derive(Debug, Clone)]
pub enum Target {
    /// The test kit starts, kills and restarts it, for each case with its own node and API server.
    Command(Command),
    /// It runs already. Cases that restart it or disturb its connections are skipped.
    Running {
        /// Directory of the driver's registration socket: `plugins_registry` of the kubelet. No kubelet may watch it.
        registry: PathBuf,
        /// The driver's own directory.
        plugin: PathBuf,
        /// Directory of its CDI files.
        cdi: PathBuf,
        /// The API server that it uses. The test kit creates and deletes claims in the namespace `default`.
        kubeconfig: PathBuf,
    },
}

/// What a driver does with its slices when it ends in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtExit {
    /// They stay: the driver is back soon, and a kubelet deletes them if it is not.
    Kept,
    /// They are deleted.
    Removed,
}

impl fmt::Display for AtExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "kept",
            Self::Removed => "removed",
        })
    }
}

/// How to run the kit.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) target: Target,
    pub(crate) earlier: Option<Command>,
    pub(crate) node: String,
    pub(crate) driver: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) quiet: Duration,
    pub(crate) cycles: u32,
    pub(crate) churn: Duration,
    pub(crate) jobs: usize,
    pub(crate) parameters: Option<serde_json::Value>,
    pub(crate) other_parameters: Option<serde_json::Value>,
    pub(crate) slices_at_exit: Option<AtExit>,
    pub(crate) selection: Selection,
}

/// Options that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The command line of the driver.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A pattern that matches no case.
    #[error("no case matches {0:?}")]
    Pattern(String),
    /// Every case that was selected is left out as well.
    #[error("no case is left to try")]
    NoCase,
    /// Opaque parameters that are no object, or do not say of which kind they are.
    #[error("parameters are an object with apiVersion and kind")]
    Parameters,
    /// A line of the list of expected failures that names no case.
    #[error("expected failures, line {line}: there is no case {name:?}")]
    Expected {
        /// The line, from 1.
        line: usize,
        /// The name.
        name: String,
    },
}

impl Options {
    /// Runs `command`, with the placeholders of [`crate::PLACEHOLDERS`], as the driver.
    ///
    /// # Errors
    /// A command line that cannot be used.
    pub fn command(command: &str) -> Result<Self, OptionsError> {
        Ok(Self::new(Target::Command(Command::parse(command)?)))
    }

    /// With the defaults: node `node-0`, waits of at most 60 s, one case at a time, 200 cycles of churn.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            earlier: None,
            node: "node-0".to_owned(),
            driver: None,
            timeout: Duration::from_secs(60),
            quiet: Duration::from_secs(3),
            cycles: 200,
            churn: Duration::ZERO,
            jobs: 1,
            parameters: None,
            other_parameters: None,
            slices_at_exit: None,
            selection: Selection::default(),
        }
    }

    /// The command of an earlier release of the driver, with the same placeholders, for the case about upgrades.
    ///
    /// # Errors
    /// A command line that cannot be used.
    pub fn earlier(mut self, command: &str) -> Result<Self, OptionsError> {
        self.earlier = Some(Command::parse(command)?);
        Ok(self)
    }

    /// Name of the node.
    #[must_use]
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = name.into();
        self
    }

    /// Name of the driver, for a process that registers several.
    #[must_use]
    pub fn driver(mut self, name: impl Into<String>) -> Self {
        self.driver = Some(name.into());
        self
    }

    /// Time limit of each wait. A helper that repairs slices after 30 s needs more than that.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long to check that something does not happen, for example writes without a change.
    #[must_use]
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    /// How many claims are prepared and unprepared to find leaks.
    #[must_use]
    pub fn cycles(mut self, cycles: u32) -> Self {
        self.cycles = cycles.max(20);
        self
    }

    /// How long claims are prepared and unprepared to find leaks, at least; more of them than [`Options::cycles`] if there is time.
    #[must_use]
    pub fn churn(mut self, time: Duration) -> Self {
        self.churn = time;
        self
    }

    /// How many cases run at the same time. A driver of real hardware, or of a running process, allows one.
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = jobs.max(1);
        self
    }

    /// Opaque parameters that the driver accepts, for the cases about parameters.
    ///
    /// # Errors
    /// They are no object with `apiVersion` and `kind`.
    pub fn parameters(mut self, parameters: serde_json::Value) -> Result<Self, OptionsError> {
        self.parameters = Some(of_a_kind(parameters)?);
        Ok(self)
    }

    /// Opaque parameters that the driver accepts as well, with another effect on containers: for the case about the priority of
    /// parameters.
    ///
    /// # Errors
    /// They are no object with `apiVersion` and `kind`.
    pub fn other_parameters(mut self, parameters: serde_json::Value) -> Result<Self, OptionsError> {
        self.other_parameters = Some(of_a_kind(parameters)?);
        Ok(self)
    }

    /// What the driver does with its slices when it ends in order. Without this, it may do either.
    #[must_use]
    pub fn slices_at_exit(mut self, declared: AtExit) -> Self {
        self.slices_at_exit = Some(declared);
        self
    }

    pub(crate) fn is_command(&self) -> bool {
        matches!(self.target, Target::Command(_))
    }
}

fn of_a_kind(parameters: serde_json::Value) -> Result<serde_json::Value, OptionsError> {
    let fields = ["apiVersion", "kind"];
    match fields.iter().all(|field| parameters[*field].is_string()) {
        true => Ok(parameters),
        false => Err(OptionsError::Parameters),
    }
}
