//! What programs that are no plugins send, and whom the socket is for.

use allot_protos::nri::{ContainerUpdate, UpdateContainersRequest};

use super::super::connection::INVALID;
use super::*;

/// Whether the agent ends a connection after these bytes, without having been told more.
async fn is_closed_after(node: &Node, bytes: &[u8]) -> bool {
    let mut stream = node.connect().await;
    // It may be closed before everything was written.
    let _ = stream.write_all(bytes).await;
    let mut rest = Vec::new();
    let read = tokio::time::timeout(REGISTRATION / 2, stream.read_to_end(&mut rest));
    read.await.is_ok()
}

#[tokio::test]
async fn hostile_frames_end_their_connection_and_no_other() {
    let node = Node::new().await;
    let (good, _) = Fake::register(&node, "00", bit(Event::RunPodSandbox)).await;
    node.until_joined(1).await;
    let called = good.serve(|_, _| Ok(Vec::new()));
    let frame = |conversation: u32, length: u32, content: &[u8]| {
        let header = [conversation.to_be_bytes(), length.to_be_bytes()].concat();
        [&header[..], content].concat()
    };
    let message = |kind: u8, content: &[u8]| {
        let message = Message {
            call: 1,
            kind,
            content: content.to_vec(),
        };
        encode(RUNTIME, &message)
    };
    let response = encode(
        PLUGIN,
        &Message {
            call: 9,
            kind: CALL,
            content: Vec::new(),
        },
    );
    // Groups in groups, far deeper than any message is.
    let nested = vec![0x0b; 1 << 16];
    let flood: Vec<u8> = (0..100).flat_map(|_| message(CALL, &[])).collect();
    for bytes in [
        frame(1, u32::MAX, &[]),
        frame(2, 10, &[255; 10]),
        message(RESPONSE, &[]),
        message(77, &[]),
        response,
        encode(
            PLUGIN,
            &Message {
                call: 9,
                kind: RESPONSE,
                content: nested.clone(),
            },
        ),
        flood,
    ] {
        assert!(
            is_closed_after(&node, &bytes).await,
            "{:?}",
            &bytes[..18.min(bytes.len())]
        );
    }
    // What cannot be read is refused in an answer.
    let mut stream = node.connect().await;
    stream
        .write_all(&message(CALL, &nested))
        .await
        .expect("written");
    let (_, refused) = Reader::new(stream)
        .next()
        .await
        .expect("an answer")
        .expect("an answer");
    let refused = Response::decode(&*refused.content)
        .expect("an answer")
        .status;
    assert!(refused.is_some_and(|status| status.code != 0));
    node.pod("u1").await.expect("told");
    assert_eq!(
        called.lock().last().map(String::as_str),
        Some("RunPodSandbox")
    );
}

#[tokio::test]
async fn connections_that_say_nothing_take_no_place_for_long() {
    let node = Node::new().await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(node.connect().await);
        // Connecting does not wait for the agent, whose queue would be full.
        tokio::task::yield_now().await;
    }
    // Those that found no place are closed at once.
    let mut byte = [0];
    let last = silent.last_mut().expect("a connection");
    assert_eq!(last.read(&mut byte).await.unwrap_or(0), 0);
    assert_eq!(node.nri.places.available_permits(), 0);
    // The others have the time to register.
    tokio::time::pause();
    assert_eq!(silent[0].read(&mut byte).await.unwrap_or(0), 0);
    tokio::time::resume();
    drop(silent);
    let (_plugin, _) = Fake::register(&node, "00", 0).await;
    node.until_joined(1).await;
}

#[tokio::test]
async fn calls_and_answers_with_too_many_entries_are_refused() {
    let node = Node::new().await;
    let (mut plugin, _) = Fake::register(&node, "00", 0).await;
    let wanted = UpdateContainersRequest {
        update: vec![ContainerUpdate::default(); 20_000],
        ..UpdateContainersRequest::default()
    };
    let wanted = wanted.encode_to_vec();
    plugin.call(3, "UpdateContainers", wanted.clone()).await;
    let answer = loop {
        let read = plugin.reader.next().await.expect("a message");
        let (conversation, message) = read.expect("a message");
        if conversation == RUNTIME && message.call == 3 {
            break message;
        }
    };
    let answer = Response::decode(&*answer.content).expect("an answer");
    assert_eq!(answer.status.map(|status| status.code), Some(INVALID));
    // An answer with as many ends the connection, and the pod continues.
    node.until_joined(1).await;
    plugin.serve(move |_, _| Ok(wanted.clone()));
    node.pod("u1").await.expect("told");
    node.until_joined(0).await;
}

#[tokio::test]
async fn the_socket_is_for_root_alone_and_for_one_agent() {
    use std::os::unix::fs::PermissionsExt as _;
    let node = Node::new().await;
    let path = node.directory.path().join("run/nri.sock");
    let mode = |path: &Path| {
        std::fs::metadata(path)
            .expect("a file")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode(&path), mode(path.parent().expect("a parent"))),
        (0o600, 0o700)
    );
    let error = Listener::bind(&path).await.expect_err("in use").to_string();
    assert!(error.contains("another program listens there"), "{error}");
    let file = node.directory.path().join("file");
    std::fs::write(&file, "").expect("written");
    let error = Listener::bind(&file)
        .await
        .expect_err("no socket")
        .to_string();
    assert!(error.contains("not a socket"), "{error}");
}
