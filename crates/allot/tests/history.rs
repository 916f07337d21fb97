//! Records what concurrent clients do and see while the real API server is killed and started again, and checks it
//! against a sequential model: one object store whose revisions are its order.

#[path = "history/client.rs"]
mod client;
#[path = "history/model.rs"]
mod model;
#[path = "history/model_tests.rs"]
mod model_tests;
#[path = "history/server.rs"]
mod server;

use std::time::Duration;

use client::Recorder;
use server::Server;

const KILLS: usize = 8;
const WRITERS: usize = 6;
const WATCHERS: usize = 2;
/// Operations that are acknowledged before each kill.
const WORK: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn histories_over_kills_fit_the_model() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let recorder = Recorder::default();
    let mut logs = vec![Vec::new(); WATCHERS];
    let mut server = Server::start(directory.path()).await;
    let first = recorder.list(&server.client()).await.expect("a list");
    for round in 0..=KILLS {
        let last = round == KILLS;
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| {
                let (client, recorder) = (server.client(), recorder.clone());
                let work =
                    async move { recorder.work(client, (round * WRITERS + seed) as u64).await };
                tokio::spawn(work)
            })
            .collect();
        let watchers: Vec<_> = logs
            .iter()
            .map(|log: &Vec<model::Event>| {
                let from = log.last().map_or(first, |event| event.revision);
                tokio::spawn(client::watch(server.client(), from))
            })
            .collect();
        // Moments all over the half second that comes after some work on any machine.
        let begun = recorder.until_acknowledged(WORK * (round + 1));
        tokio::time::timeout(server::PATIENCE, begun)
            .await
            .expect("the writers get somewhere");
        tokio::time::sleep(Duration::from_millis(round as u64 * 97 % 440)).await;
        let end = if last {
            recorder.stop();
            for writer in writers {
                writer.await.expect("writers do not panic");
            }
            // The watchers stop when they see this.
            recorder
                .end(&server.client())
                .await
                .expect("the last write");
            None
        } else {
            server.kill();
            Some(writers)
        };
        for writer in end.into_iter().flatten() {
            writer.await.expect("writers do not panic");
        }
        for (log, watcher) in logs.iter_mut().zip(watchers) {
            log.extend(watcher.await.expect("watchers do not panic"));
        }
        if !last {
            server = Server::start(directory.path()).await;
        }
    }
    let operations = recorder.take();
    let problems = model::check(first, &operations, &logs);
    assert!(problems.is_empty(), "{problems:#?}");
}
