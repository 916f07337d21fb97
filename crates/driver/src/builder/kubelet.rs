//! The directory in which a kubelet looks for drivers.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// How long a driver waits by default for the directory that its kubelet creates.
pub const KUBELET_TIMEOUT: Duration = Duration::from_secs(30);
/// The directories above may not exist either, so that there may be nothing to watch.
const POLL: Duration = Duration::from_millis(100);

/// Waits until the registration directory exists.
///
/// # Errors
/// It does not within this time.
pub(super) async fn wait(directory: &Path, timeout: Duration) -> Result<(), Error> {
    let deadline = Instant::now() + timeout;
    let mut is_told = false;
    while !directory.is_dir() {
        if Instant::now() >= deadline {
            return Err(Error::NoKubelet(directory.to_owned()));
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::info!(directory = %directory.display(), ?timeout, "waiting for the kubelet to create its directory");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
