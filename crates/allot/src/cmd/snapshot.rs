//! `allot snapshot`: everything of a cluster that decides where pods with devices go, in one file.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::component;

mod read;

pub use read::{Kinds, read};

/// Flags of `allot snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is a List as kubectl writes it: nodes, pods, claims, templates, classes,
slices, taint rules, volumes and what they are bound to, without Secrets, ConfigMaps
and events. Pods keep their environment and commands: look before you pass it on.

  allot snapshot --out monday.json.gz
  allot explain train-0 --from monday.json.gz
  allot devices --from monday.json.gz")]
pub struct Args {
    /// Where to write it, compressed if the name ends in .gz; standard output when absent
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Kubeconfig of the API server; default: $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(async move |_| {
        let client = component::client(args.kubeconfig.as_deref(), "allot-snapshot").await?;
        let objects = read(&client, Kinds::All).await?;
        write(args.out.as_deref(), &objects)
    })
}

fn write(file: Option<&Path>, objects: &[Value]) -> anyhow::Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
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
    // In one piece: half a snapshot would look like a smaller cluster.
    let folder = file.parent().filter(|f| !f.as_os_str().is_empty());
    let mut part =
        tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).with_context(cannot)?;
    part.write_all(&bytes).with_context(cannot)?;
    part.persist(file).with_context(cannot)?;
    Ok(())
}

/// The objects of a file that this command wrote, or `kubectl get -o json`.
///
/// # Errors
/// The file can not be read, or is something else; the message names it.
pub fn load(file: &Path) -> anyhow::Result<Vec<Value>> {
    let bytes = super::allocate::read(Some(file))?;
    let list: Value =
        serde_json::from_slice(&bytes).with_context(|| format!("{} is no JSON", file.display()))?;
    match list {
        Value::Object(mut list) => match list.remove("items") {
            Some(Value::Array(mut items)) => {
                // The items of a typed list do not say what they are.
                let of = list.get("kind").and_then(Value::as_str).unwrap_or_default();
                let of = of.strip_suffix("List").filter(|kind| !kind.is_empty());
                for item in items.iter_mut().filter(|item| item["kind"].is_null()) {
                    item["kind"] = of.into();
                }
                Ok(items)
            }
            _ => anyhow::bail!("{} is no list of objects", file.display()),
        },
        _ => anyhow::bail!("{} is no list of objects", file.display()),
    }
}

/// Where commands that look at a cluster find it.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// Look at a file that `allot snapshot` wrote instead of at a cluster
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    from: Option<PathBuf>,
    /// Kubeconfig of the API server; default: $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Source {
    /// The objects, and the namespace that is meant where none is given.
    ///
    /// # Errors
    /// The file can not be read, or the server does not answer or refuses a kind that is needed.
    pub async fn objects(&self, kinds: Kinds) -> anyhow::Result<(Vec<Value>, String)> {
        if let Some(file) = &self.from {
            return Ok((load(file)?, "default".to_owned()));
        }
        let client = component::client(self.kubeconfig.as_deref(), "allot").await?;
        let namespace = client.default_namespace().to_owned();
        Ok((read(&client, kinds).await?, namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_link_stays_a_link_and_a_pipe_a_pipe() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "before").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        write(Some(&link), &[json!({"kind": "Node"})]).expect("written");
        assert!(link.is_symlink());
        assert_eq!(load(&file).expect("a list"), [json!({"kind": "Node"})]);
        write(Some(Path::new("/dev/null")), &[]).expect("written");
        assert!(!Path::new("/dev/null").is_file());
    }

    #[test]
    fn items_of_typed_lists_are_of_their_kind() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("pods.json");
        std::fs::write(&file, r#"{"kind": "PodList", "items": [{}]}"#).expect("written");
        assert_eq!(load(&file).expect("a list"), [json!({"kind": "Pod"})]);
    }
}
