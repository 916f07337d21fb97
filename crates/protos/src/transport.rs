//! gRPC over Unix sockets, as kubelet and plugins use it.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};

mod lenient;
mod services;
#[cfg(test)]
mod tests;
mod watched;

pub use lenient::Lenient;
pub use services::Services;
pub use watched::{Connected, connect_watched};

/// The longest socket path that Linux accepts, in bytes (`sun_path` with its final zero is 108).
pub const MAX_SOCKET_PATH: usize = 107;

/// Connections to a Unix socket, each wrapped in [`Lenient`]; feed it to [`Services::serve`].
///
/// The socket file is removed on drop, unless another process has replaced it meanwhile.
#[derive(Debug)]
pub struct Incoming {
    listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
}

impl Incoming {
    /// Listens on `path`. A socket left behind by an earlier process is removed first.
    ///
    /// # Errors
    /// Errors of `bind`; `InvalidInput` names the limit when the path is longer than [`MAX_SOCKET_PATH`].
    pub fn bind(path: impl Into<PathBuf>) -> io::Result<Self> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let path = path.into();
        let length = path.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "socket path {} has {length} bytes, the limit is {MAX_SOCKET_PATH}: use a shorter directory",
                    path.display()
                ),
            ));
        }
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.file_type().is_socket() => std::fs::remove_file(&path)?,
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("{} exists and is not a socket", path.display()),
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(&path)?;
        let metadata = std::fs::symlink_metadata(&path)?;
        Ok(Self {
            listener,
            path,
            inode: (metadata.dev(), metadata.ino()),
        })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Stream for Incoming {
    type Item = io::Result<Lenient<UnixStream>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = ready!(self.listener.poll_accept(cx));
        Poll::Ready(Some(accepted.map(|(stream, _)| Lenient::new(stream))))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        use std::os::unix::fs::MetadataExt;
        let same = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|now| (now.dev(), now.ino()) == self.inode);
        if same {
            // The directory may be deleted or read-only by now; a stale socket does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// How long [`connect`] waits for the other side.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

fn endpoint() -> Endpoint {
    // The authority that is sent; the connector decides the destination.
    Endpoint::from_static("http://localhost").connect_timeout(CONNECT_TIMEOUT)
}

fn connector(
    path: PathBuf,
) -> impl tower::Service<
    http::Uri,
    Response = hyper_util::rt::TokioIo<UnixStream>,
    Error = io::Error,
    Future = impl Future<Output = io::Result<hyper_util::rt::TokioIo<UnixStream>>> + Send,
> + Send
+ 'static {
    tower::service_fn(move |_: http::Uri| {
        let path = path.clone();
        async move {
            UnixStream::connect(path)
                .await
                .map(hyper_util::rt::TokioIo::new)
        }
    })
}

/// Connects to the service behind a socket; reconnects on its own later.
///
/// # Errors
/// When no process listens on it.
pub async fn connect(path: &Path) -> Result<Channel, tonic::transport::Error> {
    endpoint()
        .connect_with_connector(connector(path.to_path_buf()))
        .await
}

/// Like [`connect`], but the first call connects.
pub fn connect_lazy(path: &Path) -> Channel {
    endpoint().connect_with_connector_lazy(connector(path.to_path_buf()))
}
