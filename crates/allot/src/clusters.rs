//! The clusters of `allot up` on this machine: their directories, and the processes that run them.

pub mod record;
pub mod registry;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The name of the default cluster in lists of clusters.
pub const UNNAMED: &str = "default";

/// Which cluster a command is about.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(id = "which")]
pub struct ClusterSelection {
    /// Name of the cluster, as given to `allot up`
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// Data directory of the cluster; default `allot` in $XDG_DATA_HOME or ~/.local/share
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl ClusterSelection {
    /// The cluster's directory.
    ///
    /// # Errors
    /// There is no home directory, and no flag names one; or the cluster in the directory has another name.
    pub fn directory(&self) -> anyhow::Result<PathBuf> {
        if let (Some(name), Some(directory)) = (&self.name, &self.data_dir) {
            let directory = std::path::absolute(directory)?;
            let mut known = registry::all().into_iter();
            let known = known.rfind(|record| record.data_dir == directory);
            let known = known.or_else(|| record::Record::of(&directory));
            if let Some(other) = known.filter(|record| record.name.as_ref() != Some(name)) {
                let called = match &other.name {
                    Some(name) => format!("is called {name}"),
                    None => "has no name".to_owned(),
                };
                let shown = directory.display();
                anyhow::bail!(
                    "the cluster in {shown} {called}, not {name}: pass only one of --name and --data-dir"
                );
            }
            return Ok(directory);
        }
        if let Some(name) = &self.name {
            // One in memory, or one whose directory was named as well.
            let mut known = registry::all().into_iter().rev();
            if let Some(record) = known.find(|record| record.name.as_ref() == Some(name)) {
                return Ok(record.data_dir);
            }
        }
        directory(self.name.as_deref(), self.data_dir.as_deref())
    }
}

/// The directory of a cluster: the one that was named, or else the one for its name.
///
/// # Errors
/// There is no home directory, and no directory was named.
pub fn directory(name: Option<&str>, data_dir: Option<&Path>) -> anyhow::Result<PathBuf> {
    match (data_dir, name) {
        (Some(directory), _) => Ok(std::path::absolute(directory)?),
        // Next to the default directory and not in it, so that socket paths stay short.
        (None, Some(name)) => Ok(default_directory()?.with_file_name(format!("allot-{name}"))),
        (None, None) => default_directory(),
    }
}

/// The directory of a cluster whose user named none: `$XDG_DATA_HOME/allot`.
///
/// # Errors
/// There is no home directory.
pub fn default_directory() -> anyhow::Result<PathBuf> {
    below_home("XDG_DATA_HOME", ".local/share").context(
        "no home directory is known (HOME is not set or no absolute path); pass --data-dir",
    )
}

/// `allot` in the directory of a variable, or else below the home directory.
fn below_home(variable: &str, default: &str) -> Option<PathBuf> {
    let absolute = |variable: &str| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(default)))?;
    Some(base.join("allot"))
}

/// A name that is good for a directory and for a context of a kubeconfig.
///
/// # Errors
/// It is not.
pub fn name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 32;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let good = bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
        && bytes.first().is_some_and(|byte| plain(*byte))
        && bytes.last().is_some_and(|byte| plain(*byte))
        && bytes.len() <= LONGEST;
    match good {
        true if text == UNNAMED => Err(format!(
            "{UNNAMED} is the cluster without a name: leave --name out"
        )),
        true => Ok(text.to_owned()),
        false => Err(format!(
            "a name has at most {LONGEST} lower case letters, digits and '-', and begins and ends with a letter or digit"
        )),
    }
}

/// A path as a shell argument: in quotes if needed.
#[must_use]
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The flags that select this cluster in other commands: empty for the default one.
#[must_use]
pub fn flags(name: Option<&str>, directory: &Path) -> String {
    let is = |name: Option<&str>| self::directory(name, None).is_ok_and(|it| it == directory);
    match name {
        Some(name) if is(Some(name)) => format!(" --name {name}"),
        _ if is(None) => String::new(),
        _ => format!(" --data-dir {}", quoted(directory)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_good_for_directories() {
        for good in ["a", "dev-1", "0"] {
            assert_eq!(name(good), Ok(good.to_owned()));
        }
        let long = "a".repeat(33);
        // It was another cluster than the one that `allot status` calls so.
        for bad in [
            "default",
            "",
            "-a",
            "a-",
            "A",
            "a/b",
            "..",
            "a b",
            "ä",
            long.as_str(),
        ] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_are_quoted_where_a_shell_needs_it() {
        for (path, expected) in [
            ("/home/me/.local/share/allot", "/home/me/.local/share/allot"),
            ("/tmp/a b", "'/tmp/a b'"),
            ("/tmp/it's", r"'/tmp/it'\''s'"),
            ("/tmp/$HOME", "'/tmp/$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
