//! Which driver fails which cases.

use std::collections::BTreeSet;
use std::time::Duration;

use allot_conformance::{AtExit, Length, Options, Report, Verdict, cases, chaos, run};
use futures::StreamExt;
use serde_json::json;

use super::process::command;

fn options(driver: &str, fault: &str) -> Options {
    let parameters = match driver {
        "raw" => json!({"apiVersion": "raw.example.com/v1", "kind": "RawConfig", "brightness": 1}),
        _ => json!({"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig"}),
    };
    let other = match driver {
        "raw" => json!({"apiVersion": "raw.example.com/v1", "kind": "RawConfig", "brightness": 2}),
        _ => json!({"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig",
            "sharing": {"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": 2}}}),
    };
    let options = Options::command(&command(driver, fault)).unwrap();
    // The example driver has no earlier release: its own state is enough.
    let earlier = match driver {
        "raw" => "earlier-release",
        _ => "",
    };
    let options = options.earlier(&command(driver, earlier)).unwrap();
    options
        .parameters(parameters)
        .unwrap()
        .other_parameters(other)
        .unwrap()
        .slices_at_exit(AtExit::Kept)
        .cycles(60)
        .quiet(Duration::from_secs(2))
}

/// A driver whose instances have each a state of its own, and the case that finds it.
const OWN_STATE: (&str, &[&str]) = ("own-state", &[ROLLING]);
/// Drivers that refuse a second instance are not tried.
const ROLLING: &str = "registration-rolling-update";
/// Needs the right to mount, and is skipped without it.
const FULL: &str = "state-disk-full";

async fn try_driver(options: Options) -> Report {
    let report = run(options, |record| {
        if record.verdict == Verdict::Fail {
            eprintln!("{}", record.text());
        }
    });
    report.await.unwrap_or_else(|error| panic!("{error}"))
}

/// The SDK, in the example driver.
#[tokio::test(flavor = "multi_thread")]
async fn the_gpu_driver_passes() {
    let report = try_driver(options("gpu", "").jobs(4)).await;
    report.assert_passed();
    // Its GPUs are not shared.
    let mut skipped = report.names(Verdict::Skip);
    skipped.retain(|case| *case != FULL);
    assert_eq!(
        skipped,
        [
            ROLLING,
            "publish-taint-times",
            "share-parallel",
            "share-restart",
            "share-one-claim",
            "share-id",
            "capacity-amounts",
        ]
    );
}

/// The SDK with devices that claims share.
#[tokio::test(flavor = "multi_thread")]
async fn the_gpu_driver_with_shared_gpus_passes() {
    let options = options("gpu-shared", "").jobs(4);
    let cases = [
        "share-*",
        "capacity-*",
        "metadata-*",
        "prepare-*",
        "unprepare-*",
    ];
    let report = try_driver(options.cases(&cases, &[] as &[&str]).unwrap()).await;
    report.assert_passed();
    assert_eq!(report.names(Verdict::Skip), ["share-refused"]);
}

/// A driver without the SDK: the rules are not those of one implementation.
#[tokio::test(flavor = "multi_thread")]
async fn a_correct_driver_passes() {
    let report = try_driver(options("raw", "").jobs(4)).await;
    report.assert_passed();
    let mut skipped = report.names(Verdict::Skip);
    skipped.retain(|case| *case != FULL);
    assert_eq!(skipped, [ROLLING]);
}

/// Two instances of a driver on the SDK, and a driver whose instances do not know of each other.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_replaces_another_one() {
    for (fault, verdict) in [("", Verdict::Pass), (OWN_STATE.0, Verdict::Fail)] {
        let options = options("rolling", fault);
        let options = options.cases(OWN_STATE.1, &[] as &[&str]).unwrap();
        let report = try_driver(options).await;
        assert_eq!(report.names(verdict), OWN_STATE.1, "{fault}");
    }
}

/// What is done with slices at exit is compared with what is declared; a part of them is never left.
#[tokio::test(flavor = "multi_thread")]
async fn slices_at_exit_are_as_declared() {
    let check = async |fault: &str, declared: Option<AtExit>, verdict: Verdict| {
        let mut options = options("raw", fault);
        if let Some(declared) = declared {
            options = options.slices_at_exit(declared);
        }
        let options = options.cases(&["publish-exit"], &[] as &[&str]).unwrap();
        let report = try_driver(options).await;
        assert_eq!(
            report.names(verdict),
            ["publish-exit"],
            "{fault} {declared:?}"
        );
    };
    check("", Some(AtExit::Removed), Verdict::Fail).await;
    check("removes-at-exit", Some(AtExit::Removed), Verdict::Pass).await;
    check("empties-at-exit", Some(AtExit::Removed), Verdict::Fail).await;
}

