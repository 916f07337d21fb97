//! Streams whose clients do not keep to the protocols.

use allot_testing::wait::{PATIENCE, until_true};
use flate2::{Compress, Compression, FlushCompress};
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::setup::Setup;
use super::streams::{by_websocket, exec, upgrade, with_pod};

/// A frame of a WebSocket client. Masked with zeros its data is as it was.
fn frame(first: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match data.len() {
        short @ ..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
        long => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(data);
    frame
}

/// The node ends the stream after these bytes.
async fn check_ends(mut stream: TlsStream<TcpStream>, what: &str, bytes: &[u8]) {
    // It may have ended before it got all of them.
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    let mut buffer = vec![0; 64 << 10];
    let end = async { while matches!(stream.read(&mut buffer).await, Ok(1..)) {} };
    let ended = tokio::time::timeout(PATIENCE, end).await;
    assert!(ended.is_ok(), "{what} does not end the stream");
}

async fn check_serves(setup: &Setup) {
    let (_, [_, out, _, _]) = exec(setup, "echo%20hi", Some("v4.channel.k8s.io")).await;
    assert_eq!(out, "hi\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_a_web_socket_that_are_none_end_their_stream_alone() {
    let setup = with_pod().await;
    let length = |bytes: [u8; 8]| [&[0x82, 0xff][..], &bytes, &[0; 4], b"x"].concat();
    // More than is in memory for one message.
    let mut endless = frame(0x02, b"\0");
    for _ in 0..6 {
        endless.extend(frame(0x00, &vec![b'x'; 1 << 20]));
    }
    let mut pings = frame(0x89, b"x").repeat(20_000);
    pings.extend(frame(0x88, b""));
    for (what, bytes) in [
        ("a frame without a mask", vec![0x82, 2, 0, b'x']),
        ("an unknown kind of frame", frame(0x83, b"\0x")),
        ("a frame with reserved bits", frame(0xf2, b"\0x")),
        (
            "a frame of eight exabytes",
            length([0x7f, 255, 255, 255, 255, 255, 255, 255]),
        ),
        ("a frame of a negative length", length([0xff; 8])),
        (
            "a frame of five megabytes",
            length([0, 0, 0, 0, 0, 0x50, 0, 0]),
        ),
        ("a long ping", frame(0x89, &[b'x'; 200])),
        ("a ping in parts", frame(0x09, b"x")),
        ("the rest of nothing", frame(0x80, b"x")),
        (
            "a second message within one",
            [frame(0x02, b"\0"), frame(0x82, b"\0")].concat(),
        ),
        ("text that is none", frame(0x81, b"\0\xff")),
        ("a message without an end", endless),
        ("a flood of pings", pings),
    ] {
        let path = "/exec/default/p/c?input=1&output=1&command=sleep&command=300";
        let (stream, _) = by_websocket(&setup, path, "").await;
        check_ends(stream, what, &bytes).await;
    }
    check_serves(&setup).await;
    setup.delete_pod().await;
}

/// A message of a client was queued as a whole, 64 MiB at most, 16 times for a program that does not read.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_long_message_is_passed_on_in_pieces() {
    let setup = with_pod().await;
    let path = "/exec/default/p/c?input=1&output=1&command=sh&command=-c\
                &command=head%20-c%203000000%20%7C%20cksum";
    let (stream, _) = by_websocket(&setup, path, "").await;
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let mut message = vec![0];
    message.extend((0..3_000_000_u32).map(|at| (at % 251) as u8));
    socket.send(Message::binary(message)).await.unwrap();
    let mut out = String::new();
    loop {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await;
        match message.expect("a message in time") {
            Some(Ok(Message::Binary(data))) if data.first() == Some(&1) => {
                out.push_str(&String::from_utf8_lossy(&data[1..]));
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => break,
            Some(Ok(_)) => {}
        }
    }
    // The checksum of the same bytes in a file.
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(file.path(), bytes).unwrap();
    let input = std::fs::File::open(file.path()).unwrap();
    let expected = std::process::Command::new("cksum")
        .stdin(input)
        .output()
        .unwrap();
    assert_eq!(out, String::from_utf8_lossy(&expected.stdout));
    setup.delete_pod().await;
}

/// A client that speaks SPDY.
struct Spdy {
    stream: TlsStream<TcpStream>,
    headers: Compress,
}

const SYN_STREAM: u8 = 1;
const RST_STREAM: u8 = 3;

impl Spdy {
    async fn port_forward(setup: &Setup) -> Self {
        let lines = "upgrade: SPDY/3.1\r\nx-stream-protocol-version: portforward.k8s.io\r\n";
        let (stream, _) = upgrade(setup, "POST /portForward/default/p", lines).await;
        let headers = Compress::new(Compression::default(), true);
        Self { stream, headers }
    }

    fn block(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(plain.len() / 100 + 100_000);
        self.headers
            .compress_vec(plain, &mut out, FlushCompress::Sync)
            .unwrap();
        out
    }

    /// Opens a stream of a connection to a port where nothing listens.
    async fn open(&mut self, id: u32, kind: &str, request: &str) {
        self.open_to(id, kind, request, "1").await;
    }

    /// Opens a stream of a connection to a port.
    async fn open_to(&mut self, id: u32, kind: &str, request: &str, port: &str) {
        let headers = [("streamtype", kind), ("port", port), ("requestid", request)];
        let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend_from_slice(&(text.len() as u32).to_be_bytes());
            plain.extend_from_slice(text.as_bytes());
        }
        let block = self.block(&plain);
        let body = [&id.to_be_bytes()[..], &[0; 6], &block].concat();
        self.stream
            .write_all(&control(SYN_STREAM, &body))
            .await
            .unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next stream that the node refuses, and why.
    async fn refused(&mut self) -> (u32, u32) {
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        loop {
            let mut head = [0; 8];
            let read = tokio::time::timeout(PATIENCE, self.stream.read_exact(&mut head)).await;
            read.expect("a frame in time").expect("a frame");
            let length = number(&[0, head[5], head[6], head[7]]) as usize;
            let mut body = vec![0; length];
            self.stream
                .read_exact(&mut body)
                .await
                .expect("a whole frame");
            if head[0] & 0x80 != 0 && head[3] == RST_STREAM {
                return (number(&body[..4]), number(&body[4..8]));
            }
        }
    }
}

fn control(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&[0x80, 3, 0, kind, 0][..], &length[1..], body].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_spdy_that_are_none_end_their_stream_alone() {
    let setup = with_pod().await;
    let syn = |block: &[u8]| {
        control(
            SYN_STREAM,
            &[&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], block].concat(),
        )
    };
    let mut spdy = Spdy::port_forward(&setup).await;
    // Forty megabytes of zeros are forty kilobytes.
    let bomb = spdy.block(&vec![0; 40 << 20]);
    assert!(bomb.len() < 60_000, "{}", bomb.len());
    check_ends(spdy.stream, "a bomb of headers", &syn(&bomb)).await;
    let mut spdy = Spdy::port_forward(&setup).await;
    let many = spdy.block(&[0xff; 64]);
    check_ends(spdy.stream, "four billion headers", &syn(&many)).await;
    for (what, bytes) in [
        ("another version", vec![0x80, 2, 0, 1, 0, 0, 0, 0]),
        (
            "a long head of a frame",
            vec![0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff],
        ),
        ("a frame that is too short", control(SYN_STREAM, &[0, 0])),
        ("headers that are none", syn(&[0xff; 100])),
        (
            "a reset of nothing whole",
            control(RST_STREAM, &[0, 0, 0, 1]),
        ),
    ] {
        let spdy = Spdy::port_forward(&setup).await;
        check_ends(spdy.stream, what, &bytes).await;
    }
    check_serves(&setup).await;
    setup.delete_pod().await;
}

/// Each of the data streams of a connection was kept, and any number of them had the same name.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_connection_has_one_data_stream() {
    let setup = with_pod().await;
    let mut spdy = Spdy::port_forward(&setup).await;
    const PROTOCOL_ERROR: u32 = 1;
    spdy.open(1, "data", "a").await;
    spdy.open(3, "data", "a").await;
    assert_eq!(spdy.refused().await, (3, PROTOCOL_ERROR));
    spdy.open(5, "error", "b").await;
    spdy.open(7, "error", "b").await;
    assert_eq!(spdy.refused().await, (7, PROTOCOL_ERROR));
    spdy.open(9, "data", &"c".repeat(1000)).await;
    assert_eq!(spdy.refused().await, (9, PROTOCOL_ERROR));
    // Pairs that are whole are served, one of which nothing listens for.
    spdy.open(11, "error", "a").await;
    spdy.open(13, "other", "d").await;
    assert_eq!(spdy.refused().await, (13, PROTOCOL_ERROR));
    setup.delete_pod().await;
}

