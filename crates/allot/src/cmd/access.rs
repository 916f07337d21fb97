//! Finding the cluster as kubectl does: kubeconfig files, contexts, the service account of a pod. Without any of these,
//! the cluster of `allot up` on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kube::config::Kubeconfig;

use super::component::{self, Watches};
use crate::clusters::record::{self, Record};
use crate::clusters::{default_directory, flags, registry};

/// The selected cluster and identity.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Access {
    /// Kubeconfig of the API server; default: $KUBECONFIG, ~/.kube/config, the pod's service account, or `allot up`'s
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use instead of its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// The parts of the process's environment that select the cluster.
#[derive(Debug, Default)]
struct Surroundings {
    /// `$KUBECONFIG`
    kubeconfig: Option<OsString>,
    /// `~/.kube/config`, if it exists.
    home: Option<PathBuf>,
    /// It is in a pod with a service account.
    in_pod: bool,
    /// The kubeconfig of `allot up`, if it exists.
    up: Option<PathBuf>,
    /// Those of other clusters of `allot up` that run, such as `allot up --name NAME`.
    others: Vec<PathBuf>,
}

/// The source of the configuration.
#[derive(Debug, PartialEq, Eq)]
enum ConfigSource {
    /// These files; the first one takes precedence.
    Files(Vec<PathBuf>),
    /// In the pod's service account.
    Pod,
    /// In the kubeconfig of `allot up`.
    Up(PathBuf),
}

impl Access {
    /// As the flags with these values select it.
    pub fn of(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self {
            kubeconfig,
            context,
        }
    }

    /// Whether a flag selects the cluster.
    pub fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// A client for the cluster. `agent` is the name of the command: the server shows it as the manager of fields.
    ///
    /// # Errors
    /// No cluster is found, or the kubeconfig cannot be used; the message lists the sources.
    pub async fn client(&self, agent: &str) -> anyhow::Result<kube::Client> {
        component::connect(self.find().await?, agent, Watches::Apart)
    }

    /// How to reach the cluster.
    ///
    /// # Errors
    /// As [`Access::client`].
    pub async fn find(&self) -> anyhow::Result<kube::Config> {
        self.config(&Surroundings::of_process()).await
    }

    async fn config(&self, around: &Surroundings) -> anyhow::Result<kube::Config> {
        let files = match self.place(around)? {
            ConfigSource::Pod => {
                anyhow::ensure!(
                    self.context.is_none(),
                    "--context needs a kubeconfig, and there is none: name one with --kubeconfig"
                );
                return kube::Config::incluster().context("the pod's service account");
            }
            ConfigSource::Up(file) => {
                let hint = match runs(file.parent().unwrap_or(&file)) {
                    true => "",
                    false => ", which does not run: `allot up` starts it",
                };
                eprintln!(
                    "no kubeconfig found: using {} of allot up{hint}",
                    file.display()
                );
                vec![file]
            }
            ConfigSource::Files(files) => {
                for file in &files {
                    if let Some(directory) = stopped(file) {
                        let flags = flags(None, &directory);
                        eprintln!(
                            "no server seems to run in {}: `allot up{flags}` starts it",
                            directory.display()
                        );
                    }
                }
                files
            }
        };
        let mut merged: Option<Kubeconfig> = None;
        for file in &files {
            let cannot = || format!("cannot read kubeconfig {}", file.display());
            let next = component::read_kubeconfig(file)?;
            merged = Some(match merged {
                None => next,
                Some(before) => before.merge(next).with_context(cannot)?,
            });
        }
        let merged = merged.unwrap_or_default();
        component::of_context(merged, self.context.as_deref(), &shown(&files)).await
    }

    fn place(&self, around: &Surroundings) -> anyhow::Result<ConfigSource> {
        if let Some(file) = &self.kubeconfig {
            return Ok(ConfigSource::Files(vec![file.clone()]));
        }
        let named = around.kubeconfig.as_ref().filter(|list| !list.is_empty());
        if let Some(list) = named {
            let all: Vec<PathBuf> = std::env::split_paths(list)
                .filter(|file| !file.as_os_str().is_empty())
                .collect();
            // As for kubectl, files of the list that do not exist are skipped.
            let there: Vec<PathBuf> = all.iter().filter(|f| f.exists()).cloned().collect();
            if !there.is_empty() {
                return Ok(ConfigSource::Files(there));
            }
            anyhow::ensure!(
                around.in_pod,
                "$KUBECONFIG names {}, which does not exist",
                shown(&all)
            );
        }
        if let (None, Some(file)) = (named, &around.home) {
            return Ok(ConfigSource::Files(vec![file.clone()]));
        }
        if around.in_pod {
            return Ok(ConfigSource::Pod);
        }
        match (&around.up, around.others.as_slice()) {
            (Some(file), _) => Ok(ConfigSource::Up(file.clone())),
            (None, [only]) => Ok(ConfigSource::Up(only.clone())),
            (None, [_, _, ..]) => anyhow::bail!(
                "several clusters of `allot up` run: name one of their kubeconfigs with --kubeconfig: {}",
                shown(&around.others)
            ),
            (None, []) => anyhow::bail!(
                "no cluster found: there is no $KUBECONFIG, no ~/.kube/config, no service account of a pod and no `allot up`; name a kubeconfig with --kubeconfig"
            ),
        }
    }
}

impl Surroundings {
    fn of_process() -> Self {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
        let config = home.map(|home| Path::new(&home).join(".kube/config"));
        let up = default_directory().ok().map(|d| d.join("kubeconfig"));
        let account = Path::new("/var/run/secrets/kubernetes.io/serviceaccount/token");
        let host = std::env::var_os("KUBERNETES_SERVICE_HOST");
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            home: config.filter(|file| file.exists()),
            in_pod: host.is_some_and(|host| !host.is_empty()) && account.exists(),
            up: up.filter(|file| file.exists()),
            others: registry::all()
                .into_iter()
                .filter(|record| record.alive().is_some() && record.kubeconfig.exists())
                .map(|record| record.kubeconfig)
                .collect(),
        }
    }
}

/// Whether a cluster or a part of it runs in a data directory.
fn runs(directory: &Path) -> bool {
    let record = Record::of(directory);
    record.and_then(|record| record.alive()).is_some() || record::holder(directory).is_some()
}

/// The data directory that a kubeconfig is in, if nothing runs there: a server that was stopped is the likely reason for
/// one that does not answer.
fn stopped(kubeconfig: &Path) -> Option<PathBuf> {
    let directory = std::path::absolute(kubeconfig.parent()?).ok()?;
    let has_store = directory.join(allot_store::FILE_NAME).exists();
    // Without that table, or for another user's cluster, nothing is known.
    let is_readable = match std::fs::File::open(directory.join("lock")) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    let is_known = Path::new("/proc/locks").exists() && is_readable;
    (has_store && is_known && !runs(&directory)).then_some(directory)
}

fn shown(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
