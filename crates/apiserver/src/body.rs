//! Response bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::panics;
use crate::unread::Account;

mod paced;

pub(crate) use paced::ReadDeadlines;

/// A pinned stream of chunks.
type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, std::io::Error>> + Send>>;

/// Resources that are released when the body has been sent, or is dropped: seats, shares of a budget.
pub(crate) type Held = Box<dyn Send>;

/// An observer of a body on its way to the client. Dropped before its end, it has seen a part of it.
pub(crate) trait Observer: Send {
    /// The next piece.
    fn piece(&mut self, bytes: &[u8]);
    /// That was all.
    fn ended(&mut self);
}

/// A response body: whole, or a stream (large lists, watches, logs).
pub struct Body {
    content: Content,
    held: Vec<Held>,
    /// It has a share of the budget of large answers.
    reserved: bool,
    observer: Option<Box<dyn Observer>>,
}

enum Content {
    Whole(Option<Bytes>),
    Stream(Chunks),
    /// A watchdog monitors the reader's pace, and may end the body.
    MonitoredBody(
        Arc<paced::MonitoredBody>,
        #[allow(dead_code, reason = "ends with the body")] paced::Watchdog,
    ),
}

impl Content {
    /// The next piece, `Whole` in one.
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, std::io::Error>>> {
        match self {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Content::Stream(chunks) => {
                let polled = panics::poll_caught(|| chunks.as_mut().poll_next(context));
                if let Poll::Ready(Some(Err(_))) = &polled {
                    // It may be in any state and must not be polled again.
                    *self = Content::Whole(None);
                }
                polled
            }
            Content::MonitoredBody(paced, _) => paced.poll_next(context),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Stream(_) => false,
            Content::MonitoredBody(paced, _) => paced.left() == Some(0),
        }
    }

    /// Remaining bytes, if known.
    fn left(&self) -> Option<u64> {
        match self {
            Content::Whole(bytes) => Some(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Content::Stream(_) => None,
            Content::MonitoredBody(paced, _) => paced.left(),
        }
    }
}

impl Body {
    /// No content.
    pub fn empty() -> Self {
        Self::of(Content::Whole(None))
    }

    /// Complete content.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::of(Content::Whole((!bytes.is_empty()).then_some(bytes)))
    }

    /// Streamed content.
    pub fn stream(
        chunks: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static,
    ) -> Self {
        Self::of(Content::Stream(Box::pin(chunks)))
    }

    fn of(content: Content) -> Self {
        Body {
            content,
            held: Vec::new(),
            reserved: false,
            observer: None,
        }
    }

    /// Passes everything that is sent to an observer.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Keeps a resource until the body ends.
    pub(crate) fn hold(&mut self, held: Held) {
        self.held.push(held);
    }

    /// Holds a share of the budget of large answers until the body ends.
    pub(crate) fn reserve(&mut self, share: Held) {
        self.reserved = true;
        self.held.push(share);
    }

    /// It has a share of the budget of large answers.
    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// Counts a complete body for its connection until it is sent; false if the connection can hold no more.
    pub(crate) fn count(&mut self, account: &Account) -> bool {
        let Content::Whole(Some(bytes)) = &mut self.content else {
            return true;
        };
        let Some(counted) = account.give(bytes) else {
            return false;
        };
        *bytes = counted;
        true
    }

    /// The length of a complete body.
    pub(crate) fn whole_size(&self) -> Option<usize> {
        match &self.content {
            Content::Whole(bytes) => Some(bytes.as_ref().map_or(0, Bytes::len)),
            _ => None,
        }
    }

    /// The bytes of a complete body.
    pub(crate) fn whole_bytes(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Whole(bytes) => bytes.as_ref(),
            _ => None,
        }
    }

    /// The same body in small pieces, which ends, and releases its resources, when its reader is too slow.
    pub(crate) fn paced(self, pace: ReadDeadlines) -> Self {
        let (paced, watchdog) = paced::start(self.content, self.held, pace);
        Body {
            observer: self.observer,
            ..Self::of(Content::MonitoredBody(paced, watchdog))
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let next = self.content.poll_next(context);
        match (&next, &mut self.observer) {
            (Poll::Ready(Some(Ok(bytes))), Some(observer)) => observer.piece(bytes),
            (Poll::Ready(None), Some(observer)) => observer.ended(),
            _ => {}
        }
        if matches!(next, Poll::Ready(None)) {
            self.held.clear();
            self.observer = None;
        }
        next.map(|item| item.map(|it| it.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        match self.content.left() {
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.content {
            Content::Whole(_) => "Body(whole)",
            Content::Stream(_) => "Body(stream)",
            Content::MonitoredBody(..) => "Body(paced)",
        })
    }
}

/// A plain-text answer.
pub(crate) fn text_response(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::whole(text));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response.headers_mut().insert(
        http::header::X_CONTENT_TYPE_OPTIONS,
        http::HeaderValue::from_static("nosniff"),
    );
    response
}