/// The attack: what a client has sent to a port is not read there, and the client leaves. It was not listened to, so that its
/// connections were kept for as long as the pod: a few clients took all that the node may have, and all descriptors.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_client_of_a_port_that_is_not_read_is_missed_when_it_leaves() {
    let setup = with_pod().await;
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let number = port.local_addr().unwrap().port().to_string();
    let mut spdy = Spdy::port_forward(&setup).await;
    spdy.open_to(1, "error", "a", &number).await;
    spdy.open_to(3, "data", "a", &number).await;
    let (of_pod, _) = port.accept().await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(spdy.stream);
    let flood = tokio::spawn(async move {
        let data = [&[0, 0, 0, 3, 0, 0, 0x80, 0][..], &[b'x'; 0x8000]].concat();
        while writer.write_all(&data).await.is_ok() {}
    });
    const PING: u8 = 6;
    let asked = async {
        loop {
            let mut head = [0; 8];
            reader.read_exact(&mut head).await.expect("a frame");
            let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
            let mut body = vec![0; length];
            reader.read_exact(&mut body).await.expect("a whole frame");
            if head[0] & 0x80 != 0 && head[3] == PING {
                return;
            }
        }
    };
    let asked = tokio::time::timeout(PATIENCE, asked).await;
    asked.expect("is asked whether it is there");
    flood.abort();
    let _ = flood.await;
    drop(reader);
    // Nothing is read at the port: that would let the client be listened to.
    let number = format!(":{:04X}", of_pod.local_addr().unwrap().port());
    const ESTABLISHED: &str = "01";
    until_true("the connection to the port ends", || {
        let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let of_node = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields
                .get(2)
                .is_some_and(|remote| remote.ends_with(&number))
                && fields.get(3) == Some(&ESTABLISHED)
        };
        !all.lines().any(of_node)
    })
    .await;
    drop(of_pod);
    setup.delete_pod().await;
}

