use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::{Request, Response, Status};

use super::lenient::Filter;
use super::*;
use crate::hpack::{self, Decoder, Field};
use crate::registration::registration_server::{Registration, RegistrationServer};
use crate::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

struct Plugin;

#[tonic::async_trait]
impl Registration for Plugin {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            name: "gpu.example.com".into(),
            ..Default::default()
        }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

struct Server {
    directory: tempfile::TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let incoming = Incoming::bind(directory.path().join("reg.sock")).unwrap();
        let task = tokio::spawn(async move {
            let services = Services::new().with(RegistrationServer::new(Plugin));
            services
                .serve(incoming, std::future::pending())
                .await
                .unwrap();
        });
        Self { directory, task }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("reg.sock")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut out = vec![length[1], length[2], length[3], kind, flags];
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

fn literal(name: &str, value: &str, indexed: bool) -> Vec<u8> {
    let mut out = vec![if indexed { 0x40 } else { 0x00 }];
    for text in [name, value] {
        assert!(text.len() < 127);
        out.push(text.len() as u8);
        out.extend_from_slice(text.as_bytes());
    }
    out
}

/// The header block of a GetInfo call as a Go client sends it: with entries of the dynamic table.
fn request(authority: Option<&str>, indexed: bool) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    block.extend(literal(
        ":path",
        "/pluginregistration.Registration/GetInfo",
        indexed,
    ));
    if let Some(authority) = authority {
        block.extend(literal(":authority", authority, indexed));
    }
    block.extend(literal("content-type", "application/grpc", indexed));
    block.extend(literal("te", "trailers", indexed));
    block
}

/// Sends raw frames and returns the body of the answer on `stream`, or the RST_STREAM code.
async fn exchange(socket: &mut UnixStream, frames: &[u8], stream: u32) -> Result<Vec<u8>, u32> {
    socket.write_all(frames).await.unwrap();
    let mut body = Vec::new();
    loop {
        let mut header = [0u8; 9];
        tokio::time::timeout(Duration::from_secs(120), socket.read_exact(&mut header))
            .await
            .unwrap()
            .unwrap();
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload).await.unwrap();
        let on = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        match header[3] {
            0x0 if on == stream => body.extend(payload),
            0x1 if on == stream && header[4] & 1 != 0 => return Ok(body),
            0x3 if on == stream => return Err(u32::from_be_bytes(payload.try_into().unwrap())),
            0x7 => panic!("GOAWAY: {payload:?}"),
            _ => {}
        }
    }
}

fn preface() -> Vec<u8> {
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    out.extend(frame(0x4, 0, 0, &[]));
    out
}

/// The name in the answer to GetInfo: one gRPC message, field 2.
fn name_in(body: &[u8]) -> String {
    let info: PluginInfo = prost::Message::decode(&body[5..]).unwrap();
    info.name
}

#[tokio::test]
async fn every_authority_of_go_clients_is_accepted() {
    let server = Server::start();
    let authorities = [
        Some("localhost"),
        None,
        Some("%2Fvar%2Flib%2Fkubelet%2Freg.sock"),
        Some("/var/lib/kubelet/reg.sock"),
    ];
    for authority in authorities {
        let mut socket = UnixStream::connect(server.path()).await.unwrap();
        let mut frames = preface();
        frames.extend(frame(0x1, 0x4, 1, &request(authority, false)));
        frames.extend(frame(0x0, 0x1, 1, &[0; 5]));
        let body = exchange(&mut socket, &frames, 1)
            .await
            .unwrap_or_else(|code| panic!("{authority:?}: {code}"));
        assert_eq!(name_in(&body), "gpu.example.com", "{authority:?}");
    }
}

#[tokio::test]
async fn later_requests_that_use_the_dynamic_table_work() {
    let server = Server::start();
    let mut socket = UnixStream::connect(server.path()).await.unwrap();
    let mut frames = preface();
    frames.extend(frame(
        0x1,
        0x4,
        1,
        &request(Some("%2Ftmp%2Freg.sock"), true),
    ));
    frames.extend(frame(0x0, 0x1, 1, &[0; 5]));
    assert_eq!(
        name_in(&exchange(&mut socket, &frames, 1).await.unwrap()),
        "gpu.example.com"
    );
    // The same request again, by index only: :method, :scheme, then the four entries, newest first.
    let block = [0x83, 0x86, 0xc1, 0xc0, 0xbf, 0xbe];
    // Padded, with priority, and split over a CONTINUATION.
    let mut payload = vec![3, 0, 0, 0, 0, 16];
    payload.extend(&block[..2]);
    payload.extend([0; 3]);
    let mut frames = frame(0x1, 0x8 | 0x20, 3, &payload);
    frames.extend(frame(0x9, 0x4, 3, &block[2..]));
    frames.extend(frame(0x0, 0x1, 3, &[0; 5]));
    assert_eq!(
        name_in(&exchange(&mut socket, &frames, 3).await.unwrap()),
        "gpu.example.com"
    );
}

