//! Frames: two conversations over one socket. A frame has the number of its conversation, its length, and a part of what is said
//! there. What is said are messages of ttrpc: a length, the number of a call, a kind, flags, and the content.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The conversation in which the agent calls the plugin.
pub(super) const PLUGIN: u32 = 1;
/// The conversation in which the plugin calls the agent.
pub(super) const RUNTIME: u32 = 2;

/// A call.
pub(super) const REQUEST: u8 = 1;
/// Its answer.
pub(super) const RESPONSE: u8 = 2;

/// The longest content of a message, as in ttrpc.
pub(super) const LONGEST: usize = 4 << 20;
const FRAME_HEADER: usize = 8;
const MESSAGE_HEADER: usize = 10;
/// Upstream's plugins read into a buffer of this size, and give up when a frame does not fit in it.
const BUFFER: usize = 4096;
/// What is read at once: memory is used for what was sent, and not for what was announced.
const PIECE: usize = 64 << 10;

/// What ends a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// The socket.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A frame or message that is longer than permitted.
    #[error("a {what} of {length} bytes, which is longer than permitted")]
    TooLong {
        /// Which of them.
        what: &'static str,
        /// The announced length.
        length: usize,
    },
}

/// A message of ttrpc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The number of the call.
    pub(super) call: u32,
    /// [`REQUEST`], [`RESPONSE`] or something else.
    pub(super) kind: u8,
    /// The content.
    pub(super) content: Vec<u8>,
}

/// What was said in a conversation.
#[derive(Default)]
struct Said {
    bytes: Vec<u8>,
    /// The first of them, which are of messages that were taken. They are removed together: removing one message alone moves all
    /// that follows it, and a frame can have many.
    taken: usize,
}

/// Reads the messages of both conversations.
pub(super) struct Reader<R> {
    socket: R,
    /// By conversation.
    said: [Said; 2],
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(socket: R) -> Self {
        Self {
            socket,
            said: Default::default(),
        }
    }

    /// The next message and its conversation; `None` at the end of the connection. Other conversations are skipped, as upstream
    /// does.
    ///
    /// # Errors
    /// The connection cannot be used any longer.
    pub(super) async fn next(&mut self) -> Result<Option<(u32, Message)>, FrameError> {
        loop {
            for (conversation, said) in [PLUGIN, RUNTIME].into_iter().zip(&mut self.said) {
                if let Some(message) = take(said)? {
                    return Ok(Some((conversation, message)));
                }
            }
            for said in &mut self.said {
                said.bytes.drain(..said.taken);
                said.taken = 0;
            }
            let mut header = [0; FRAME_HEADER];
            if self.socket.read(&mut header[..1]).await? == 0 {
                return Ok(None);
            }
            self.socket.read_exact(&mut header[1..]).await?;
            let length = number(&header[4..]) as usize;
            if length > MESSAGE_HEADER + LONGEST {
                let what = "frame";
                return Err(FrameError::TooLong { what, length });
            }
            let mut unknown = Vec::new();
            let said = match number(&header) {
                PLUGIN => &mut self.said[0].bytes,
                RUNTIME => &mut self.said[1].bytes,
                _ => &mut unknown,
            };
            let mut left = length;
            while left > 0 {
                let mut piece = (&mut self.socket).take(left.min(PIECE) as u64);
                let read = piece.read_to_end(said).await?;
                if read == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                left -= read;
                if !matches!(number(&header), PLUGIN | RUNTIME) {
                    said.clear();
                }
            }
        }
    }
}

/// The first four bytes as a number.
fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Takes the first message, if it is complete.
fn take(said: &mut Said) -> Result<Option<Message>, FrameError> {
    let rest = &said.bytes[said.taken..];
    let Some(header) = rest.get(..MESSAGE_HEADER) else {
        return Ok(None);
    };
    let length = number(header) as usize;
    if length > LONGEST {
        let what = "message";
        return Err(FrameError::TooLong { what, length });
    }
    let (call, kind) = (number(&header[4..]), header[8]);
    let Some(content) = rest.get(MESSAGE_HEADER..MESSAGE_HEADER + length) else {
        return Ok(None);
    };
    let content = content.to_vec();
    said.taken += MESSAGE_HEADER + length;
    Ok(Some(Message {
        call,
        kind,
        content,
    }))
}

