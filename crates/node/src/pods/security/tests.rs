use serde_json::{Value, json};

use super::*;

fn decided(
    isolation: Isolation,
    pod: Value,
    own: Value,
    image: &str,
) -> Result<Decided, SecurityError> {
    let directory = tempfile::tempdir().unwrap();
    let profiles = directory.path().join("seccomp");
    std::fs::create_dir(&profiles).unwrap();
    std::fs::write(profiles.join("mine.json"), "{}").unwrap();
    let machine = NodeCapabilities {
        own_network: false,
        isolation,
        root: directory.path(),
        apparmor: false,
        selinux: false,
        capabilities: &capabilities::of(None, true).unwrap(),
    };
    let container = json!({"name": "c", "securityContext": own});
    let object = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": pod});
    let image = ImageConfig {
        user: image.into(),
        ..ImageConfig::default()
    };
    decide(
        &machine,
        &serde_json::from_value(object).unwrap(),
        &serde_json::from_value(container).unwrap(),
        &image,
    )
}

#[track_caller]
fn check(pod: Value, own: Value, holds: impl Fn(&Security) -> bool) {
    let decided = decided(Isolation::Namespaces, pod, own, "").unwrap();
    assert!(holds(&decided.security), "{:?}", decided.security);
}

#[track_caller]
fn refused(isolation: Isolation, pod: Value, own: Value, image: &str, text: &str) {
    let error = decided(isolation, pod, own, image).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
}

#[test]
fn the_containers_context_goes_before_the_pods() {
    let pod = || {
        json!({"containers": [], "securityContext": {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3,
            "supplementalGroups": [4], "supplementalGroupsPolicy": "Strict",
            "seccompProfile": {"type": "RuntimeDefault"}}})
    };
    check(pod(), json!({}), |it| {
        it.user == Some(1) && it.group == Some(2) && it.groups == [4, 3] && !it.merge_groups
    });
    check(pod(), json!({}), |it| it.seccomp == Seccomp::RuntimeDefault);
    let own = json!({"runAsUser": 5, "seccompProfile": {"type": "Localhost", "localhostProfile": "mine.json"}});
    check(pod(), own, |it| {
        it.user == Some(5) && it.seccomp == Seccomp::Profile("{}".into())
    });
    check(
        json!({"containers": []}),
        json!({"allowPrivilegeEscalation": false}),
        |it| it.no_new_privileges,
    );
    let own = json!({"readOnlyRootFilesystem": true, "procMount": "Unmasked", "privileged": true});
    check(json!({"containers": []}), own, |it| {
        it.read_only_root && it.unmasked
    });
    let pod = json!({"containers": [], "securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}});
    check(pod, json!({}), |it| {
        it.sysctls["kernel.shm_rmid_forced"] == "1"
    });
}

#[test]
fn root_is_refused_in_the_kubelets_words() {
    let pod = || json!({"containers": [], "securityContext": {"runAsNonRoot": true}});
    let whose = "(pod: \"p_ns(u)\", container: c)";
    let root = Isolation::Namespaces;
    refused(
        root,
        pod(),
        json!({"runAsUser": 0}),
        "",
        &format!("container's runAsUser breaks non-root policy {whose}"),
    );
    refused(
        root,
        pod(),
        json!({}),
        "",
        &format!("container has runAsNonRoot and image will run as root {whose}"),
    );
    refused(root, pod(), json!({}), "0:5", "image will run as root");
    refused(
        root,
        pod(),
        json!({}),
        "app",
        "image has non-numeric user (app), cannot verify user is non-root",
    );
    check(pod(), json!({"runAsUser": 7}), |it| it.user == Some(7));
    assert!(decided(root, pod(), json!({}), "7:8").is_ok());
    check(pod(), json!({"runAsNonRoot": false}), |it| {
        it.user.is_none()
    });
}

#[test]
fn what_cannot_be_given_is_refused() {
    let root = Isolation::Namespaces;
    let none = || json!({"containers": []});
    refused(
        root,
        none(),
        json!({"appArmorProfile": {"type": "RuntimeDefault"}}),
        "",
        "AppArmor is not enabled",
    );
    refused(
        root,
        none(),
        json!({"seLinuxOptions": {"level": "s0"}}),
        "",
        "SELinux is not enabled",
    );
    refused(
        root,
        none(),
        json!({"capabilities": {"add": ["FLY"]}}),
        "",
        "unknown capability",
    );
    refused(
        root,
        none(),
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "none.json"}}),
        "",
        "cannot load seccomp profile",
    );
    refused(
        root,
        json!({"containers": [], "hostUsers": false}),
        json!({}),
        "",
        "hostUsers: false is not possible",
    );
    let sysctl = |name: &str| json!({"containers": [], "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
    refused(
        root,
        sysctl("kernel.panic"),
        json!({}),
        "",
        "not allowlisted",
    );
    refused(
        root,
        sysctl("net.ipv4.ip_forward"),
        json!({}),
        "",
        "not allowed with host Net enabled",
    );
    let user = Isolation::UserNamespace;
    refused(
        user,
        json!({"containers": [], "hostPID": true}),
        json!({}),
        "",
        "hostPID is not possible",
    );
    refused(
        Isolation::None,
        none(),
        json!({"readOnlyRootFilesystem": true}),
        "",
        "plain processes",
    );
    refused(
        Isolation::None,
        none(),
        json!({"capabilities": {"drop": ["ALL"]}}),
        "",
        "plain processes",
    );
    refused(
        Isolation::None,
        json!({"containers": [], "hostUsers": false}),
        json!({}),
        "",
        "hostUsers: false is not possible",
    );
    let notes = decided(user, none(), json!({"privileged": true}), "")
        .unwrap()
        .notes;
    assert_eq!(notes.len(), 1);
}

/// Pod Security lets them have the rights that they do not give up by their security context.
#[test]
fn regression_pods_for_another_system_do_not_run() {
    for isolation in [
        Isolation::Namespaces,
        Isolation::UserNamespace,
        Isolation::None,
    ] {
        let windows = json!({"containers": [], "os": {"name": "windows"}});
        refused(isolation, windows, json!({}), "", "does not match the OS");
    }
    let linux = json!({"containers": [], "os": {"name": "linux"}});
    assert!(decided(Isolation::Namespaces, linux, json!({}), "").is_ok());
}

/// The attack: parts of `/proc` that are the host's, without a user namespace and without privileges.
#[test]
fn proc_is_unmasked_in_user_namespaces_only() {
    let own = || json!({"procMount": "Unmasked"});
    let shared = || json!({"containers": []});
    let text = "`hostUsers` must be false";
    refused(Isolation::Namespaces, shared(), own(), "", text);
    let separate = json!({"containers": [], "hostUsers": false});
    let decided = decided(Isolation::UserNamespace, separate, own(), "").unwrap();
    assert!(decided.security.unmasked);
}

#[test]
fn a_target_that_is_not_visible_is_told() {
    let ephemeral = |target: &str| {
        json!({"containers": [], "ephemeralContainers": [
        {"name": "c", "targetContainerName": target}, {"name": "other", "targetContainerName": "x"}]})
    };
    let notes = |pod: Value| {
        decided(Isolation::Namespaces, pod, json!({}), "")
            .unwrap()
            .notes
    };
    let expected = "targetContainerName has no effect: the processes of app are not visible";
    assert_eq!(notes(ephemeral("app")), [expected]);
    assert!(notes(ephemeral("")).is_empty());
}