/// The SDK and the kit name the same variable; a driver without the SDK sees the ID where the kernel has it.
#[test]
fn a_boot_id_reaches_the_sdk() {
    assert_eq!(
        allot_driver::BOOT_ID_VARIABLE,
        allot_conformance::BOOT_ID_VARIABLE
    );
}

/// A driver that names no devices in its answers: what cannot be seen is skipped.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_driver_that_injects_devices_without_cdi_passes() {
    let cases = [
        "prepare-*",
        "unprepare-*",
        "share-*",
        "cdi-*",
        "crash-prepared",
        "state-deleted",
    ];
    let options = options("raw", "injects").jobs(4);
    let report = try_driver(options.cases(&cases, &[] as &[&str]).unwrap()).await;
    report.assert_passed();
    let mut skipped = report.names(Verdict::Skip);
    skipped.retain(|case| !case.starts_with("cdi-"));
    assert_eq!(skipped, DEVICES_ARE_NAMED);
}

/// Its program was damaged with its state, and did not fit on the small disk.
#[tokio::test(flavor = "multi_thread")]
async fn regression_an_installed_program_is_not_state() {
    let options = options("raw", "installs").jobs(4);
    let report = try_driver(options.cases(&["state-*"], &[] as &[&str]).unwrap()).await;
    report.assert_passed();
    let mut skipped = report.names(Verdict::Skip);
    skipped.retain(|case| *case != FULL);
    assert!(skipped.is_empty(), "{skipped:?}");
}

