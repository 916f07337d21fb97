//! A cluster's context in the user's kubeconfig.
//!
//! Entries of a cluster carry an extension that identifies its directory: only those are ever replaced or removed. The
//! file is locked with kubectl's own lock and replaced as a whole, readable by its user alone; comments do not survive,
//! as with `kubectl config`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use allot_apiserver::pki::write_private;
use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::clusters::record::Record;

/// Name of the extension.
const EXTENSION: &str = "allot.dev/cluster";

/// Largest kubeconfig.
const LARGEST: u64 = 16 << 20;

/// How long another program may hold the file.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lists of a kubeconfig, with the member of their entries.
const LISTS: [(&str, &str); 3] = [
    ("clusters", "cluster"),
    ("users", "user"),
    ("contexts", "context"),
];

/// The kubeconfig to change: of those in `$KUBECONFIG` the first that exists, as for kubectl; else `~/.kube/config`.
fn target() -> anyhow::Result<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        let files: Vec<PathBuf> = std::env::split_paths(&list)
            .filter(|file| !file.as_os_str().is_empty())
            .collect();
        let chosen = files.iter().find(|file| file.exists()).or(files.last());
        let chosen = chosen.context("$KUBECONFIG names no file")?;
        return Ok(std::path::absolute(chosen)?);
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    let home = home.context("--kubeconfig-merge: HOME is not set; name a file in KUBECONFIG")?;
    Ok(home.join(".kube/config"))
}

/// The name of a cluster's context.
fn context_name(name: Option<&str>) -> String {
    name.map_or_else(|| "allot".to_owned(), |name| format!("allot-{name}"))
}

/// The kubeconfig for a cluster's context, checked before the cluster is started.
///
/// # Errors
/// There is no such file, it cannot be read, or it has an entry of that name that is not this cluster's.
pub fn check(name: Option<&str>, directory: &Path) -> anyhow::Result<PathBuf> {
    let target = target()?;
    let config = read(&target)?;
    free(&config, &context_name(name), directory)
        .with_context(|| format!("--kubeconfig-merge: {}", target.display()))?;
    Ok(target)
}

/// Adds the context of a cluster to a kubeconfig and makes it the current one.
///
/// # Errors
/// The file cannot be changed, or has an entry of that name that is not this cluster's.
pub fn merge(target: &Path, record: &Record) -> anyhow::Result<()> {
    let own = read(&record.kubeconfig)?;
    edit(target, |config| {
        let name = context_name(record.name.as_deref());
        free(config, &name, &record.data_dir)?;
        take_away(config, &record.data_dir);
        let before = config["current-context"].as_str().unwrap_or_default();
        let extension = json!({"dataDir": record.data_dir, "previousContext": before});
        let owner = json!([{"name": EXTENSION, "extension": extension}]);
        for (list, holds) in LISTS {
            let mut content = match list {
                "contexts" => json!({"cluster": name, "user": name}),
                _ => own[list][0][holds].clone(),
            };
            ensure!(
                content.is_object(),
                "{} has no {list}",
                record.kubeconfig.display()
            );
            content["extensions"] = owner.clone();
            entries(config, list)?.push(json!({"name": name, holds: content}));
        }
        config["current-context"] = json!(name);
        config["apiVersion"] = json!("v1");
        config["kind"] = json!("Config");
        Ok(true)
    })
    .with_context(|| format!("--kubeconfig-merge: {}", target.display()))
}

/// Removes the entries of a cluster from a kubeconfig, if there are any.
///
/// # Errors
/// The file cannot be changed.
pub fn remove(target: &Path, directory: &Path) -> anyhow::Result<bool> {
    if !target.exists() {
        return Ok(false);
    }
    let mut removed = false;
    edit(target, |config| {
        removed = take_away(config, directory);
        Ok(removed)
    })
    .with_context(|| target.display().to_string())?;
    Ok(removed)
}

/// Whether an entry is of the cluster in a directory.
fn is_of(entry: &Value, holds: &str, directory: &Path) -> bool {
    owner(entry, holds).is_some_and(|owner| owner == directory)
}

/// The directory of the cluster that an entry is of, if it is one of ours.
fn owner(entry: &Value, holds: &str) -> Option<PathBuf> {
    let extensions = entry[holds]["extensions"].as_array()?;
    let own = extensions.iter().find(|it| it["name"] == EXTENSION)?;
    Some(own["extension"]["dataDir"].as_str()?.into())
}

/// The field of a context's extension with the context that was current before it, if the entry is one of ours.
fn previous_context(entry: &mut Value) -> Option<&mut Value> {
    let extensions = entry.get_mut("context")?.get_mut("extensions")?;
    let mut own = extensions.as_array_mut()?.iter_mut();
    let own = own.find(|it| it["name"] == EXTENSION)?;
    own.get_mut("extension")?.get_mut("previousContext")
}

