//! A driver that answers with bytes of the fuzz target `driver`.

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tonic::transport::{Channel, Endpoint};

use super::call::{ClaimToPrepare, MOST, calls, check_answers};

/// What the client sends first on a connection.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The longest frame that both sides accept without an agreement.
const FRAME: usize = 16 << 10;
/// What may be sent without an update of the window.
const WINDOW: usize = 60 << 10;
/// The first byte of an input whose rest is all that the driver sends.
const RAW: u8 = 0x80;
/// `:status: 200` from the table, and `content-type: application/grpc`.
const HEAD: &[u8] = b"\x88\x00\x0ccontent-type\x10application/grpc";
const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

/// Calls a driver with this answer; see [`crate::fuzzing::driver`].
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((how, answer)) = bytes.split_first() else {
        return;
    };
    let all = calls();
    let call = all[usize::from(how & !RAW) % all.len()];
    let answer = match how & RAW {
        0 => framed(&answer[..answer.len().min(WINDOW)]),
        _ => answer.to_vec(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let answered = runtime.block_on(async { call(channel(answer), wanted()).await });
    let Ok(answers) = answered else { return };
    if let Ok(results) = check_answers("Node", &wanted(), answers) {
        let devices = results.iter().flat_map(|(_, devices)| devices);
        assert!(devices.count() <= MOST, "more devices than are kept");
    }
}

fn wanted() -> Vec<ClaimToPrepare> {
    let claim = |number: u8| ClaimToPrepare {
        namespace: "team".to_owned(),
        name: format!("claim-{number}"),
        uid: format!("uid-{number}"),
        ..ClaimToPrepare::default()
    };
    vec![claim(1), claim(2)]
}

/// A channel over one connection.
fn channel(answer: Vec<u8>) -> Channel {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move {
        // The input may be such that the call ends first, and the connection with it.
        let _ended = answers(theirs, &answer).await;
    });
    let connection = Mutex::new(Some(ours));
    let connect = tower::service_fn(move |_: http::Uri| {
        let first = connection.lock().take();
        async move {
            let again = || std::io::Error::other("the driver is gone");
            first.map(hyper_util::rt::TokioIo::new).ok_or_else(again)
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect)
}

/// Reads a whole request, sends the answer, and ends when the client does.
async fn answers(mut connection: DuplexStream, answer: &[u8]) -> std::io::Result<()> {
    connection.read_exact(&mut [0; PREFACE]).await?;
    loop {
        let mut header = [0; FRAME_HEADER];
        connection.read_exact(&mut header).await?;
        let [a, b, c, kind, flags, ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        connection.read_exact(&mut payload).await?;
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            break;
        }
    }
    connection.write_all(answer).await?;
    connection.shutdown().await?;
    tokio::io::copy(&mut connection, &mut tokio::io::sink()).await?;
    Ok(())
}

/// The message as the answer to the first request of a connection.
fn framed(message: &[u8]) -> Vec<u8> {
    let mut data = vec![0];
    data.extend_from_slice(&(message.len() as u32).to_be_bytes());
    data.extend_from_slice(message);
    let mut out = Vec::new();
    frame(&mut out, SETTINGS, 0, 0, &[]);
    frame(&mut out, HEADERS, END_HEADERS, 1, HEAD);
    for piece in data.chunks(FRAME) {
        frame(&mut out, DATA, 0, 1, piece);
    }
    frame(&mut out, HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS);
    out
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of the fuzz target reaches the checks: otherwise the target would test nothing.
    #[test]
    fn an_answer_of_the_target_is_read() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        // claims: {"uid-1": {error: "no"}}
        let message = b"\x0a\x0d\x0a\x05uid-1\x12\x04\x12\x02no";
        let answers = runtime.block_on(async {
            calls()[0](channel(framed(message)), wanted())
                .await
                .unwrap()
        });
        assert_eq!(answers.len(), 1);
        assert_eq!(
            (answers[0].0.as_str(), answers[0].1.as_str()),
            ("uid-1", "no")
        );
    }
}
