use k8s_openapi::api::core::v1::Container;

use super::super::env::Variables;
use super::*;
use crate::images::Files;

#[test]
fn the_user_of_a_pod_is_that_of_all_its_containers() {
    let check = |of_pod: Option<i64>, own: &[Option<i64>], expected: Option<u32>| {
        let context = |user: Option<i64>| serde_json::json!({"runAsUser": user});
        let containers: Vec<_> = own
            .iter()
            .map(|user| serde_json::json!({"name": "c", "securityContext": context(*user)}))
            .collect();
        let (first, others) = containers.split_first().expect("a container");
        let pod = serde_json::json!({"metadata": {}, "spec": {
            "securityContext": context(of_pod), "initContainers": [first], "containers": others}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let expected = expected.filter(|_| rustix::process::geteuid().is_root());
        assert_eq!(user(&pod), expected, "{of_pod:?} {own:?}");
    };
    check(None, &[None, None], None);
    check(Some(7), &[None, None], Some(7));
    check(Some(7), &[Some(8), Some(8)], Some(8));
    check(Some(7), &[None, Some(8)], None);
    check(None, &[Some(8), None], None);
    check(None, &[None, Some(8)], None);
    check(Some(0), &[None, None], Some(0));
}

/// What a container mounts on the host stays there: a program without privileges must not have that.
#[test]
fn mounts_reach_the_host_from_privileged_containers_of_a_runtime() {
    let directory = tempfile::tempdir().expect("a directory");
    let volume = Volume {
        path: directory.path().to_owned(),
        read_only: false,
        image: false,
    };
    let volumes = BTreeMap::from([("v".to_owned(), volume)]);
    let made = |privileged: bool, runtime: bool| {
        let container = serde_json::json!({"name": "c",
            "securityContext": {"privileged": privileged}, "volumeMounts": [
            {"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}]});
        let container: Container = serde_json::from_value(container).expect("a container");
        let files = Files {
            delegated: runtime.then(Default::default),
            ..Files::default()
        };
        let mounts = mounts(&container, &volumes, &files, &Variables::default());
        let made = mounts.map(|mounts| mounts[0].both_ways);
        made.map_err(|error| error.to_string())
    };
    assert_eq!(made(true, true), Ok(true));
    for (privileged, runtime, why) in [
        (false, true, "only to privileged containers"),
        (false, false, "only to privileged containers"),
        (true, false, "not supported on this node"),
    ] {
        let error = made(privileged, runtime).expect_err("refused");
        assert!(error.contains(why), "{error}");
    }
}

/// The attack: variables, which others write into config maps and secrets, are a part of paths.
#[test]
fn variables_do_not_lead_sub_paths_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let volume = Volume {
        path: directory.path().to_owned(),
        read_only: false,
        image: false,
    };
    let volumes = BTreeMap::from([("v".to_owned(), volume)]);
    let check = |expr: &str, value: &str, expected: Result<Option<&str>, &str>| {
        let container = serde_json::json!({"name": "c", "volumeMounts": [
            {"name": "v", "mountPath": "/v", "subPathExpr": expr}]});
        let container: Container = serde_json::from_value(container).expect("a container");
        let mut env = Variables::default();
        let variable = ("A".to_owned(), value.to_owned());
        env.extend([variable]).expect("room");
        let made = mounts(&container, &volumes, &Files::default(), &env);
        let path = made.map(|mounts| mounts[0].sub_path.clone());
        let path = path.map_err(|error| error.to_string());
        let path = path.as_ref().map(|it| it.as_deref().and_then(Path::to_str));
        assert_eq!(path.map_err(String::as_str), expected, "{expr} {value}");
    };
    check("logs/$(A)", "x", Ok(Some("logs/x")));
    check("./$(A)/.", "x/./y", Ok(Some("x/y")));
    check("$(A)", "a/b", Ok(Some("a/b")));
    check("$$(A)", "x", Ok(Some("$(A)")));
    check("$(A)", "$(A)", Ok(Some("$(A)")));
    check("$(B)", "x", Err("missing value for \"B\""));
    let up = "unable to provision SubPath `../../etc`: must not contain '..'";
    check("$(A)/etc", "../..", Err(up));
    let up = "unable to provision SubPath `a/..`: must not contain '..'";
    check("a/.$(A)", ".", Err(up));
    let absolute = "error SubPath `/etc` must not be an absolute path";
    check("$(A)", "/etc", Err(absolute));
    check("$(A)etc", "/", Err(absolute));
    // The whole volume, as with a kubelet.
    check("$(A)", "", Ok(None));
}

/// The attack: a container keeps others of its pod out of its volume, and waits until the agent was restarted. When a container started
/// again, or an ephemeral one was added, every user could enter the volume.
#[test]
fn regression_volumes_keep_the_permissions_that_containers_gave_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volumes/v");
    let mode = || fs::metadata(&path).expect("a volume").permissions().mode() & 0o7777;
    let group = rustix::process::geteuid().is_root().then_some(1234);
    make_empty(&path, group).expect("made");
    assert_eq!(mode(), if group.is_some() { 0o2777 } else { 0o777 });
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("changed");
    make_empty(&path, group).expect("there");
    assert_eq!(mode(), 0o700);
    let names = fs::read_dir(directory.path().join("volumes")).expect("a directory");
    assert_eq!(names.count(), 1);
}