/// Checks that a name can be used: it is free, or belongs to this cluster or to one whose directory was deleted.
fn free(config: &Value, name: &str, directory: &Path) -> anyhow::Result<()> {
    for (list, holds) in LISTS {
        for entry in config[list].as_array().into_iter().flatten() {
            if entry["name"] != name {
                continue;
            }
            match owner(entry, holds) {
                Some(owner) if owner == directory || !owner.exists() => {}
                Some(owner) => bail!(
                    "{name:?} in {list} is the cluster in {}; give this one another --name",
                    owner.display()
                ),
                None => {
                    bail!("{name:?} in {list} is not of `allot up`; give this cluster a --name")
                }
            }
        }
    }
    Ok(())
}

/// Removes the entries of a cluster, and those of the same names whose directories were deleted. If a removed context
/// is the current one, the context before it becomes current again.
fn take_away(config: &mut Value, directory: &Path) -> bool {
    let mut removed = false;
    let mut before = BTreeMap::new();
    for (list, holds) in LISTS {
        let Some(entries) = config[list].as_array_mut() else {
            continue;
        };
        entries.retain_mut(|entry| {
            let gone = owner(entry, holds).is_some_and(|owner| !owner.exists());
            let goes = gone || is_of(entry, holds, directory);
            removed |= goes;
            if goes && list == "contexts" {
                let previous = previous_context(entry).map(|it| it.take());
                let previous = previous.filter(Value::is_string).unwrap_or(json!(""));
                before.insert(entry["name"].to_string(), previous);
            }
            !goes
        });
    }
    // Clusters end in any order: a context that stays must not lead back to a removed one.
    let contexts = config["contexts"].as_array_mut();
    for previous in contexts.into_iter().flatten().filter_map(previous_context) {
        follow(previous, &before);
    }
    if let Some(mut current) = config.get("current-context").cloned()
        && follow(&mut current, &before)
    {
        let contexts = config["contexts"].as_array();
        if contexts.is_none_or(|all| all.iter().all(|entry| entry["name"] != current)) {
            current = json!("");
        }
        config["current-context"] = current;
    }
    removed
}

/// Replaces the name of a removed context by that of the newest context before it that stays. Returns whether it did.
fn follow(name: &mut Value, before: &BTreeMap<String, Value>) -> bool {
    let mut followed = false;
    // A file that was edited by hand may lead in a circle.
    for _ in 0..before.len() {
        let Some(previous) = before.get(&name.to_string()) else {
            break;
        };
        *name = previous.clone();
        followed = true;
    }
    followed
}

fn entries<'a>(config: &'a mut Value, list: &str) -> anyhow::Result<&'a mut Vec<Value>> {
    let entries = &mut config[list];
    if entries.is_null() {
        *entries = json!([]);
    }
    entries
        .as_array_mut()
        .with_context(|| format!("{list} is no list"))
}

/// A kubeconfig; an empty one if there is no file.
fn read(path: &Path) -> anyhow::Result<Value> {
    let cannot = || format!("cannot read the kubeconfig {}", path.display());
    let text = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(cannot),
        Ok(file) => {
            ensure!(
                file.len() <= LARGEST,
                "{}: longer than {LARGEST} bytes",
                cannot()
            );
            std::fs::read_to_string(path).with_context(cannot)?
        }
    };
    let config: Option<Value> = serde_saphyr::from_str(&text).with_context(cannot)?;
    let config = config
        .filter(|config| !config.is_null())
        .unwrap_or_else(|| json!({}));
    ensure!(config.is_object(), "{}: it is no mapping", cannot());
    Ok(config)
}

/// Changes a kubeconfig. The result is written if `change` returns true.
fn edit(
    path: &Path,
    change: impl FnOnce(&mut Value) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    // A symbolic link is kept.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let _lock = Lock::take(&path)?;
    let mut config = read(&path)?;
    if !change(&mut config)? {
        return Ok(());
    }
    let mut text = serde_saphyr::to_string(&config)?;
    let same = serde_saphyr::from_str::<Value>(&text).is_ok_and(|again| again == config);
    if !same {
        // JSON is valid YAML, and unambiguous.
        text = serde_json::to_string_pretty(&config)?;
    }
    let before = std::fs::metadata(&path).ok();
    write_private(&path, &text)?;
    if let Some(before) = before {
        // For root in the home directory of another user.
        let _ = std::os::unix::fs::chown(&path, Some(before.uid()), Some(before.gid()));
    }
    Ok(())
}

/// The lock that kubectl takes before it writes a kubeconfig: a file beside it.
struct Lock(PathBuf);

impl Lock {
    fn take(path: &Path) -> anyhow::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let made = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&lock);
            match made {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(error).with_context(|| lock.display().to_string());
                }
                Err(_) if Instant::now() > deadline => bail!(
                    "{} exists: another program changes the file, or was killed while it did; then remove it",
                    lock.display()
                ),
                // There is no event for it in kubectl's protocol.
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests;
