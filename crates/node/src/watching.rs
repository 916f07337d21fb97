//! Changes of files and directories, as the kernel reports them.

use std::path::Path;

use futures::{FutureExt as _, Stream, StreamExt as _};
use inotify::{Inotify, WatchMask};

/// Ticks when something of `mask` happens at a path.
///
/// # Errors
/// The path cannot be watched, or the kernel grants no more watches: `fs.inotify.max_user_instances` and
/// `max_user_watches` limit them for each user.
pub(crate) fn changes(
    path: &Path,
    mask: WatchMask,
) -> std::io::Result<impl Stream<Item = ()> + Unpin + use<>> {
    let inotify = Inotify::init()?;
    inotify.watches().add(path, mask)?;
    Ok(inotify.into_event_stream(vec![0; 4096])?.map(drop))
}

/// Waits for a change, and takes those that are reported with it: they need one reaction.
pub(crate) async fn next(changes: &mut (impl Stream<Item = ()> + Unpin)) {
    let mut more = changes.next().await;
    while more.is_some() {
        more = changes.next().now_or_never().flatten();
    }
}