/// The same for the input of a command, which does not read it.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_client_whose_input_is_not_read_is_asked_whether_it_is_there() {
    let setup = with_pod().await;
    let path = "/exec/default/p/c?input=1&output=1&command=sleep&command=300";
    let (stream, _) = by_websocket(&setup, path, "").await;
    let socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let (mut sink, mut messages) = socket.split();
    let flood = tokio::spawn(async move {
        let message = Message::binary([&[0][..], &[b'x'; 0x8000]].concat());
        while sink.send(message.clone()).await.is_ok() {}
    });
    let asked = async {
        while !matches!(
            messages.next().await.expect("a stream"),
            Ok(Message::Ping(_))
        ) {}
    };
    let asked = tokio::time::timeout(PATIENCE, asked).await;
    asked.expect("is asked whether it is there");
    flood.abort();
    setup.delete_pod().await;
}

/// While what a client has sent waited for a program that did not read it, nothing that the program wrote was passed on: one that
/// writes before it reads waited without end, as did its client.
#[tokio::test(flavor = "multi_thread")]
async fn regression_input_of_a_port_that_waits_does_not_hold_up_its_output() {
    // More than sockets and queues hold.
    const ALL: usize = 16 << 20;
    let setup = with_pod().await;
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let number = port.local_addr().unwrap().port();
    let path = format!("/portForward/default/p?ports={number}");
    let (stream, _) = by_websocket(&setup, &path, "").await;
    let (mut of_pod, _) = port.accept().await.unwrap();
    let socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let (mut sink, mut messages) = socket.split();
    let flood = tokio::spawn(async move {
        let message = Message::binary([&[0][..], &[b'x'; 0x8000]].concat());
        while sink.send(message.clone()).await.is_ok() {}
    });
    let passed_on = async {
        // The client is asked whether it is there as soon as its input waits.
        while !matches!(
            messages.next().await.expect("a stream"),
            Ok(Message::Ping(_))
        ) {}
        let output = tokio::spawn(async move {
            of_pod.write_all(&vec![b'y'; ALL]).await.unwrap();
            of_pod
        });
        let mut received = 0;
        while received < ALL {
            match messages.next().await.expect("a stream").unwrap() {
                Message::Binary(data) if data[0] == 0 => received += data.len() - 1,
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
        output.await.unwrap()
    };
    let passed_on = tokio::time::timeout(PATIENCE, passed_on).await;
    let of_pod = passed_on.expect("all of the output");
    flood.abort();
    drop(of_pod);
    setup.delete_pod().await;
}
