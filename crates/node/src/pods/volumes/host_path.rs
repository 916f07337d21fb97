//! `hostPath` volumes.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::make_dir;
use crate::error::{AtPath as _, PathError};

/// Why a `hostPath` volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::pods) enum HostPathError {
    /// There is nothing at the path, and the type does not create it.
    #[error("hostPath type check failed: {} does not exist", .0.display())]
    Missing(PathBuf),
    /// There is something else at the path.
    #[error("hostPath type check failed: {} is not a {kind}", .path.display())]
    Type { path: PathBuf, kind: String },
    /// What is at the path cannot be examined.
    #[error("hostPath type check failed: {0}")]
    Metadata(std::io::Error),
    /// The path cannot be created or resolved.
    #[error(transparent)]
    File(#[from] PathError),
}

/// The path of a `hostPath` volume on the host, of which the type is checked; some types are created.
pub(super) fn prepare(path: &Path, kind: &str) -> Result<PathBuf, HostPathError> {
    // Without a type nothing is checked; a missing directory is created, as a container runtime would.
    let creates = matches!(kind, "" | "DirectoryOrCreate" | "FileOrCreate");
    if creates && is_missing(path) {
        match kind {
            "FileOrCreate" => make_file(path).at(path)?,
            _ => make_dir(path, 0o755)?,
        }
    }
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => HostPathError::Missing(path.to_owned()),
        _ => HostPathError::Metadata(error),
    })?;
    let fits = match kind {
        "Directory" | "DirectoryOrCreate" => metadata.is_dir(),
        "File" | "FileOrCreate" => metadata.is_file(),
        "Socket" => metadata.file_type().is_socket(),
        "CharDevice" => metadata.file_type().is_char_device(),
        "BlockDevice" => metadata.file_type().is_block_device(),
        // The API server permits no other.
        other => other.is_empty(),
    };
    if !fits {
        let (path, kind) = (path.to_owned(), kind.to_owned());
        return Err(HostPathError::Type { path, kind });
    }
    Ok(path.canonicalize().at(path)?)
}

/// Whether there is nothing at the path. What exists keeps its content and its permissions, also if it cannot be examined.
fn is_missing(path: &Path) -> bool {
    fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn make_file(path: &Path) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    // A file that another process has created meanwhile is not truncated.
    let options = options.create(true).write(true).truncate(false);
    options.mode(0o644).open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The attack: a pod that mounts the socket of a driver got any file that was at the path.
    #[test]
    fn the_types_of_host_paths_are_checked() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "").expect("a file");
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("a socket");
        std::os::unix::fs::symlink("socket", path("link")).expect("a link");
        let all = [
            "",
            "Directory",
            "File",
            "Socket",
            "CharDevice",
            "BlockDevice",
        ];
        let check = |path: &Path, fitting: &[&str]| {
            for kind in all {
                let fits = prepare(path, kind).is_ok();
                assert_eq!(
                    fits,
                    kind.is_empty() || fitting.contains(&kind),
                    "{path:?} {kind}"
                );
            }
        };
        check(directory.path(), &["Directory"]);
        check(&path("file"), &["File"]);
        check(&path("socket"), &["Socket"]);
        check(&path("link"), &["Socket"]);
        check(Path::new("/dev/null"), &["CharDevice"]);
        let error = prepare(&path("file"), "Socket").expect_err("refused");
        assert!(error.to_string().ends_with("is not a Socket"), "{error}");
    }

    /// The attack: `DirectoryOrCreate` gave an existing directory of the host the permissions of a new one. `/root` and the
    /// directories of keys could be entered by every user of the machine, and `/tmp` was no longer for all of them.
    #[test]
    fn regression_existing_host_paths_keep_their_permissions() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o7777;
        let check = |name: &str, kind: &str, before: u32| {
            let permissions = fs::Permissions::from_mode(before);
            fs::set_permissions(path(name), permissions).expect("permissions");
            prepare(&path(name), kind).expect("an existing path");
            assert_eq!(mode(&path(name)), before, "{name} {kind}");
        };
        fs::create_dir(path("directory")).expect("a directory");
        std::os::unix::fs::symlink("directory", path("link")).expect("a link");
        fs::write(path("file"), "content").expect("a file");
        for (before, kind) in [
            (0o700, "DirectoryOrCreate"),
            (0o1777, "DirectoryOrCreate"),
            (0o700, ""),
        ] {
            check("directory", kind, before);
            check("link", kind, before);
        }
        check("file", "FileOrCreate", 0o600);
        let content = fs::read_to_string(path("file")).expect("a file");
        assert_eq!(content, "content");
        prepare(&path("new/directory"), "DirectoryOrCreate").expect("made");
        prepare(&path("new/file"), "FileOrCreate").expect("made");
        assert_eq!(mode(&path("new/directory")), 0o755);
        assert_eq!(mode(&path("new/file")) & !0o022, 0o644 & !0o022);
        prepare(&path("other/file"), "FileOrCreate").expect_err("its directory is not created");
    }
}
