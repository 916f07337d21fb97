//! One instance of a driver at a time.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};
use tokio::time::Instant;

use crate::error::Error;

/// How long the instance before may take to end: a restart often begins before that.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

/// Takes the lock of a data directory, which is released when the file is closed. Instances of a rolling update share
/// it.
pub(super) async fn acquire(data_dir: &Path, shared: bool) -> Result<File, Error> {
    let path = data_dir.join("lock");
    let io = |source| Error::Io {
        path: path.clone(),
        source,
    };
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        // What is written would go into the file that a link names.
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path)
        .map_err(io)?;
    let how = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = rustix::fs::flock(&file, how) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(io(error.into()));
        }
        if Instant::now() >= deadline {
            return Err(Error::Busy {
                by: holder(&mut file),
                path,
            });
        }
        tokio::time::sleep(LOOK).await;
    }
    if !shared {
        // For operators, and for the error text above.
        let written = file.set_len(0).and_then(|()| file.rewind());
        let written = written.and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(io)?;
    }
    Ok(file)
}

/// The process that wrote the file last.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(32).read_to_string(&mut text).ok();
    let process = read.and_then(|_| text.trim().parse::<u32>().ok());
    process.map_or_else(String::new, |process| format!(" (process {process})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second instance took the sockets, and the first went on without.
    #[tokio::test(start_paused = true)]
    async fn a_second_instance_is_refused_and_told_why() {
        let directory = tempfile::tempdir().unwrap();
        let first = acquire(directory.path(), false).await.unwrap();
        for shared in [false, true] {
            let error = acquire(directory.path(), shared).await.unwrap_err();
            let process = format!("(process {})", std::process::id());
            assert!(error.to_string().contains(&process), "{error}");
            // What `main` prints.
            assert_eq!(format!("{error:?}"), error.to_string());
        }
        drop(first);
        let one = acquire(directory.path(), true).await.unwrap();
        let other = acquire(directory.path(), true).await.unwrap();
        assert!(acquire(directory.path(), false).await.is_err());
        drop((one, other));
        acquire(directory.path(), false).await.unwrap();
    }
    /// The attack: a link in the place of the lock, and the file that it names is overwritten.
    #[tokio::test]
    async fn regression_a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        std::fs::write(&other, "text").unwrap();
        std::os::unix::fs::symlink(&other, directory.path().join("lock")).unwrap();
        acquire(directory.path(), false).await.unwrap_err();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "text");
    }
}
