use std::path::PathBuf;

use futures::StreamExt;

use super::{Query, logs};

const LOG: &str = "2026-01-01T00:00:00.000000001Z stdout F one\n\
                   2026-01-01T00:00:01.000000001Z stderr F two\n\
                   2026-01-01T00:00:02.000000001Z stdout P thr\n\
                   2026-01-01T00:00:03.000000001Z stdout F ee\n";

async fn check(query: &str, expected: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("0.log");
    std::fs::write(&path, LOG).unwrap();
    let options = logs::Options::parse(&Query::parse(query), jiff::Timestamp::UNIX_EPOCH).unwrap();
    let chunks: Vec<_> = logs::read(path, options, None).collect().await;
    let text: Vec<u8> = chunks
        .into_iter()
        .flat_map(|chunk| chunk.unwrap().to_vec())
        .collect();
    assert_eq!(String::from_utf8(text).unwrap(), expected, "{query}");
}

#[tokio::test]
async fn log_options_choose_what_is_shown() {
    check("", "one\ntwo\nthree\n").await;
    check("stream=stderr", "two\n").await;
    check("tailLines=1", "ee\n").await;
    check("tailLines=0", "").await;
    check("tailLines=100", "one\ntwo\nthree\n").await;
    check("limitBytes=5", "one\nt").await;
    check("sinceTime=2026-01-01T00:00:01Z", "two\nthree\n").await;
    check(
        "timestamps=1&tailLines=3",
        "2026-01-01T00:00:01.000000001Z two\n2026-01-01T00:00:02.000000001Z three\n",
    )
    .await;
}

#[test]
fn bad_options_are_refused() {
    for query in ["tailLines=x", "tailLines=-1", "sinceTime=yesterday"] {
        let parsed = logs::Options::parse(&Query::parse(query), jiff::Timestamp::UNIX_EPOCH);
        assert!(parsed.is_err(), "{query}");
    }
}

/// A runtime writes to the old file until it is asked to reopen its log; until then no file has the name.
#[tokio::test]
async fn regression_a_followed_log_goes_on_after_its_rotation() {
    use std::io::Write;

    let directory = tempfile::tempdir().unwrap();
    let (path, aside) = (
        directory.path().join("0.log"),
        directory.path().join("0.log.1"),
    );
    let line = |text: &str| format!("2026-01-01T00:00:00Z stdout F {text}\n");
    std::fs::write(&path, line("one")).unwrap();
    let options = logs::Options::parse(&Query::parse("follow=true"), jiff::Timestamp::UNIX_EPOCH);
    let (end, exit) = tokio::sync::watch::channel(None);
    let mut log = std::pin::pin!(logs::read(path.clone(), options.unwrap(), Some(exit)));
    let mut next = async || {
        let chunk = tokio::time::timeout(allot_testing::wait::PATIENCE, log.next()).await;
        let chunk = chunk.expect("more of the log");
        chunk.map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap())
    };
    assert_eq!(next().await.as_deref(), Some("one\n"));
    std::fs::rename(&path, &aside).unwrap();
    let mut old = std::fs::OpenOptions::new()
        .append(true)
        .open(&aside)
        .unwrap();
    old.write_all(line("two").as_bytes()).unwrap();
    assert_eq!(next().await.as_deref(), Some("two\n"));
    std::fs::write(&path, line("three")).unwrap();
    assert_eq!(next().await.as_deref(), Some("three\n"));
    end.send_replace(Some(crate::shim::spec::Exit {
        code: 0,
        finished: jiff::Timestamp::now(),
        oom_killed: false,
    }));
    assert_eq!(next().await, None);
}

/// The attack: a pod with the directory of logs as its volume puts a link to a file of the host in the place of a log, which
/// `kubectl logs` showed, or a pipe, for which a thread of the agent waited.
#[tokio::test]
async fn regression_what_is_no_log_is_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.log");
    let secret = directory.path().join("secret");
    std::fs::write(&secret, LOG).unwrap();
    let read = async |query: &str| {
        let options = logs::Options::parse(&Query::parse(query), jiff::Timestamp::UNIX_EPOCH);
        let chunks = logs::read(path.clone(), options.unwrap(), None);
        chunks.collect::<Vec<_>>().await
    };
    for query in ["", "follow=true", "tailLines=1"] {
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        let chunks = read(query).await;
        assert!(matches!(chunks.as_slice(), [Err(_)]), "{query}: {chunks:?}");
        std::fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let chunks = read(query).await;
        assert!(matches!(chunks.as_slice(), [Err(_)]), "{query}: {chunks:?}");
        std::fs::remove_file(&path).unwrap();
    }
}
