//! The recorded conversations, with a server inside of the test.
//!
//! `cargo test -p allot --test conformance api` plays them with the real binary.

use allot_testing::outcome::Outcomes;
use allot_testing::replay::{Server, conversations};

use super::remote;

#[tokio::test(flavor = "multi_thread")]
async fn recorded_conversations() {
    let directory = tempfile::tempdir().unwrap();
    let server = remote::start(directory.path()).await;
    let url = server.url.clone();
    let played = tokio::task::spawn_blocking(move || {
        let mut outcomes = Outcomes::new("api");
        let server = Server {
            url: &url,
            token: "secret",
        };
        for conversations in conversations() {
            conversations.play(server, &|_| true, &mut |step, result| {
                outcomes.add(step, result);
            });
        }
        outcomes
    })
    .await;
    server.stop().await;
    played.unwrap().finish();
}
