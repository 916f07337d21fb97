use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use tokio_util::codec::{Decoder, Encoder};

use super::codec::Error;
use super::headers::dictionary;
use super::{Codec, Frame};

fn decoded(codec: &mut Codec, bytes: &[u8]) -> Result<Vec<Frame>, Error> {
    let mut source = BytesMut::from(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = codec.decode(&mut source)? {
        frames.push(frame);
    }
    Ok(frames)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap())
        .collect()
}

fn open(id: u32, kind: &str) -> Frame {
    let headers = [("port", "8080"), ("requestid", "0"), ("streamtype", kind)];
    Frame::Open {
        id,
        headers: headers.map(|(k, v)| (k.into(), v.into())).to_vec(),
        fin: false,
    }
}

/// zlib identifies a preset dictionary by its Adler-32 checksum.
#[test]
fn the_dictionary_is_that_of_the_protocol() {
    let (mut a, mut b) = (1u32, 0u32);
    for byte in dictionary() {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    assert_eq!((dictionary().len(), b << 16 | a), (1423, 0xe3c6_a7c2));
}

#[test]
fn streams_opened_by_a_go_client_are_understood() {
    // Two SYN_STREAM frames as moby/spdystream sends them, the second with the compression state of the first.
    let bytes = hex(GO_CLIENT);
    let mut frames = decoded(&mut Codec::new(), &bytes).unwrap();
    for frame in &mut frames {
        // The iteration order of Go maps is random.
        if let Frame::Open { headers, .. } = frame {
            headers.sort();
        }
    }
    assert_eq!(frames, [open(1, "error"), open(3, "data")]);
}

/// `streamtype: error|data`, `port: 8080`, `requestid: 0`.
const GO_CLIENT: &str = "8003 0001 0000003e 00000001 00000000 0000 78f9e3c6a7c202253a060606ce2248fc6482\
    d22da30138e59514a526e6420b17d65450d0430aea22709eb030b03000000000ffff 8003 0001 0000001c 00000003 00000000 0000 826a46\
    550a2a8712b1a844b302000000ffff";

#[test]
fn data_arrives_in_pieces_and_ends_once() {
    let mut source = BytesMut::new();
    source.put_u32(5);
    source.put_u32(1 << 24 | 6);
    source.put_slice(b"abc");
    let mut codec = Codec::new();
    let piece = |data: &'static [u8], fin| Frame::Data {
        id: 5,
        data: Bytes::from_static(data),
        fin,
    };
    assert_eq!(
        codec.decode(&mut source).unwrap(),
        Some(piece(b"abc", false))
    );
    assert_eq!(codec.decode(&mut source).unwrap(), None);
    source.put_slice(b"def");
    source.put_u32(5);
    source.put_u32(1 << 24);
    assert_eq!(
        codec.decode(&mut source).unwrap(),
        Some(piece(b"def", true))
    );
    assert_eq!(codec.decode(&mut source).unwrap(), Some(piece(b"", true)));
}

#[test]
fn what_is_no_frame_is_an_error() {
    for bytes in [
        // An unsupported version, a frame that is too long, a frame that is too short, headers that are not a zlib stream.
        "8002 0001 00000000",
        "8003 0001 00ffffff",
        "8003 0006 00000002 0000",
        "8003 0001 0000000e 00000001 00000000 0000 ffffffff",
    ] {
        assert!(decoded(&mut Codec::new(), &hex(bytes)).is_err(), "{bytes}");
    }
}

#[test]
fn frames_without_a_use_are_passed_over() {
    let settings = hex("8003 0004 00000004 00000000 8003 0009 00000008 00000001 00010000");
    assert_eq!(
        decoded(&mut Codec::new(), &settings).unwrap(),
        [Frame::Other, Frame::Other]
    );
}

fn frame() -> impl Strategy<Value = Frame> {
    let headers = proptest::collection::vec(("[a-z-]{1,12}", ".{0,40}"), 0..6);
    let data = proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        (1..9u32, headers, any::<bool>()).prop_map(|(id, headers, fin)| Frame::Open {
            id,
            headers,
            fin
        }),
        (1..9u32).prop_map(|id| Frame::Reply { id }),
        (1..9u32, 1..9u32).prop_map(|(id, status)| Frame::Reset { id, status }),
        any::<u32>().prop_map(Frame::Ping),
        (0..9u32).prop_map(|last| Frame::GoAway { last }),
        (1..9u32, data, any::<bool>()).prop_map(|(id, data, fin)| Frame::Data {
            id,
            data: data.into(),
            fin
        }),
    ]
}

/// Joins the pieces of a data frame.
fn joined(frames: Vec<Frame>) -> Vec<(u32, Vec<u8>, bool, Option<Frame>)> {
    let mut all: Vec<(u32, Vec<u8>, bool, Option<Frame>)> = Vec::new();
    for frame in frames {
        match frame {
            Frame::Data { id, data, fin } => match all.last_mut() {
                Some((last, before, false, None)) if *last == id => {
                    before.extend_from_slice(&data);
                    all.last_mut().unwrap().2 = fin;
                }
                _ => all.push((id, data.to_vec(), fin, None)),
            },
            other => all.push((0, Vec::new(), true, Some(other))),
        }
    }
    all
}

proptest! {
    /// Encoded frames decode to the same frames, however the bytes are split.
    #[test]
    fn frames_survive_the_wire(frames in proptest::collection::vec(frame(), 0..20), step in 1..50usize) {
        let (mut writer, mut reader) = (Codec::new(), Codec::new());
        let mut wire = BytesMut::new();
        for frame in frames.clone() {
            writer.encode(frame, &mut wire).unwrap();
        }
        let (mut source, mut got) = (BytesMut::new(), Vec::new());
        for chunk in wire.chunks(step) {
            source.extend_from_slice(chunk);
            while let Some(frame) = reader.decode(&mut source).unwrap() {
                got.push(frame);
            }
        }
        prop_assert_eq!(joined(got), joined(frames));
    }

    /// Arbitrary bytes cause an error or a wait for more input, never a panic.
    #[test]
    fn garbage_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decoded(&mut Codec::new(), &bytes);
    }
}
