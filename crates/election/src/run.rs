//! Work that is done under leadership, from the election to the release of the Lease.

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{Elector, Settings};

/// How [`run_as_leader`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Election<T> {
    /// `shutdown` was cancelled before this process led.
    Shutdown,
    /// The work ended, and the Lease is released.
    Finished(T),
    /// Leadership was lost, and another process may lead. The work was cancelled, and returned this.
    LeadershipLost(T),
}

/// Waits until this process leads, and runs `work` while it leads, like client-go's `leaderelection.RunOrDie`.
///
/// `work` receives a client whose requests fail once leadership is not certain any longer, and a token that is cancelled
/// at `shutdown` and when leadership is lost. Its end is awaited in both cases.
pub async fn run_as_leader<T, W: Future<Output = T>>(
    client: Client,
    settings: Settings,
    shutdown: &CancellationToken,
    work: impl FnOnce(Client, CancellationToken) -> W,
) -> Election<T> {
    let elector = Elector::new(client.clone(), settings);
    let Some(leadership) = elector.acquire(shutdown).await else {
        return Election::Shutdown;
    };
    let (stop, lost) = (shutdown.child_token(), leadership.lost());
    let mut work = std::pin::pin!(work(leadership.fence(client), stop.clone()));
    tokio::select! {
        result = &mut work => {
            leadership.release().await;
            Election::Finished(result)
        }
        () = lost.cancelled() => {
            stop.cancel();
            Election::LeadershipLost(work.await)
        }
    }
}