async fn disturb(driver: &str, fault: &str, seed: u64) -> Report {
    let report = chaos(options(driver, fault), seed, Length::Steps(60), |_, _| {});
    report.await.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn chaos_finds_no_fault_in_correct_drivers() {
    for (driver, seed) in [("gpu", 1), ("raw", 2)] {
        disturb(driver, "", seed).await.assert_passed();
    }
}

/// Faults that need a disturbance at the right time; the report says which.
#[tokio::test(flavor = "multi_thread")]
async fn chaos_finds_what_is_lost() {
    for fault in ["mixes-claims", "leaves-cdi", "forgets"] {
        let report = disturb("raw", fault, 3).await;
        assert!(!report.passed(), "{fault}");
        let observed = &report.cases[0].observed;
        assert!(observed.contains("seed 3: "), "{fault}: {observed}");
        assert!(observed.contains("the last steps:"), "{fault}: {observed}");
    }
}

/// The cases that look at the devices in answers.
const DEVICES_ARE_NAMED: &[&str] = &[
    "prepare-answers",
    "prepare-several-devices",
    "prepare-other-driver",
    "prepare-alternative",
    "prepare-replaced-claim",
    "share-one-claim",
    "share-id",
];

/// A fault, and the cases that find it.
const FAULTS: &[(&str, &[&str])] = &[
    ("relative-endpoint", &["registration-info"]),
    ("unknown-service", &["registration-versions"]),
    ("one-get-info", &["registration-kubelet-restart"]),
    ("refused-hangs", &["registration-refused"]),
    ("needs-kubelet", &["registration-late-kubelet"]),
    ("stale-sockets", &["registration-restart"]),
    ("ignores-term", &["registration-terminate"]),
    ("steals-sockets", &["registration-second-instance"]),
    ("usual-socket-name", &["registration-socket-name"]),
    ("socket-once", &["registration-socket-deleted"]),
    ("duplicate-devices", &["publish-complete"]),
    ("invalid-slice", &["publish-valid"]),
    ("no-owner", &["publish-node-scope"]),
    ("republishes", &["publish-idle"]),
    ("taints-anew", &["publish-taint-times"]),
    ("publishes-once", &["publish-deleted"]),
    ("looks-at-names-only", &["publish-changed"]),
    ("anew-at-start", &["publish-restart"]),
    ("deletes-foreign", &["publish-foreign"]),
    ("keeps-stale-pools", &["publish-stale-pool"]),
    ("removes-at-exit", &["publish-exit"]),
    ("empties-at-exit", &["publish-exit"]),
    ("wrong-request", &["prepare-answers"]),
    ("names-nothing", DEVICES_ARE_NAMED),
    ("first-device", &["prepare-several-devices"]),
    ("answers-foreign", &["prepare-other-driver"]),
    ("sub-request", &["prepare-alternative"]),
    (
        "not-idempotent",
        &[
            "prepare-repeated",
            "prepare-parallel",
            "prepare-versions",
            "crash-prepared",
        ],
    ),
    ("one-at-a-time", &["prepare-parallel"]),
    ("first-only", &["prepare-batch"]),
    ("poisoned-batch", &["prepare-batch-one-fails"]),
    ("old-version-differs", &["prepare-versions"]),
    ("any-uid", &["prepare-wrong-uid"]),
    (
        "invents-claims",
        &[
            "prepare-missing-claim",
            "prepare-batch-one-fails",
            "unprepare-failed-prepare",
        ],
    ),
    ("unallocated", &["prepare-unallocated"]),
    ("any-device", &["prepare-unknown-device"]),
    ("by-name", &["prepare-replaced-claim", "prepare-wrong-uid"]),
    ("not-cancel-safe", &["prepare-cancelled"]),
    ("long-file-names", &["prepare-long-names"]),
    ("hands-out-twice", &["share-refused"]),
    ("keeps-dead-claims", &["share-after-forced-deletion"]),
    ("admin-exclusive", &["share-admin-access"]),
    ("share-exclusive", &["share-parallel", "share-restart"]),
    ("cdi-without-share", &["share-one-claim", "share-id"]),
    ("no-share-id", &["share-id"]),
    ("whole-amounts", &["capacity-amounts"]),
    ("metadata-by-name", &["metadata-content"]),
    ("metadata-left", &["metadata-lifetime"]),
    ("replaces-status", &["status-devices"]),
    ("forgets-earlier", &["state-earlier-release"]),
    ("dies-when-full", &[FULL]),
    ("ignores-full-disk", &[FULL]),
    ("ignores-class-config", &["config-class"]),
    (
        "ignores-config",
        &[
            "config-wrong-kind",
            "config-other-request",
            "config-unknown-field",
        ],
    ),
    ("reads-all-config", &["config-other-driver"]),
    ("first-request-config", &["config-other-request"]),
    ("holds-refused", &["config-refused-retry"]),
    ("refuses-config", &["config-valid"]),
    ("lax-config", &["config-unknown-field"]),
    ("first-config", &["config-priority"]),
    (
        "unprepare-once",
        &[
            "unprepare-repeated",
            "unprepare-unknown",
            "unprepare-failed-prepare",
        ],
    ),
    (
        "unprepare-reads-claim",
        &["unprepare-claim-gone", "unprepare-unknown"],
    ),
    (
        "refuses-nothing",
        &["unprepare-nothing", "registration-versions"],
    ),
    (
        "remembers-unprepared",
        &["unprepare-prepare-again", "crash-during-unprepare"],
    ),
    ("failed-blocks", &["unprepare-failed-prepare"]),
    ("leaks-descriptors", &["churn"]),
    ("leaks-memory", &["churn"]),
    ("leaks-files", &["churn"]),
    ("leaks-directories", &["churn"]),
    ("grows-state", &["churn"]),
    ("random-names", &["crash-prepared"]),
    ("busy-prepare", &["crash-during-prepare"]),
    ("busy-unprepare", &["crash-during-unprepare"]),
    ("mixes-claims", &["crash-several-claims"]),
    ("cleans-at-exit", &["crash-orderly-stop"]),
    ("start-marker", &["crash-during-start"]),
    ("reads-before-lock", &["late-prepare"]),
    ("gives-up", &["late-api"]),
    ("broken-file", &["cdi-valid"]),
    ("mounts-nothing", &["cdi-host-paths"]),
    ("mounts-relative", &["cdi-host-paths"]),
    ("new-cdi-version", &["cdi-version"]),
    ("same-cdi-name", &["cdi-unique"]),
    ("torn-cdi", &["cdi-atomic"]),
    ("common-at-start", &["cdi-wiped", "cdi-wiped-prepared"]),
    ("cdi-once", &["cdi-wiped-prepared"]),
    (
        "cdi-once-ever",
        &["cdi-reboot", "cdi-restart", "cdi-wiped-prepared"],
    ),
    ("refuses-old-boot", &["cdi-reboot"]),
    ("no-restore", &["cdi-restart"]),
    (
        "silent-crash",
        &["state-empty", "state-truncated", "state-garbage"],
    ),
    ("forgets", &["crash-unprepare", "state-deleted"]),
    ("leaves-unknown", &["state-deleted", "state-empty"]),
    ("health-of-unknown", &["health-stream"]),
    ("health-once", &["health-resume"]),
    ("health-lost", &["health-restart"]),
    ("health-silent", &["health-repeated"]),
];

/// Three drivers, each with all the cases that find its fault.
const DRIVERS: &[(&str, &[&str])] = &[
    (
        "leaves-cdi",
        &[
            "prepare-cancelled",
            "prepare-long-names",
            "share-parallel",
            "unprepare-claim-gone",
            "churn",
            "crash-unprepare",
            "crash-during-prepare",
            "crash-during-unprepare",
            "late-prepare",
            "late-api",
            "cdi-clean",
            "metadata-lifetime",
            "state-empty",
            "state-truncated",
            "state-garbage",
            "state-deleted",
            "state-earlier-release",
            FULL,
        ],
    ),
    ("any-uid", &["prepare-wrong-uid"]),
    (
        "cdi-once-ever",
        &["cdi-wiped-prepared", "cdi-reboot", "cdi-restart"],
    ),
];

/// A fault and a case that finds it only where the driver is killed after it wrote the file.
const DEPENDS_ON_TIME: (&str, &str) = ("cdi-once-ever", "crash-during-prepare");

#[test]
fn every_case_has_a_driver_that_fails_it() {
    let failed: BTreeSet<&str> = FAULTS
        .iter()
        .chain(DRIVERS)
        .chain([&OWN_STATE])
        .flat_map(|(_, cases)| *cases)
        .copied()
        .collect();
    let all: BTreeSet<&str> = cases().iter().map(|case| case.name).collect();
    assert_eq!(failed, all);
    assert_eq!(all.len(), cases().len(), "a name is used twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_is_found() {
    let check = async |(fault, expected): &(&'static str, &'static [&'static str])| {
        let mut options = options("raw", fault).timeout(Duration::from_secs(60));
        if *fault == "needs-kubelet" {
            // It gives up after five seconds, and is given time to start. The case continues when it has ended.
            options = options.quiet(Duration::from_secs(60));
        }
        let report = try_driver(options.cases(expected, &[] as &[&str]).unwrap()).await;
        let failed: BTreeSet<&str> = report.names(Verdict::Fail).into_iter().collect();
        let skipped = report.names(Verdict::Skip);
        let expected = expected.iter().copied();
        let tried = expected.filter(|case| *case != FULL || !skipped.contains(case));
        let expected: BTreeSet<&str> = tried.collect();
        match failed == expected {
            true => None,
            false => Some(format!("{fault}: failed {failed:?}, expected {expected:?}")),
        }
    };
    let wrong = futures::stream::iter(FAULTS)
        .map(check)
        .buffer_unordered(6)
        .filter_map(async |wrong| wrong);
    let wrong: Vec<String> = wrong.collect().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How a driver ended was reported only where its process could be waited for when its connection was closed.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_driver_that_ends_in_a_call_is_reported_with_its_status() {
    let options = options("raw", "ends-in-calls").timeout(Duration::from_secs(60));
    let options = options.cases(&["prepare-answers"], &[] as &[&str]);
    let report = try_driver(options.unwrap()).await;
    assert_eq!(report.names(Verdict::Fail), ["prepare-answers"]);
    let observed = &report.cases[0].observed;
    let status = "; the driver's process has ended: exit status: 3";
    assert!(observed.ends_with(status), "{observed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_drivers_fail_exactly_what_they_must() {
    let mut wrong = Vec::new();
    for (fault, expected) in DRIVERS {
        let report = try_driver(
            options("raw", fault)
                .timeout(Duration::from_secs(120))
                .jobs(4),
        )
        .await;
        let mut failed = report.names(Verdict::Fail);
        failed.retain(|case| (*fault, *case) != DEPENDS_ON_TIME);
        let skipped = report.names(Verdict::Skip);
        let mut expected = expected.to_vec();
        expected.retain(|case| *case != FULL || !skipped.contains(case));
        if failed != expected {
            wrong.push(format!("{fault}: failed {failed:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
