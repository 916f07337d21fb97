//! Encoding and decoding of SPDY frames.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use super::headers::{Headers, Reader, Writer};

/// Maximum length of a control frame, which is a header block and a few numbers.
const LONGEST_CONTROL: usize = 64 * 1024;
/// Maximum size of the pieces in which the data of a frame is forwarded, regardless of the frame's length.
const PIECE: usize = 64 * 1024;
const VERSION: u16 = 3;
const FIN: u8 = 1;

mod kind {
    pub(super) const SYN_STREAM: u16 = 1;
    pub(super) const SYN_REPLY: u16 = 2;
    pub(super) const RST_STREAM: u16 = 3;
    pub(super) const PING: u16 = 6;
    pub(super) const GOAWAY: u16 = 7;
    pub(super) const HEADERS: u16 = 8;
}

/// Errors that terminate a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The peer uses an unsupported SPDY version.
    #[error("SPDY version {0} is not supported")]
    Version(u16),
    /// The bytes are not a valid frame.
    #[error("malformed SPDY frame")]
    Malformed,
    /// The headers cannot be decompressed.
    #[error("malformed SPDY headers")]
    Headers,
    /// I/O error on the connection.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The SPDY frames that container streams use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Opens a stream; `fin` means that the sender will not send any data on it.
    Open {
        id: u32,
        headers: Headers,
        fin: bool,
    },
    /// Accepts a stream.
    Reply { id: u32 },
    /// Aborts a stream; `status` is the reason.
    Reset { id: u32, status: u32 },
    /// A ping, which is answered with the same ID.
    Ping(u32),
    /// The sender will not accept further streams.
    GoAway { last: u32 },
    /// Data of a stream; `fin` closes this direction of the stream.
    Data { id: u32, data: Bytes, fin: bool },
    /// Settings, window updates and other frames that need no reply.
    Other,
}

/// A data frame that has not been received completely.
struct Partial {
    id: u32,
    left: usize,
    fin: bool,
}

/// Encodes and decodes frames; each direction has its own compression state.
pub(crate) struct Codec {
    reader: Reader,
    writer: Writer,
    partial: Option<Partial>,
}

impl Codec {
    pub(crate) fn new() -> Self {
        Self {
            reader: Reader::new(),
            writer: Writer::new(),
            partial: None,
        }
    }

    fn control(&mut self, kind: u16, flags: u8, mut body: &[u8]) -> Result<Frame, Error> {
        let number = |body: &mut &[u8]| body.try_get_u32().map_err(|_| Error::Malformed);
        Ok(match kind {
            kind::SYN_STREAM => {
                let id = number(&mut body)? & 0x7fff_ffff;
                // The associated stream, priority and slot are ignored.
                number(&mut body)?;
                body.try_get_u16().map_err(|_| Error::Malformed)?;
                Frame::Open {
                    id,
                    headers: self.reader.read(body)?,
                    fin: flags & FIN != 0,
                }
            }
            kind::SYN_REPLY | kind::HEADERS => {
                let id = number(&mut body)? & 0x7fff_ffff;
                // The block is part of the compressed stream, so it must be decoded even though the headers are not used.
                self.reader.read(body)?;
                if kind == kind::SYN_REPLY {
                    Frame::Reply { id }
                } else if flags & FIN != 0 {
                    let data = Bytes::new();
                    Frame::Data {
                        id,
                        data,
                        fin: true,
                    }
                } else {
                    Frame::Other
                }
            }
            kind::RST_STREAM => Frame::Reset {
                id: number(&mut body)? & 0x7fff_ffff,
                status: number(&mut body)?,
            },
            kind::PING => Frame::Ping(number(&mut body)?),
            kind::GOAWAY => Frame::GoAway {
                last: number(&mut body)? & 0x7fff_ffff,
            },
            _ => Frame::Other,
        })
    }
}

impl Decoder for Codec {
    type Item = Frame;
    type Error = Error;

    fn decode(&mut self, source: &mut BytesMut) -> Result<Option<Frame>, Error> {
        if let Some(Partial { id, left, fin }) = self.partial.take() {
            if source.is_empty() {
                self.partial = Some(Partial { id, left, fin });
                return Ok(None);
            }
            let data = source.split_to(left.min(source.len()).min(PIECE)).freeze();
            let left = left - data.len();
            let last = left == 0;
            if !last {
                self.partial = Some(Partial { id, left, fin });
            }
            return Ok(Some(Frame::Data {
                id,
                data,
                fin: fin && last,
            }));
        }
        let Some(head) = source.first_chunk::<8>().copied() else {
            return Ok(None);
        };
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let flags = head[4];
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        if first & 0x8000_0000 == 0 {
            source.advance(8);
            if length == 0 {
                let data = Bytes::new();
                let fin = flags & FIN != 0;
                return Ok(Some(Frame::Data {
                    id: first,
                    data,
                    fin,
                }));
            }
            self.partial = Some(Partial {
                id: first,
                left: length,
                fin: flags & FIN != 0,
            });
            return self.decode(source);
        }
        let version = u16::from_be_bytes([head[0] & 0x7f, head[1]]);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        if length > LONGEST_CONTROL {
            return Err(Error::Malformed);
        }
        if source.len() < 8 + length {
            source.reserve(8 + length - source.len());
            return Ok(None);
        }
        source.advance(8);
        let body = source.split_to(length);
        let kind = u16::from_be_bytes([head[2], head[3]]);
        self.control(kind, flags, &body).map(Some)
    }
}

/// Appends the eight-byte header of a control frame.
fn control(out: &mut BytesMut, kind: u16, flags: u8, length: usize) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    out.put_u32(u32::from(flags) << 24 | length as u32);
}

impl Encoder<Frame> for Codec {
    type Error = Error;

    fn encode(&mut self, frame: Frame, out: &mut BytesMut) -> Result<(), Error> {
        match frame {
            Frame::Open { id, headers, fin } => {
                let block = self.writer.write(&headers)?;
                control(out, kind::SYN_STREAM, u8::from(fin), 10 + block.len());
                out.put_u32(id);
                out.put_u32(0);
                out.put_u16(0);
                out.extend_from_slice(&block);
            }
            Frame::Reply { id } => {
                let block = self.writer.write(&Headers::new())?;
                control(out, kind::SYN_REPLY, 0, 4 + block.len());
                out.put_u32(id);
                out.extend_from_slice(&block);
            }
            Frame::Reset { id, status } => {
                control(out, kind::RST_STREAM, 0, 8);
                out.put_u32(id);
                out.put_u32(status);
            }
            Frame::Ping(id) => {
                control(out, kind::PING, 0, 4);
                out.put_u32(id);
            }
            Frame::GoAway { last } => {
                control(out, kind::GOAWAY, 0, 8);
                out.put_u32(last);
                out.put_u32(0);
            }
            Frame::Data { id, data, fin } => {
                let mut pieces = data.chunks(PIECE).peekable();
                if pieces.peek().is_none() {
                    out.put_u32(id);
                    out.put_u32(u32::from(u8::from(fin)) << 24);
                }
                while let Some(piece) = pieces.next() {
                    let fin = fin && pieces.peek().is_none();
                    out.put_u32(id);
                    out.put_u32(u32::from(u8::from(fin)) << 24 | piece.len() as u32);
                    out.extend_from_slice(piece);
                }
            }
            Frame::Other => {}
        }
        Ok(())
    }
}