/// A message in frames. No frame has parts of two messages, and the first one is as upstream's writers make it: what follows it
/// can be read without the buffer.
pub(super) fn encode(conversation: u32, message: &Message) -> Vec<u8> {
    let mut whole = Vec::with_capacity(MESSAGE_HEADER + message.content.len());
    whole.extend((message.content.len() as u32).to_be_bytes());
    whole.extend(message.call.to_be_bytes());
    whole.extend([message.kind, 0]);
    whole.extend(&message.content);
    let (first, rest) = whole.split_at(whole.len().min(BUFFER));
    let mut frames = Vec::with_capacity(whole.len() + 2 * FRAME_HEADER);
    for part in [first, rest].into_iter().filter(|part| !part.is_empty()) {
        frames.extend(conversation.to_be_bytes());
        frames.extend((part.len() as u32).to_be_bytes());
        frames.extend(part);
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(call: u32, length: usize) -> Message {
        Message {
            call,
            kind: REQUEST,
            content: vec![7; length],
        }
    }

    fn frame(conversation: u32, content: &[u8]) -> Vec<u8> {
        let mut frame = conversation.to_be_bytes().to_vec();
        frame.extend((content.len() as u32).to_be_bytes());
        frame.extend(content);
        frame
    }

    #[tokio::test]
    async fn messages_of_all_lengths_arrive_in_their_conversation() {
        for length in [0, 1, 4085, 4086, 4087, 8182, 100_000, LONGEST] {
            let bytes = [
                encode(PLUGIN, &message(1, length)),
                encode(RUNTIME, &message(3, length)),
            ]
            .concat();
            let mut reader = Reader::new(&bytes[..]);
            let first = reader.next().await.expect("a message");
            assert_eq!(first, Some((PLUGIN, message(1, length))));
            let second = reader.next().await.expect("a message");
            assert_eq!(second, Some((RUNTIME, message(3, length))));
            assert!(reader.next().await.expect("the end").is_none());
        }
    }

    #[test]
    fn the_first_frame_fits_in_the_buffer_of_upstreams_readers() {
        let bytes = encode(PLUGIN, &message(1, 10_000));
        assert_eq!(number(&bytes[4..]) as usize, BUFFER);
        let second = &bytes[FRAME_HEADER + BUFFER..];
        assert_eq!(number(&second[4..]) as usize, 10_010 - BUFFER);
        assert_eq!(second.len(), FRAME_HEADER + 10_010 - BUFFER);
    }

    #[tokio::test]
    async fn a_message_may_come_byte_by_byte_between_others() {
        let whole = encode(PLUGIN, &message(5, 20));
        let mut bytes = Vec::new();
        for byte in &whole[FRAME_HEADER..] {
            bytes.extend(frame(PLUGIN, &[*byte]));
            // Other conversations are of no interest, whatever is said there.
            bytes.extend(frame(9, &[255; 100]));
            bytes.extend(frame(RUNTIME, &[]));
        }
        let mut reader = Reader::new(&bytes[..]);
        let read = reader.next().await.expect("a message");
        assert_eq!(read, Some((PLUGIN, message(5, 20))));
    }

    /// Each message that was taken moved all that followed it: a frame of 4 MiB without contents kept a thread for 20 seconds.
    #[tokio::test]
    async fn regression_what_follows_a_message_in_its_frame_is_not_moved() {
        let all = encode(PLUGIN, &message(1, 0))[FRAME_HEADER..].repeat(1000);
        let bytes = frame(PLUGIN, &all).repeat(2);
        let mut reader = Reader::new(&bytes[..]);
        for _ in 0..2000 {
            let read = reader.next().await.expect("a message");
            assert_eq!(read, Some((PLUGIN, message(1, 0))));
            // Those of the first frame are gone when the second one is there.
            assert_eq!(reader.said[0].bytes.len(), all.len());
        }
        assert!(reader.next().await.expect("the end").is_none());
    }

    #[tokio::test]
    async fn announced_lengths_use_no_memory_and_end_the_connection() {
        let check = async |bytes: Vec<u8>, expected: &str| {
            let mut reader = Reader::new(&bytes[..]);
            let error = reader.next().await.expect_err("an error").to_string();
            assert!(error.contains(expected), "{error}");
            assert!(
                reader
                    .said
                    .iter()
                    .all(|it| it.bytes.capacity() <= 4 * PIECE)
            );
        };
        let giant = [1_u32.to_be_bytes(), u32::MAX.to_be_bytes()].concat();
        check(giant, "a frame of 4294967295 bytes").await;
        let long = [u32::MAX.to_be_bytes().to_vec(), vec![0; 6]].concat();
        check(frame(RUNTIME, &long), "a message of 4294967295 bytes").await;
        // The rest never comes.
        let half = [1_u32.to_be_bytes(), (4_u32 << 20).to_be_bytes()].concat();
        check(half, "unexpected end").await;
        check(vec![0; 5], "early eof").await;
    }
}
