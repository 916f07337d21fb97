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
