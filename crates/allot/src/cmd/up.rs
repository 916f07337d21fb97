//! `allot up`: a whole cluster on this machine.

pub mod configuration;
pub mod context;
mod detach;

use std::io::{Write as _, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use allot_node::remains;

use crate::cluster::progress::Progress;
use crate::cluster::{self, Cluster, ClusterDirectory, Runtime};
use crate::clusters::record::{self, Record};
use crate::clusters::{self, quoted};
use crate::logging;

/// Flags of `allot up`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  allot up --detach\n  kubectl --kubeconfig ~/.local/share/allot/kubeconfig get resourceslices\n  allot status\n  allot down"
)]
pub struct Args {
    /// Name of the cluster, to run several; its directory is `allot-NAME` beside the default one
    #[arg(long, value_name = "NAME", value_parser = clusters::name)]
    name: Option<String>,
    /// File with flags in YAML, by their names without dashes; the command line takes precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Return when the cluster is ready, and let it run in the background; `allot down` stops it
    #[arg(long)]
    detach: bool,
    /// Log into this file, in files of 10 MiB of which five are kept; with --detach default `logs/allot.log` in the
    /// data directory
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Add a context for the cluster to ~/.kube/config, or to the file in $KUBECONFIG, and make it the current one;
    /// `allot down` removes it and restores the previous one
    #[arg(long)]
    kubeconfig_merge: bool,
    /// This is the process in the background
    #[arg(long, hide = true)]
    detached: bool,
    #[command(flatten)]
    cluster: cluster::Args,
    /// Serve the dashboard as well: for this machine, with a link that is printed when the cluster is ready, and for
    /// readers with a token of the cluster below /dashboard/ of the API server
    #[arg(long)]
    dashboard: bool,
}

impl Args {
    /// The file with further flags.
    #[must_use]
    pub fn config(&self) -> Option<&std::path::Path> {
        self.config.as_deref()
    }

    /// The log goes to a file and not to a terminal.
    #[must_use]
    pub fn logs_into_file(&self) -> bool {
        self.detached || self.log_file.is_some()
    }
}

/// Runs the cluster until it is told to stop.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.detach && !args.detached {
        return detach::run(&args.shown()).map(|()| ExitCode::SUCCESS);
    }
    let detached = args.detached;
    let result = here(args);
    if let (true, Err(error)) = (detached, &result) {
        detach::tell_failure(error);
        if !logging::file::is_used() {
            // The process in the foreground has the same standard error, and tells it there.
            return Ok(ExitCode::FAILURE);
        }
    }
    result.map(|()| ExitCode::SUCCESS)
}

impl Args {
    /// The cluster in the words of the command line.
    fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("cluster {name}"),
            None => "cluster".to_owned(),
        }
    }

    /// The directory of a name that was given instead of one.
    fn place(&mut self) -> anyhow::Result<ClusterDirectory> {
        let server = &mut self.cluster.apiserver;
        if self.name.is_some() && server.data_dir.is_none() && !server.in_memory {
            server.data_dir = Some(clusters::directory(self.name.as_deref(), None)?);
        }
        ClusterDirectory::of(&self.cluster)
    }
}

/// Runs the cluster in this process.
fn here(mut args: Args) -> anyhow::Result<()> {
    let started = Instant::now();
    if args.detached {
        detach::leave_terminal();
    }
    let progress = Progress::on_terminal();
    let place = args.place()?;
    let target = match args.kubeconfig_merge {
        true => Some(context::check(args.name.as_deref(), &place.directory)?),
        false => None,
    };
    let log = match (&args.log_file, args.detached) {
        (Some(file), _) => Some(std::path::absolute(file)?),
        (None, true) => Some(place.directory.join("logs/allot.log")),
        (None, false) => None,
    };
    let end = End {
        flags: clusters::flags(args.name.as_deref(), &place.directory),
        directory: place.directory.clone(),
        temporary: place.is_temporary(),
        runtime: args.cluster.runtime,
        detached: args.detached,
        log: log.clone(),
    };
    if let Some(log) = &log {
        if let Some(pid) = record::holder(&place.directory) {
            // The log is that of the process that runs.
            let locked = allot_store::Error::Locked {
                path: place.directory.clone(),
                holder: format!(" (pid {pid})"),
            };
            return Err(end.explain(locked.into()));
        }
        logging::file::start(log)?;
    }
    let told = progress.clone();
    let mut record = None;
    let result = super::component::block_on(async |shutdown| {
        let mut cluster = tokio::select! {
            started = Cluster::start_at(place, args.cluster, progress) => {
                started.map_err(|error| end.explain(error))?
            }
            () = shutdown.cancelled() => return Ok(()),
        };
        let current = record.insert(Record {
            name: args.name,
            log,
            ..cluster.record()
        });
        write(current);
        tokio::select! {
            ready = cluster.ready() => {
                ready?;
                if let Some(target) = target {
                    context::merge(&target, current)?;
                    current.merged_into = Some(target);
                }
                current.ready = true;
                write(current);
                told.clear();
                // The cluster continues even if the output is closed.
                let _ = writeln!(stdout(), "ready: {} in {} ms, export KUBECONFIG={}\n{}",
                    cluster.url,
                    started.elapsed().as_millis(),
                    quoted(&cluster.kubeconfig),
                    end.promise());
                if args.dashboard {
                    let (client, stop) = (cluster.client.clone(), shutdown.clone());
                    let name = "allot up".to_owned();
                    let link = super::dashboard::beside(client, name.clone(), stop).await?;
                    let path = super::dashboard::on(&cluster.server, name, &cluster.reached);
                    let _ = writeln!(stdout(), "dashboard: {link}\nwith a token of the cluster: {}{path}", cluster.url);
                    current.dashboard = Some(link);
                    write(current);
                }
                if end.detached {
                    detach::leave_output();
                }
            }
            () = shutdown.cancelled() => {}
        }
        let stopping = shutdown.clone();
        let detached = end.detached;
        let say = tokio::spawn(async move {
            stopping.cancelled().await;
            if !detached {
                let _ = writeln!(stderr(), "stopping; once more ends at once");
            }
        });
        let ended = cluster.run(shutdown).await;
        say.abort();
        ended
    });
    told.clear();
    end.report_running_containers(record);
    result
}

