//! Response bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::panics;

/// A pinned stream of chunks.
type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, std::io::Error>> + Send>>;

/// A response body: whole, or a stream (watches, logs).
pub struct Body(Inner);

enum Inner {
    Whole(Option<Bytes>),
    Stream(Chunks),
}

impl Body {
    /// No content.
    pub fn empty() -> Self {
        Body(Inner::Whole(None))
    }

    /// Content that is there already.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Body(Inner::Whole((!bytes.is_empty()).then_some(bytes)))
    }

    /// Content that comes piece by piece.
    pub fn stream(
        chunks: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static,
    ) -> Self {
        Body(Inner::Stream(Box::pin(chunks)))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match &mut self.0 {
            Inner::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Stream(chunks) => {
                let polled = panics::poll_caught(|| chunks.as_mut().poll_next(context));
                if let Poll::Ready(Some(Err(_))) = &polled {
                    // It may be in any state: nobody polls it again.
                    self.0 = Inner::Whole(None);
                }
                polled.map(|item| item.map(|it| it.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Inner::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Inner::Whole(_) => "Body(whole)",
            Inner::Stream(_) => "Body(stream)",
        })
    }
}
