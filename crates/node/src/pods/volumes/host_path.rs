//! `hostPath` volumes.

use std::fs;
use std::os::unix::fs::FileTypeExt;
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
    /// A directory that was created cannot be examined.
    #[error(transparent)]
    Metadata(std::io::Error),
    /// The path cannot be created or resolved.
    #[error(transparent)]
    File(#[from] PathError),
}

/// The path of a `hostPath` volume on the host, of which the type is checked; some types are created.
pub(super) fn prepare(path: &Path, kind: &str) -> Result<PathBuf, HostPathError> {
    match kind {
        "DirectoryOrCreate" => make_dir(path, 0o755)?,
        "FileOrCreate" if !path.exists() => {
            fs::write(path, "").at(path)?;
        }
        _ => {}
    }
    let metadata = fs::metadata(path).map_err(|_| HostPathError::Missing(path.to_owned()));
    let metadata = match (metadata, kind) {
        // Without a type nothing is checked; a missing directory is created, as a container runtime would.
        (Err(_), "") => {
            make_dir(path, 0o755)?;
            fs::metadata(path).map_err(HostPathError::Metadata)?
        }
        (result, _) => result?,
    };
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

#[cfg(test)]
mod tests {
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
}
