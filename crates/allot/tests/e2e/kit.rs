//! The conformance kit for drivers as a command: which cases run, which are expected to fail, what is written, and a driver that
//! runs already.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::harness::{ALLOT, Up, directory};

fn kit(arguments: &[&str]) -> Output {
    Command::new(ALLOT)
        .args(["conformance", "driver"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts")
}

/// What the command printed, which must end with this code.
fn printed(output: &Output, code: i32) -> String {
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{error}");
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output, code: i32) -> Value {
    serde_json::from_str(&printed(output, code)).expect("JSON")
}

/// The verdict on each case.
fn verdicts(report: &Value) -> Vec<(&str, &str)> {
    let cases = report["cases"].as_array().expect("a list").iter();
    cases
        .filter_map(|case| case["case"].as_str().zip(case["verdict"].as_str()))
        .collect()
}

/// The example driver, which leaves its slices when it ends, and shares no device.
fn driver() -> String {
    format!(
        "'{ALLOT}' driver gpu --kubeconfig {{kubeconfig}} --node-name {{node}} --kubelet-dir {{kubelet}} --cdi-dir {{cdi}}"
    )
}

#[test]
fn cases_are_listed_as_they_are_selected() {
    let all = printed(&kit(&["--list"]), 0);
    assert!(all.contains("\nprepare-answers\n    "), "{all}");
    let selection = ["--case", "cdi-*", "--case", "churn", "--skip", "cdi-?tomic"];
    let some = json(
        &kit(&[&["--list", "-o", "json"][..], &selection].concat()),
        0,
    );
    let names: Vec<&str> = some
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|case| case["case"].as_str())
        .collect();
    assert!(
        names.contains(&"cdi-valid") && names.contains(&"churn"),
        "{names:?}"
    );
    assert!(!names.contains(&"cdi-atomic"), "{names:?}");
    assert!(!names.contains(&"prepare-answers"), "{names:?}");
    assert!(some[0]["hint"].is_string(), "{some}");
}

/// One case passes, one fails and one is skipped: as they are, with a list that names the failure, and with one that also names
/// what passes.
#[test]
fn failures_are_those_that_are_not_expected() {
    let files = directory();
    let file = |name: &str| files.path().join(name).display().to_string();
    let (driver, junit, expected) = (driver(), file("junit.xml"), file("expected"));
    let check = |list: Option<&str>, code: i32, wanted: &[(&str, &str)], suite: &str| {
        let mut arguments = vec!["--command", &driver, "--jobs", "3", "-o", "json"];
        arguments.extend(["--case", "registration-info", "--case", "publish-exit"]);
        arguments.extend(["--case", "share-i*", "--slices-at-exit", "removed"]);
        arguments.extend(["--junit", &junit]);
        if let Some(list) = list {
            std::fs::write(&expected, list).expect("written");
            arguments.extend(["--expected-failures", &expected]);
        }
        let report = json(&kit(&arguments), code);
        assert_eq!(verdicts(&report), wanted, "{list:?}");
        let written = std::fs::read_to_string(&junit).expect("written");
        assert!(written.contains(suite), "{list:?}: {written}");
        assert!(written.contains("<testcase classname=\"dra.conformance\" name=\"publish-exit\""));
    };
    let of = |info, exit| {
        [
            ("registration-info", info),
            ("publish-exit", exit),
            ("share-id", "skip"),
        ]
    };
    let suite = |failures, skipped| {
        format!(
            "<testsuite name=\"dra-conformance gpu.example.com\" tests=\"3\" failures=\"{failures}\" skipped=\"{skipped}\""
        )
    };
    check(None, 1, &of("pass", "fail"), &suite(1, 1));
    let known = "# news\npublish-exit # it leaves them\n";
    check(
        Some(known),
        0,
        &of("pass", "expected-failure"),
        &suite(0, 2),
    );
    let fixed = "publish-exit\nregistration-info\n";
    check(
        Some(fixed),
        1,
        &of("unexpected-pass", "expected-failure"),
        &suite(1, 2),
    );

    std::fs::write(&expected, "publish-exit\npublish-exti\n").expect("written");
    let output = kit(&["--command", &driver, "--expected-failures", &expected]);
    printed(&output, 2);
    let error = text(&output.stderr);
    assert!(
        error.contains("line 2: there is no case \"publish-exti\""),
        "{error}"
    );
    let output = kit(&["--command", "sh -c 'echo no hardware >&2; exit 3'"]);
    printed(&output, 2);
    let error = text(&output.stderr);
    assert!(error.contains("no hardware"), "{error}");
}

/// Ends a process that a test started.
struct Ends(std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A driver that the kit did not start, on a node of a cluster: cases that need its process are skipped, the others pass, and nothing
/// of them is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_driver_is_tried() {
    let up = Up::in_memory_with(&["--no-driver"]).await;
    up.create("{apiVersion: v1, kind: Node, metadata: {name: other}}")
        .await;
    // Paths of sockets are short.
    let node = tempfile::Builder::new()
        .prefix("kr")
        .tempdir_in("/tmp")
        .expect("a directory");
    for directory in ["plugins", "plugins_registry", "cdi"] {
        std::fs::create_dir(node.path().join(directory)).expect("made");
    }
    let path = |name: &str| node.path().join(name).display().to_string();
    let (kubeconfig, root) = (up.kubeconfig.display().to_string(), path(""));
    let (plugins, registry, cdi) = (
        path("plugins/gpu.example.com"),
        path("plugins_registry"),
        path("cdi"),
    );
    std::fs::create_dir(&plugins).expect("made");
    let _driver = Ends(
        Command::new(ALLOT)
            .args([
                "driver",
                "gpu",
                "--kubeconfig",
                &kubeconfig,
                "--node-name",
                "other",
            ])
            .args(["--kubelet-dir", &root, "--cdi-dir", &cdi])
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary starts"),
    );
    let mut arguments = vec![
        "--plugin-dir",
        &plugins,
        "--registry-dir",
        &registry,
        "--cdi-dir",
        &cdi,
    ];
    arguments.extend(["--kubeconfig", &kubeconfig, "--node", "other", "-o", "json"]);
    arguments.extend([
        "--case",
        "registration-*",
        "--case",
        "prepare-*",
        "--case",
        "unprepare-*",
    ]);
    arguments.extend(["--case", "cdi-*", "--case", "share-*", "--case", "health-*"]);
    let output = tokio::task::spawn_blocking({
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        move || kit(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let report = json(&output.await.expect("no panic"), 0);
    let verdicts = verdicts(&report);
    assert!(
        verdicts.contains(&("prepare-answers", "pass")),
        "{verdicts:?}"
    );
    assert!(
        verdicts.contains(&("registration-kubelet-restart", "pass")),
        "{verdicts:?}"
    );
    assert!(
        verdicts.contains(&("registration-restart", "skip")),
        "{verdicts:?}"
    );
    let left = std::fs::read_dir(Path::new(&cdi))
        .expect("listed")
        .flatten();
    let left: Vec<_> = left.map(|file| file.file_name()).collect();
    assert_eq!(left.len(), 1, "the file of all claims: {left:?}");
    let claims = kube::Api::<k8s_openapi::api::resource::v1::ResourceClaim>::all(up.client.clone());
    let claims = claims
        .list(&kube::api::ListParams::default())
        .await
        .expect("listed");
    assert!(claims.items.is_empty(), "{:?}", claims.items);
}
