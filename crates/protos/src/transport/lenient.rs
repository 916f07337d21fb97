//! The adapter that lets an HTTP/2 server accept the authorities of Go gRPC clients.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use crate::hpack::{self, Field};

const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Frames must not be larger unless the receiver announces it (RFC 9113, 6.5.2).
const MAX_FRAME: usize = 16384;
/// Above this a header block is refused, encoded or decoded.
const MAX_HEADERS: usize = 1 << 20;

/// A server-side connection that replaces invalid authorities of requests by `localhost`.
///
/// Go's gRPC client sends the socket path as `:authority`, percent-encoded (`%2Fvar%2Flib…`) or, in older versions,
/// raw. Neither is an authority in the sense of RFC 3986, and `h2` answers such a request with `PROTOCOL_ERROR`. The
/// kubelet dials plugin registration sockets that way, and so do clients of PodResources.
///
/// Bytes from the client are parsed as HTTP/2 frames. All frames pass unchanged except HEADERS with their
/// CONTINUATIONs: these are decoded and written again without use of the dynamic table, so the state of the
/// server's decoder never depends on what was changed.
#[derive(Debug)]
pub struct Lenient<S> {
    inner: S,
    filter: Filter,
    eof: bool,
}

impl<S> Lenient<S> {
    /// Wraps a freshly accepted connection.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            filter: Filter::new(),
            eof: false,
        }
    }
}

impl<S: Connected> Connected for Lenient<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.inner.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lenient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let ready = this.filter.ready();
            if !ready.is_empty() {
                let len = ready.len().min(buf.remaining());
                buf.put_slice(&ready[..len]);
                this.filter.consume(len);
                return Poll::Ready(Ok(()));
            }
            if this.eof {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [0u8; 8192];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                this.eof = true;
            } else {
                this.filter.push(read.filled())?;
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lenient<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// The transformation itself: bytes of the client in, bytes for the server out.
#[derive(Debug)]
pub(super) struct Filter {
    /// Received and not yet understood: less than one frame header or HEADERS frame.
    pending: Vec<u8>,
    out: Vec<u8>,
    taken: usize,
    /// Number of bytes to pass unchanged.
    pass: usize,
    block: Option<Block>,
    decoder: hpack::Decoder,
}

/// A header block whose end has not arrived.
#[derive(Debug)]
struct Block {
    stream: [u8; 4],
    end_stream: bool,
    data: Vec<u8>,
}

impl Filter {
    pub(super) fn new() -> Self {
        Self {
            pending: Vec::new(),
            out: Vec::new(),
            taken: 0,
            pass: PREFACE,
            block: None,
            decoder: hpack::Decoder::new(MAX_HEADERS),
        }
    }

    /// What the server may read now.
    pub(super) fn ready(&self) -> &[u8] {
        &self.out[self.taken..]
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.taken += len;
        if self.taken == self.out.len() {
            self.out.clear();
            self.taken = 0;
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        loop {
            let len = self.pass.min(rest.len());
            self.out.extend_from_slice(&rest[..len]);
            self.pass -= len;
            rest = &rest[len..];
            let Some((header, body)) = rest.split_at_checked(FRAME_HEADER) else {
                break;
            };
            let length =
                usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
            if header[3] != HEADERS && header[3] != CONTINUATION {
                if self.block.is_some() {
                    return Err(invalid("frame in the middle of a header block"));
                }
                self.out.extend_from_slice(header);
                self.pass = length;
                rest = body;
                continue;
            }
            if length > MAX_FRAME {
                return Err(invalid("HEADERS frame is too large"));
            }
            let Some((payload, next)) = body.split_at_checked(length) else {
                break;
            };
            self.headers(header, payload)?;
            rest = next;
        }
        self.pending = rest.to_vec();
        Ok(())
    }

    fn headers(&mut self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let (flags, stream) = (header[4], [header[5], header[6], header[7], header[8]]);
        let mut block = match (header[3], self.block.take()) {
            (HEADERS, None) => Block {
                stream,
                end_stream: flags & END_STREAM != 0,
                data: fragment(flags, payload)?.to_vec(),
            },
            (CONTINUATION, Some(mut block)) if block.stream == stream => {
                block.data.extend_from_slice(payload);
                block
            }
            _ => return Err(invalid("HEADERS and CONTINUATION frames out of order")),
        };
        if block.data.len() > MAX_HEADERS {
            return Err(invalid("header block is too large"));
        }
        if flags & END_HEADERS == 0 {
            self.block = Some(block);
            return Ok(());
        }
        let mut fields = self
            .decoder
            .decode(&block.data)
            .map_err(|error| invalid(&error.to_string()))?;
        fields.iter_mut().for_each(repair);
        block.data.clear();
        hpack::encode(&fields, &mut block.data);
        self.write(&block);
        Ok(())
    }

    fn write(&mut self, block: &Block) {
        // An empty block (legal for trailers) still needs its one frame.
        let mut chunks = block.data.chunks(MAX_FRAME).peekable();
        let mut kind = HEADERS;
        loop {
            let chunk = chunks.next().unwrap_or_default();
            let last = chunks.peek().is_none();
            let mut flags = if last { END_HEADERS } else { 0 };
            if kind == HEADERS && block.end_stream {
                flags |= END_STREAM;
            }
            let length = (chunk.len() as u32).to_be_bytes();
            self.out
                .extend_from_slice(&[length[1], length[2], length[3], kind, flags]);
            self.out.extend_from_slice(&block.stream);
            self.out.extend_from_slice(chunk);
            kind = CONTINUATION;
            if last {
                return;
            }
        }
    }
}

/// The header block fragment of a HEADERS frame, without padding and priority.
fn fragment(flags: u8, payload: &[u8]) -> io::Result<&[u8]> {
    let short = || invalid("HEADERS frame is too short");
    let (mut rest, mut padding) = (payload, 0);
    if flags & PADDED != 0 {
        let (first, tail) = rest.split_first().ok_or_else(short)?;
        (rest, padding) = (tail, usize::from(*first));
    }
    if flags & PRIORITY != 0 {
        rest = rest.get(5..).ok_or_else(short)?;
    }
    let end = rest.len().checked_sub(padding).ok_or_else(short)?;
    Ok(&rest[..end])
}

fn repair(field: &mut Field) {
    if field.name == b":authority"
        && http::uri::Authority::try_from(field.value.as_slice()).is_err()
    {
        field.value = b"localhost".to_vec();
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
