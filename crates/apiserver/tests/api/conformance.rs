//! The recorded conversations, where they are at hand.

use std::path::PathBuf;

use super::remote;

/// Steps that passed when this number was last raised; fewer are a regression.
const PASSED_BEFORE: usize = 1150;

fn folder() -> PathBuf {
    std::env::var_os("ALLOT_CONFORMANCE_DIR")
        .map_or_else(
            || {
                PathBuf::from(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/../../../shared/conformance"
                ))
            },
            PathBuf::from,
        )
        .join("api")
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_conversations() {
    let replay = folder().join("replay.py");
    if !replay.exists() {
        return eprintln!("skipped: no recorded conversations at {}", replay.display());
    }
    let directory = tempfile::tempdir().unwrap();
    let server = remote::start(directory.path()).await;
    let output = tokio::process::Command::new("python3")
        .arg(&replay)
        .args([
            "check",
            "--insecure",
            "--token",
            "secret",
            "--loose-tags",
            "go-text,go-struct",
            "--server",
            &server.url,
        ])
        .output()
        .await;
    server.stop().await;
    let Ok(output) = output else {
        return eprintln!("skipped: no python3");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let passed: usize = last
        .split(' ')
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(0);
    assert!(passed >= PASSED_BEFORE, "{text}");
    eprintln!("{last}");
}
