use std::path::PathBuf;

use super::record::Record;
use super::*;
use crate::config::PodNetwork;

fn settings(root: &Path) -> NetworkSettings {
    NetworkSettings {
        mode: PodNetwork::Cni,
        conf_dir: root.join("net.d"),
        bin_dirs: vec![root.join("now"), root.join("both")],
        ..NetworkSettings::default()
    }
}

#[tokio::test]
async fn regression_a_record_is_kept_for_as_long_as_there_is_no_configuration() {
    let root = tempfile::tempdir().expect("a directory");
    let records = root.path().join("cni/pods");
    std::fs::create_dir_all(&records).expect("a directory");
    std::fs::write(records.join("u.json"), "{").expect("written");
    let all = Sandboxes::open(root.path(), &settings(root.path()), Isolation::None);
    let directory = root.path().join("pods/u");
    let error = all.detach("u", &directory).await.expect_err("kept");
    let error = error.to_string();
    assert!(error.contains("cni plugin not initialized"), "{error}");
    assert!(all.is_known("u") && records.join("u.json").exists());
    // The pod has come back.
    let kept = all.detach_gone("u", &directory, || false).await;
    assert!(kept.is_ok(), "{kept:?}");
    assert!(all.is_known("u"));
}

#[tokio::test]
async fn regression_pods_wait_until_the_configuration_was_read() {
    let root = tempfile::tempdir().expect("a directory");
    let settings = settings(root.path());
    let all = Sandboxes::open(root.path(), &settings, Isolation::Namespaces);
    let before = all.condition().borrow().clone();
    assert!(before.waits && before.ready.is_err(), "{before:?}");
    let shared = Sandboxes::open(root.path(), &settings, Isolation::None);
    let first = shared.condition().borrow().clone();
    assert!(!first.waits && first.ready.is_ok(), "{first:?}");
    shared.look().await;
    assert_eq!(*shared.condition().borrow(), first);
}

#[test]
fn plugins_are_looked_for_once_in_a_directory() {
    let root = Path::new("/r");
    let all = Sandboxes::open(root, &settings(root), Isolation::None);
    let record = Record {
        bin_dirs: vec![root.join("both"), root.join("before")],
        ..Record::default()
    };
    let expected = ["/r/both", "/r/before", "/r/now"].map(PathBuf::from);
    assert_eq!(all.client_of(&record).bin_dirs, expected);
}
