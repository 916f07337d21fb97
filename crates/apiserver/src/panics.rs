//! A panic in one request ends only that request.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::request::RequestInfo;

/// What kube-apiserver answers then, with 500.
pub(crate) const ANSWER: &str =
    "This request caused apiserver to panic. Look in the logs for details.\n";

/// The outcome of a request; `None` after a panic, which is logged.
///
/// State that a request shares with others is behind locks that do not poison and is written in one step, so no update
/// is left half done; reservations are released when they are dropped.
pub(crate) async fn caught<T>(info: &RequestInfo, answer: BoxFuture<'_, T>) -> Option<T> {
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(answer) => Some(answer),
        Err(panic) => {
            let (verb, path) = (info.verb.as_str(), info.path.as_str());
            let panic = message(panic.as_ref());
            tracing::error!(verb, path, panic, "a request caused a panic");
            None
        }
    }
}

/// Polls the stream of a body; a panic ends the stream with an error, and not the connection with all that is on it.
pub(crate) fn poll_caught<T>(
    poll: impl FnOnce() -> Poll<Option<io::Result<T>>>,
) -> Poll<Option<io::Result<T>>> {
    catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| {
        let panic = message(panic.as_ref());
        tracing::error!(panic, "the stream of an answer caused a panic");
        Poll::Ready(Some(Err(io::Error::other("the stream ended in a panic"))))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(how: &str) -> u32 {
        match how {
            "text" => panic!("text"),
            other => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn a_panic_is_no_outcome() {
        let info = RequestInfo::default();
        for how in ["text", "formatted"] {
            let answer = async { fails(how) }.boxed();
            assert_eq!(caught(&info, answer).await, None);
        }
        assert_eq!(caught(&info, async { 7 }.boxed()).await, Some(7));
    }

    #[test]
    fn a_poll_that_panics_is_an_error() {
        let polled = poll_caught(|| Poll::Ready(Some(Ok(fails("text")))));
        assert!(matches!(polled, Poll::Ready(Some(Err(_)))));
        assert!(matches!(
            poll_caught::<u32>(|| Poll::Ready(None)),
            Poll::Ready(None)
        ));
    }
}