/// Writes the record for other commands. The cluster runs even without it.
fn write(record: &Record) {
    if let Err(error) = record.write() {
        tracing::warn!("`allot status` and `allot down` do not know this cluster: {error:#}");
    }
}

/// The system's text for a file system without space.
const NO_SPACE: &str = "No space left on device";

/// What happens at the end, and the messages about it.
struct End {
    /// The flags that select the cluster in other commands.
    flags: String,
    directory: PathBuf,
    temporary: bool,
    runtime: Runtime,
    detached: bool,
    log: Option<PathBuf>,
}

impl End {
    /// Why the cluster did not start, with what to do where another process has the directory, and with the directory where
    /// there is no space left in it.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let Self { flags, .. } = self;
        let locked = |cause: &(dyn std::error::Error + 'static)| {
            matches!(
                cause.downcast_ref::<allot_store::Error>(),
                Some(allot_store::Error::Locked { .. })
            )
        };
        if error.chain().any(locked) {
            return anyhow::anyhow!(
                "{}; `allot status{flags}` says what it is, `allot down{flags}` ends it, and --name NAME starts another cluster",
                crate::describe(&error)
            );
        }
        let full = |cause: &(dyn std::error::Error + 'static)| {
            let io = cause.downcast_ref::<std::io::Error>();
            io.is_some_and(|error| error.kind() == std::io::ErrorKind::StorageFull)
        };
        // The API server in this process answers with a text. Its cause is the system's, as anywhere else.
        let described = || crate::describe(&error).contains(NO_SPACE);
        match error.chain().any(full) || described() {
            true => error.context(format!("cannot write into {}", quoted(&self.directory))),
            false => error,
        }
    }

    /// What continues after its end, for the ready message.
    fn promise(&self) -> String {
        let Self { flags, .. } = self;
        let mut text = match (self.temporary, self.runtime) {
            (true, _) => "nothing keeps running when it ends".to_owned(),
            (false, Runtime::Simulated) => format!(
                "after it has ended, `allot up{flags}` continues from {}",
                quoted(&self.directory)
            ),
            (false, Runtime::Cri) => {
                "containers keep running in the container runtime when it ends, and also after `allot down`: delete their pods before"
                    .to_owned()
            }
            (false, _) => {
                format!(
                    "containers keep running when it ends; `allot down{flags}` stops them as well"
                )
            }
        };
        if let Some(log) = self.log.as_deref().filter(|_| self.detached) {
            text += &format!("\nit runs in the background and logs to {}", quoted(log));
        }
        text
    }

    /// Reports which containers keep running. The record stays while there are any, so that they are found.
    fn report_running_containers(&self, record: Option<Record>) {
        // Containers of a cluster that was never started are another one's.
        let Some(record) = record else {
            return;
        };
        let remaining = match self.temporary || self.runtime == Runtime::Simulated {
            true => Vec::new(),
            false => remains::find(&self.directory),
        };
        if remaining.is_empty() {
            if let (true, Some(merged)) = (self.temporary, &record.merged_into)
                && let Err(error) = context::remove(merged, &record.data_dir)
            {
                let error = crate::describe(&error);
                let _ = writeln!(stderr(), "the context of this cluster stays: {error}");
            }
            record.forget();
            return;
        }
        let names: Vec<String> = remaining.iter().map(remains::Remaining::name).collect();
        let count = super::count(names.len(), "container");
        let _ = writeln!(
            stderr(),
            "{count} {} running: {}; `allot down{flags}` stops {}, `allot up{flags}` adopts {}",
            if names.len() == 1 { "keeps" } else { "keep" },
            super::some(&names),
            if names.len() == 1 { "it" } else { "them" },
            if names.len() == 1 { "it" } else { "them" },
            flags = self.flags,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `the store cannot write: I/O error: No space left on device` did not tell where.
    #[test]
    fn regression_a_full_disk_is_reported_with_the_directory() {
        let end = End {
            flags: String::new(),
            directory: PathBuf::from("/data/allot"),
            temporary: false,
            runtime: Runtime::Auto,
            detached: false,
            log: None,
        };
        let full = || std::io::Error::from(rustix::io::Errno::NOSPC);
        let answer = format!(
            "Internal error occurred: the store cannot write: {}",
            full()
        );
        let answer = Box::new(kube::core::Status::failure(&answer, "InternalError").with_code(500));
        for error in [
            anyhow::Error::new(full()),
            anyhow::Error::new(kube::Error::Api(answer)),
        ] {
            let text = crate::describe(&end.explain(error));
            assert!(
                text.starts_with("cannot write into /data/allot: ") && text.contains(NO_SPACE),
                "{text}"
            );
        }
    }
}
