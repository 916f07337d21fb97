//! A channel that tells whether its connection is open: a client that keeps a second connection to find out is two clients to the other
//! side.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tonic::transport::Channel;

use super::endpoint;

/// Whether the connection of a channel is open.
#[derive(Debug, Clone)]
pub struct Connected(watch::Receiver<usize>);

impl Connected {
    /// Waits until it is as `wanted`; forever once the channel is gone.
    pub async fn wait(&mut self, wanted: bool) {
        if self.0.wait_for(|open| (*open > 0) == wanted).await.is_err() {
            std::future::pending().await
        }
    }
}

/// Like [`super::connect_lazy`], and whether it is connected.
pub fn connect_watched(path: &Path) -> (Channel, Connected) {
    let path = path.to_path_buf();
    let (open, receiver) = watch::channel(0);
    let connector = tower::service_fn(move |_: http::Uri| {
        let (path, open) = (path.clone(), open.clone());
        async move {
            let stream = UnixStream::connect(path).await?;
            open.send_modify(|open| *open += 1);
            io::Result::Ok(TokioIo::new(Watched { stream, open }))
        }
    });
    let channel = endpoint().connect_with_connector_lazy(connector);
    (channel, Connected(receiver))
}

/// A connection that is counted for as long as it exists. It is dropped when either side ends it.
struct Watched {
    stream: UnixStream,
    open: watch::Sender<usize>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.open.send_modify(|open| *open -= 1);
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
