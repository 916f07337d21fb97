//! `allot snapshot`: everything of a cluster that determines where pods with devices are placed, in one file.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kube::Client;
use serde_json::json;

use super::access::Access;
use super::component;

mod contents;
mod current;
mod definitions;
mod events;
mod read;
mod redact;
mod served;
mod watch;

pub use contents::{Hidden, Snapshot, names};
pub use current::completed;
pub use definitions::definitions;
pub use events::{PodEvent, of_pod, read as read_events};
pub use read::{Kinds, api_error, is_away};
pub use served::Served;
pub use watch::watch;

/// Flags of `allot snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is a List as kubectl writes it: nodes, pods, claims, templates, classes,
slices, taint rules, volumes and what they are bound to, without Secrets, ConfigMaps
and events; with the time, and the feature gates if the API server shows its metrics.
Values of environment variables, commands, probes, termination messages and annotations
are left out unless --with-values asks for them. Names, labels and the parameters of
drivers stay: look at the file before you pass it on.

  allot snapshot --out monday.json.gz
  allot explain train-0 --from monday.json.gz
  allot devices --from monday.json.gz")]
pub struct Args {
    /// Output file, compressed if the name ends in .gz; default: standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
    /// Keep environment values, commands, probes, termination messages and all annotations, which may be confidential
    #[arg(long)]
    with_values: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::read(async move {
        let client = args.access.client("allot-snapshot").await?;
        let mut snapshot = Snapshot::take(&client, Kinds::All, None).await?;
        if !args.with_values {
            snapshot.objects.iter_mut().for_each(redact::redact);
        }
        write(args.out.as_deref(), &snapshot)
    })
}

fn write(file: Option<&Path>, snapshot: &Snapshot) -> anyhow::Result<()> {
    let list = json!({
        "apiVersion": "v1", "kind": "List", "items": snapshot.objects, "snapshot": snapshot.about,
    });
    let mut bytes = serde_json::to_vec(&list)?;
    bytes.push(b'\n');
    let Some(file) = file else {
        std::io::stdout().write_all(&bytes)?;
        return Ok(());
    };
    if file.extension().is_some_and(|e| e == "gz") {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&bytes)?;
        bytes = encoder.finish()?;
    }
    let name = file.display().to_string();
    let cannot = || format!("cannot write {name}");
    // What a link points to is meant, and a pipe or a device is written into.
    let file = &std::fs::canonicalize(file).unwrap_or(file.to_owned());
    if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(file, &bytes).with_context(cannot);
    }
    // Atomically: an incomplete snapshot would look like a smaller cluster.
    let folder = file.parent().filter(|f| !f.as_os_str().is_empty());
    let part = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")));
    let mut part = part.map_err(without_path).with_context(cannot)?;
    let written = part.write_all(&bytes).map_err(without_path);
    written.with_context(cannot)?;
    part.persist(file)
        .map_err(|error| without_path(error.error))
        .with_context(cannot)?;
    Ok(())
}

/// The system's error, without the name of the temporary file.
fn without_path(error: std::io::Error) -> std::io::Error {
    // The library does not expose the system's error code.
    let text = error.to_string();
    let said = text.split(" at path ").next().unwrap_or_default();
    std::io::Error::new(error.kind(), said)
}

/// The source of the cluster's state for commands that read it.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// Read a file that `allot snapshot` or `kubectl get` wrote instead of a cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

impl Source {
    /// Whether a flag selects the source.
    pub fn is_given(&self) -> bool {
        self.from.is_some() || self.access.is_given()
    }

    /// The state of the cluster; `namespace` is the one that was requested.
    ///
    /// # Errors
    /// The file cannot be read, or the server does not answer or does not have a kind that is needed.
    pub async fn snapshot(
        &self,
        kinds: Kinds,
        namespace: Option<&str>,
    ) -> anyhow::Result<Snapshot> {
        Ok(self.snapshot_and_client(kinds, namespace).await?.0)
    }

    /// Like [`Source::snapshot`], with the client if the source is a cluster.
    ///
    /// # Errors
    /// As [`Source::snapshot`].
    pub async fn snapshot_and_client(
        &self,
        kinds: Kinds,
        namespace: Option<&str>,
    ) -> anyhow::Result<(Snapshot, Option<Client>)> {
        if let Some(file) = &self.from {
            return Ok((Snapshot::load(file)?, None));
        }
        let client = self.access.client("allot").await?;
        let snapshot = Snapshot::take(&client, kinds, namespace).await?;
        Ok((snapshot, Some(client)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_temporary_file_is_not_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("missing").join("now.json");
        let error = write(Some(&file), &Snapshot::default()).expect_err("no directory");
        let expected = format!(
            "cannot write {}: No such file or directory (os error 2)",
            file.display()
        );
        assert_eq!(format!("{error:#}"), expected);
    }

    #[test]
    fn regression_a_link_stays_a_link_and_a_pipe_a_pipe() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "before").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        let snapshot = Snapshot {
            objects: vec![json!({"kind": "Node"})],
            ..Snapshot::default()
        };
        write(Some(&link), &snapshot).expect("written");
        assert!(link.is_symlink());
        let loaded = Snapshot::load(&file).expect("a list");
        assert_eq!(loaded.objects, [json!({"kind": "Node"})]);
        write(Some(Path::new("/dev/null")), &snapshot).expect("written");
        assert!(!Path::new("/dev/null").is_file());
    }
}
