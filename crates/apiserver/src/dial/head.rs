//! HTTP/1.1 to servers that may mean harm: what one of them sends before its answer begins is bounded.
//!
//! Any number of informational answers may precede an answer. hyper reads all of them, and as long as more arrive, a worker of
//! the runtime does nothing else.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes that a server may send until its answer has begun: more than a head can have, with what is read ahead.
const MOST: usize = 1 << 20;
/// While no head is awaited.
const UNBOUNDED: usize = usize::MAX;

/// Sends requests on a connection, one at a time.
pub(crate) struct Sender<B> {
    requests: SendRequest<B>,
    left: Arc<AtomicUsize>,
}

/// Begins a connection, which has to be polled for its requests to be answered.
///
/// # Errors
/// None that a peer could cause.
pub(crate) async fn handshake<S, B>(
    builder: &Builder,
    stream: S,
) -> hyper::Result<(Sender<B>, Connection<TokioIo<Bounded<S>>, B>)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let left = Arc::new(AtomicUsize::new(MOST));
    let bounded = Bounded {
        stream,
        left: left.clone(),
    };
    let (requests, connection) = builder.handshake(TokioIo::new(bounded)).await?;
    Ok((Sender { requests, left }, connection))
}

impl<B: Body + 'static> Sender<B> {
    /// Waits until another request can be sent.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) async fn ready(&mut self) -> hyper::Result<()> {
        self.requests.ready().await
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    /// The connection has ended, or the server sends too much before its answer.
    pub(crate) async fn send_request(
        &mut self,
        request: Request<B>,
    ) -> hyper::Result<Response<Incoming>> {
        self.left.store(MOST, Ordering::Relaxed);
        let answer = self.requests.send_request(request).await;
        self.left.store(UNBOUNDED, Ordering::Relaxed);
        answer
    }
}

/// A connection that fails when its server sends too much before an answer.
pub(crate) struct Bounded<S> {
    stream: S,
    left: Arc<AtomicUsize>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        let order = Ordering::Relaxed;
        let counted = self.left.fetch_update(order, order, |left| match left {
            UNBOUNDED => Some(UNBOUNDED),
            bounded => bounded.checked_sub(read),
        });
        let too_much = |_| io::Error::other("the server sends too much before its answer");
        Poll::Ready(counted.map(drop).map_err(too_much))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Empty};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    async fn connected() -> (Sender<Empty<Bytes>>, DuplexStream) {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (sender, connection) = handshake(&Builder::new(), near).await.unwrap();
        tokio::spawn(connection);
        (sender, far)
    }

    /// The attack: a pod, through the proxy of the API server, answers with informational answers without end. As many such
    /// requests as there are workers, and no other request was answered.
    #[tokio::test]
    async fn regression_informational_answers_end() {
        let (mut sender, mut server) = connected().await;
        let flood = tokio::spawn(async move {
            let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(1000);
            while server.write_all(&hints).await.is_ok() {}
        });
        let answer = sender.send_request(Request::new(Empty::new())).await;
        assert!(answer.is_err());
        flood.await.unwrap();
    }

    #[tokio::test]
    async fn answers_are_as_long_as_they_like() {
        let (mut sender, mut server) = connected().await;
        let length = 4 * MOST;
        let serving = tokio::spawn(async move {
            for _ in 0..2 {
                assert!(server.read(&mut [0; 1024]).await.unwrap() > 0);
                let head = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: ";
                let head = format!("{head}{length}\r\n\r\n");
                server.write_all(head.as_bytes()).await.unwrap();
                server.write_all(&vec![b'x'; length]).await.unwrap();
            }
        });
        for _ in 0..2 {
            sender.ready().await.unwrap();
            let answer = sender.send_request(Request::new(Empty::new())).await;
            let body = answer.unwrap().into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes().len(), length);
        }
        serving.await.unwrap();
    }
}
