use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

use super::*;

/// A client and a server, joined.
fn joined() -> (DuplexStream, DuplexStream, tokio::task::JoinHandle<()>) {
    let (client, ours) = duplex(64);
    let (theirs, server) = duplex(64);
    (client, server, tokio::spawn(join(ours, theirs)))
}

/// A client that left kept its place as long as the server had nothing to say.
#[tokio::test(start_paused = true)]
async fn regression_a_client_that_leaves_ends_a_stream_whose_server_is_silent() {
    let (mut client, mut server, stream) = joined();
    client.write_all(b"the end").await.unwrap();
    drop(client);
    // The server neither answers nor closes.
    stream.await.unwrap();
    let mut got = Vec::new();
    server.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"the end");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_ends_the_stream_after_all_that_it_sent() {
    let (mut client, mut server, stream) = joined();
    let sent = vec![7; 1000];
    let write = async {
        server.write_all(&sent).await.unwrap();
        drop(server);
    };
    let mut got = Vec::new();
    let (read, ()) = tokio::join!(client.read_to_end(&mut got), write);
    read.unwrap();
    assert_eq!(got, sent);
    stream.await.unwrap();
}
