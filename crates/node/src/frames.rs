//! Frames: how the streams of a program pass over one local connection, between shim, agent and the parts of the agent.
//!
//! A frame is a byte for the channel, with the numbers of [`crate::spdy::channel`], the length as four bytes, big-endian, and
//! the data.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::shim::spec::MAX_FRAME;

/// Reads the next frame: its channel and its data. `None` at the end of the connection, and if what arrives is no frame.
pub(crate) async fn read(reader: &mut (impl AsyncRead + Unpin)) -> Option<(u8, Vec<u8>)> {
    let (channel, length) = (reader.read_u8().await.ok()?, reader.read_u32().await.ok()?);
    if length > MAX_FRAME {
        return None;
    }
    let mut data = vec![0; length as usize];
    reader.read_exact(&mut data).await.ok()?;
    Some((channel, data))
}

/// Writes data as one frame, or as several if it is long.
///
/// # Errors
/// The connection has ended.
pub(crate) async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    channel: u8,
    data: &[u8],
) -> io::Result<()> {
    let empty = data.is_empty().then_some(data);
    for piece in data.chunks(MAX_FRAME as usize).chain(empty) {
        let mut frame = Vec::with_capacity(piece.len() + 5);
        frame.push(channel);
        frame.extend_from_slice(&(piece.len() as u32).to_be_bytes());
        frame.extend_from_slice(piece);
        writer.write_all(&frame).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_arrive_as_they_were_sent() {
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 20);
        let long = vec![7; MAX_FRAME as usize + 1];
        write(&mut ours, 1, &long).await.unwrap();
        write(&mut ours, 3, &[]).await.unwrap();
        // The rest of a frame does not arrive.
        ours.write_all(&[1, 0, 0, 0, 9, 1]).await.unwrap();
        drop(ours);
        let (first, rest) = long.split_at(MAX_FRAME as usize);
        assert_eq!(read(&mut theirs).await, Some((1, first.to_vec())));
        assert_eq!(read(&mut theirs).await, Some((1, rest.to_vec())));
        assert_eq!(read(&mut theirs).await, Some((3, Vec::new())));
        assert_eq!(read(&mut theirs).await, None);
    }

    #[tokio::test]
    async fn frames_are_bounded() {
        let head = [&[1][..], &(MAX_FRAME + 1).to_be_bytes()].concat();
        assert_eq!(read(&mut &head[..]).await, None);
    }
}
