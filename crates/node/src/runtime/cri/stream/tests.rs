use super::*;

const STATUS: &[u8] = br#"{"metadata":{},"status":"Success"}"#;

/// Serves one program like a container runtime: answers the upgrade, waits until the three streams are open, and sends these
/// frames. Then it closes the connection.
async fn answers(frames: Vec<Frame>) -> Vec<(u8, Vec<u8>)> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/exec/1", listener.local_addr().unwrap());
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let answer =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let mut spdy = Framed::new(stream, Codec::new());
        for _ in 0..3 {
            let opened = spdy.next().await.unwrap().unwrap();
            assert!(matches!(opened, Frame::Open { .. }), "{opened:?}");
        }
        for frame in frames {
            spdy.send(frame).await.unwrap();
        }
    };
    let channels = [channel::ERROR, channel::STDOUT, channel::STDERR];
    let (local, ()) = tokio::join!(program(&url, &channels), serve);
    let (mut reader, _writer) = local.unwrap().into_split();
    let mut told = Vec::new();
    while let Some(frame) = crate::frames::read(&mut reader).await {
        told.push(frame);
    }
    told
}

/// The streams are opened in the order of the channels: 1 is the result, 3 the output, 5 the output of errors.
fn data(id: u32, data: &'static [u8], fin: bool) -> Frame {
    let data = Bytes::from_static(data);
    Frame::Data { id, data, fin }
}

#[tokio::test]
async fn regression_streams_that_break_are_no_success() {
    let reset = |id| Frame::Reset { id, status: 5 };
    let broken = |output: &[&[u8]]| {
        let shown = output.iter().map(|it| (channel::STDOUT, it.to_vec()));
        let result = (channel::ERROR, NO_RESULT.as_bytes().to_vec());
        shown.chain([result]).collect::<Vec<_>>()
    };
    // The connection ends at once, in the middle of the output, and after it.
    assert_eq!(answers(vec![]).await, broken(&[]));
    let half = vec![data(3, b"half", false)];
    assert_eq!(answers(half).await, broken(&[b"half"]));
    let shown = vec![data(3, b"all", true), data(5, b"", true)];
    assert_eq!(answers(shown).await, broken(&[b"all"]));
    // All streams are aborted.
    let aborted = vec![reset(1), reset(3), reset(5)];
    assert_eq!(answers(aborted).await, broken(&[]));
}

#[tokio::test]
async fn a_result_is_told_however_the_streams_end_after_it() {
    let told = [
        (channel::STDOUT, b"all".to_vec()),
        (channel::ERROR, STATUS.to_vec()),
    ];
    // As runtimes do it: the result, and then the end of the connection.
    let closed = vec![data(3, b"all", false), data(1, STATUS, false)];
    assert_eq!(answers(closed).await, told);
    let reset = vec![
        data(3, b"all", true),
        data(1, STATUS, false),
        Frame::Reset { id: 1, status: 5 },
    ];
    assert_eq!(answers(reset).await, told);
    // The stream of the result is ended without one: that is a success in older protocols.
    let silent = vec![data(1, b"", true)];
    assert_eq!(answers(silent).await, [(channel::ERROR, Vec::new())]);
}