#[tokio::test]
async fn our_own_client_connects() {
    let server = Server::start();
    let channel = connect(&server.path()).await.unwrap();
    let mut client = crate::registration::registration_client::RegistrationClient::new(channel);
    assert_eq!(
        client
            .get_info(InfoRequest {})
            .await
            .unwrap()
            .into_inner()
            .name,
        "gpu.example.com"
    );
}

#[tokio::test]
async fn unknown_services_are_unimplemented() {
    let server = Server::start();
    let channel = connect(&server.path()).await.unwrap();
    let mut client = crate::dra_v1::dra_plugin_client::DraPluginClient::new(channel);
    let error = client
        .node_prepare_resources(crate::dra_v1::NodePrepareResourcesRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unimplemented);
}

#[test]
fn the_result_does_not_depend_on_how_the_bytes_arrive() {
    let mut input = preface();
    input.extend(frame(0x1, 0x4, 1, &request(Some("/a/b.sock"), true)));
    input.extend(frame(0x0, 0x1, 1, b"hello"));
    input.extend(frame(0x1, 0x5, 3, &[]));
    let run = |step: usize| {
        let (mut filter, mut out) = (Filter::new(), Vec::new());
        for chunk in input.chunks(step) {
            filter.push(chunk).unwrap();
            out.extend_from_slice(filter.ready());
            filter.consume(filter.ready().len());
        }
        out
    };
    let whole = run(input.len());
    for step in 1..40 {
        assert_eq!(run(step), whole, "chunks of {step}");
    }
    let tail = frame(0x1, 0x5, 3, &[]);
    assert!(whole.ends_with(&tail));
}

#[test]
fn a_block_larger_than_a_frame_is_split_again() {
    let fields: Vec<Field> = (0..400)
        .map(|i| Field {
            name: format!("x-{i}").into_bytes(),
            value: vec![b'v'; 100],
            never_index: false,
        })
        .collect();
    let mut block = Vec::new();
    hpack::encode(&fields, &mut block);
    let mut input = preface();
    let mut chunks = block.chunks(10_000).enumerate().peekable();
    while let Some((i, chunk)) = chunks.next() {
        let flags = if chunks.peek().is_none() { 4 } else { 0 };
        input.extend(frame(if i == 0 { 1 } else { 9 }, flags, 1, chunk));
    }
    let mut filter = Filter::new();
    filter.push(&input).unwrap();
    let mut rest = &filter.ready()[preface().len()..];
    let mut joined = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        assert!(length <= 16384);
        joined.extend_from_slice(&rest[9..9 + length]);
        rest = &rest[9 + length..];
    }
    assert_eq!(Decoder::new(1 << 20).decode(&joined).unwrap(), fields);
}

#[test]
fn broken_streams_are_errors() {
    let cases = [
        ("continuation without headers", frame(0x9, 4, 1, &[])),
        (
            "frame inside of a block",
            [frame(0x1, 0, 1, &[0x82]), frame(0x0, 0, 1, &[])].concat(),
        ),
        (
            "continuation of another stream",
            [frame(0x1, 0, 1, &[0x82]), frame(0x9, 4, 3, &[])].concat(),
        ),
        (
            "padding longer than the frame",
            frame(0x1, 0x8 | 4, 1, &[9, 0x82]),
        ),
        ("bad index", frame(0x1, 4, 1, &[0xff, 0x20])),
        ("too large", vec![0x10, 0, 0, 1, 4, 0, 0, 0, 1]),
    ];
    for (what, bytes) in cases {
        let mut filter = Filter::new();
        filter.push(&preface()).unwrap();
        assert!(filter.push(&bytes).is_err(), "{what}");
    }
}

#[tokio::test]
async fn the_socket_file_goes_with_the_listener_unless_it_was_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sock");
    let first = Incoming::bind(&path).unwrap();
    let second = Incoming::bind(&path).unwrap();
    drop(first);
    assert!(path.exists(), "the second listener owns the path");
    drop(second);
    assert!(!path.exists());
    std::fs::write(&path, "not a socket").unwrap();
    assert_eq!(
        Incoming::bind(&path).unwrap_err().kind(),
        io::ErrorKind::AlreadyExists
    );
    let long = directory.path().join("x".repeat(120));
    assert!(
        Incoming::bind(long)
            .unwrap_err()
            .to_string()
            .contains("the limit is 107")
    );
}
