//! Files of certificates that are replaced while a server runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use inotify::{Inotify, WatchMask};
use tokio::time::Interval;

/// The file is read at least so often, as by Kubernetes' servers: a link can lead to another directory, whose changes are not
/// reported.
const PERIOD: Duration = Duration::from_secs(60);

/// A directory whose files may change.
pub struct FollowedDirectory {
    /// None if they are not reported.
    changes: Option<BoxStream<'static, ()>>,
    period: Interval,
}

impl FollowedDirectory {
    /// Follows a directory from now on. Needs a runtime of tokio.
    pub fn new(directory: &Path) -> Self {
        let changes = changes(directory).inspect_err(|error| {
            let directory = directory.display();
            tracing::warn!(%directory, %error, "changes of files are seen a minute late");
        });
        Self {
            changes: changes.ok(),
            period: tokio::time::interval(PERIOD),
        }
    }

    /// Waits until something may have changed: the first time not at all, then until that is reported, or a minute.
    pub async fn changed(&mut self) {
        let Some(changes) = &mut self.changes else {
            self.period.tick().await;
            return;
        };
        tokio::select! {
            Some(()) = changes.next() => {
                // Those that are reported together need one reaction.
                while changes.next().now_or_never().flatten().is_some() {}
            }
            _ = self.period.tick() => {}
        }
    }
}

/// A file that is read again when something happens in its directory.
pub struct FollowedFile {
    file: PathBuf,
    known: Vec<u8>,
    directory: FollowedDirectory,
    /// A change was reported, and the file has not been read since.
    unread: bool,
}

impl FollowedFile {
    /// Follows a file from now on. `known` is the content that is in use. Needs a runtime of tokio.
    pub fn new(file: &Path, known: Vec<u8>) -> Self {
        let directory = match file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Self {
            file: file.to_owned(),
            known,
            directory: FollowedDirectory::new(directory),
            unread: false,
        }
    }

    /// The file that is followed.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Waits until the file has another content than the one that is in use, and returns it. The first time it is looked at
    /// without waiting. A change is not lost if the future is dropped: the next one returns it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn changed(&mut self) -> std::io::Result<Vec<u8>> {
        loop {
            if !self.unread {
                self.directory.changed().await;
                self.unread = true;
            }
            let read = tokio::fs::read(&self.file).await;
            self.unread = false;
            let content = read?;
            if content != self.known {
                return Ok(content);
            }
        }
    }

    /// The content that is in use from now on. One that is not accepted is returned again after the next change, or a minute.
    pub fn accept(&mut self, content: Vec<u8>) {
        self.known = content;
    }
}

/// Ticks when a file in a directory is written, replaced or removed.
fn changes(directory: &Path) -> std::io::Result<BoxStream<'static, ()>> {
    let mask = WatchMask::CLOSE_WRITE
        | WatchMask::CREATE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::ONLYDIR;
    let inotify = Inotify::init()?;
    inotify.watches().add(directory, mask)?;
    Ok(inotify.into_event_stream(vec![0; 4096])?.map(drop).boxed())
}
