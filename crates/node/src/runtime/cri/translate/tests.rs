use serde_json::{Value, json};

use super::*;
use crate::runtime::Image;
use crate::shim::spec::Owner;

const DIRECTORY: &str = "/node";

fn pod(more: &Value) -> Pod {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "a"}, "annotations": {"x": "y"}}});
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).expect("a pod")
}

fn place(networks: bool) -> Place<'static> {
    Place {
        directory: Path::new(DIRECTORY),
        networks,
        attempt: 2,
    }
}

fn request(of_pod: &Value, of_container: &Value, user: &str) -> Request {
    let mut container = json!({"name": "c", "image": "app"});
    for (key, value) in of_container.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    Request {
        pod: std::sync::Arc::new(pod(of_pod)),
        container: serde_json::from_value(container).expect("a container"),
        image: Image {
            id: "sha256:1".into(),
            reference: "docker.io/library/app:latest".into(),
            user: user.into(),
            size: 1,
            pinned: false,
        },
        volumes: Default::default(),
        command: vec!["run".into()],
        args: vec!["fast".into()],
        cdi_devices: vec!["a/b=c".into()],
    }
}

fn spec() -> ContainerSpec {
    ContainerSpec {
        owner: Owner {
            attempt: 3,
            ..Owner::default()
        },
        env: vec!["A=1".into(), "B=x=y".into()],
        mounts: vec![Mount {
            source: "/host".into(),
            target: "/data".into(),
            read_only: true,
            follow: true,
            ..Mount::default()
        }],
        tty: true,
        limits: Limits {
            cpu_shares: Some(512),
            cpu_quota: Some(50_000),
            memory: Some(1 << 20),
            oom_score_adj: Some(-997),
            huge_pages: [("2MB".to_owned(), 4)].into(),
            ..Limits::default()
        },
        ..ContainerSpec::default()
    }
}

#[test]
fn a_sandbox_is_known_again_by_its_labels() {
    let made = sandbox(&pod(&json!({})), place(true)).expect("a sandbox");
    let metadata = made.metadata.expect("metadata");
    assert_eq!((metadata.name.as_str(), metadata.attempt), ("p", 2));
    assert_eq!(made.log_directory, "/node/logs/n_p_u");
    for (name, value) in [
        ("app", "a"),
        (label::POD_NAME, "p"),
        (label::POD_NAMESPACE, "n"),
        (label::POD_UID, "u"),
        (label::OWNER, DIRECTORY),
    ] {
        assert_eq!(made.labels[name], value);
    }
    assert_eq!(made.annotations["x"], "y");
    assert_eq!(made.hostname, "p");
}

#[test]
fn namespaces_are_those_of_the_pod() {
    use v1::NamespaceMode::{Container as Own, Node, Pod as Shared};
    let check = |more: Value, networks: bool, expected: [v1::NamespaceMode; 3]| {
        let made = sandbox(&pod(&more), place(networks)).expect("a sandbox");
        let context = made.linux.and_then(|it| it.security_context);
        let given = context
            .and_then(|it| it.namespace_options)
            .expect("options");
        assert_eq!(
            [given.network(), given.pid(), given.ipc()],
            expected,
            "{more}"
        );
        let of_container = security(&request(&more, &json!({}), ""), place(networks));
        let of_container = of_container.expect("a context").namespace_options;
        assert_eq!(of_container, Some(given), "{more}");
        // A hostname of its own requires a UTS namespace, which the pod only has together with a network namespace.
        assert_eq!(made.hostname.is_empty(), expected[0] == Node, "{more}");
    };
    check(json!({}), true, [Shared, Own, Shared]);
    check(json!({}), false, [Node, Own, Shared]);
    check(json!({"hostNetwork": true}), true, [Node, Own, Shared]);
    check(
        json!({"hostPID": true, "hostIPC": true}),
        true,
        [Shared, Node, Node],
    );
    check(
        json!({"shareProcessNamespace": true}),
        true,
        [Shared, Shared, Shared],
    );
}

#[test]
fn kernel_parameters_are_those_of_namespaces_of_the_pod() {
    let check = |name: &str, networks: bool, expected: Option<&str>| {
        let more = json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        let made = sandbox(&pod(&more), place(networks));
        let error = made.err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected, "{name}");
    };
    check("kernel.shm_rmid_forced", false, None);
    check("net.ipv4.ip_unprivileged_port_start", true, None);
    check(
        "net.ipv4.ip_unprivileged_port_start",
        false,
        Some(
            "forbidden sysctl: \"net.ipv4.ip_unprivileged_port_start\" not allowed with host Net enabled",
        ),
    );
    check(
        "kernel/panic",
        true,
        Some("forbidden sysctl: \"kernel.panic\" not allowlisted"),
    );
}

#[test]
fn mounts_of_a_container_reach_the_host_where_the_pod_wants_it() {
    let mut spec = spec();
    spec.mounts[0].both_ways = true;
    let made = container(&spec, &request(&json!({}), &json!({}), ""), place(true));
    let propagation = made.expect("a container").mounts[0].propagation();
    let expected = v1::MountPropagation::PropagationBidirectional;
    assert_eq!(propagation, expected);
}

#[test]
fn a_container_has_what_was_decided() {
    let made = container(&spec(), &request(&json!({}), &json!({}), ""), place(true));
    let made = made.expect("a container");
    assert_eq!(made.image.expect("an image").image, "sha256:1");
    assert_eq!(
        (made.command, made.args),
        (vec!["run".into()], vec!["fast".into()])
    );
    let env: Vec<_> = made
        .envs
        .iter()
        .map(|it| (it.key.as_str(), &it.value[..]))
        .collect();
    assert_eq!(env, [("A", &b"1"[..]), ("B", &b"x=y"[..])]);
    assert_eq!(made.log_path, "c/3.log");
    assert_eq!(made.metadata.expect("metadata").attempt, 3);
    assert_eq!(made.labels[label::CONTAINER], "c");
    assert_eq!(made.annotations[annotation::TTY], "true");
    assert_eq!(made.cdi_devices[0].name, "a/b=c");
    let mount = &made.mounts[0];
    assert_eq!(
        (mount.host_path.as_str(), mount.container_path.as_str()),
        ("/host", "/data")
    );
    assert!(mount.readonly);
    assert_eq!(
        mount.propagation(),
        v1::MountPropagation::PropagationHostToContainer
    );
    let limits = made.linux.expect("options").resources.expect("limits");
    let expected = v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 512,
        memory_limit_in_bytes: 1 << 20,
        oom_score_adj: -997,
        hugepage_limits: vec![v1::HugepageLimit {
            page_size: "2MB".into(),
            limit: 4,
        }],
    };
    assert_eq!(limits, expected);
}

#[test]
fn users_and_groups_are_those_of_the_container_or_else_of_the_pod() {
    type Ids = (Option<i64>, &'static str, Option<i64>);
    let check = |of_pod: Value, own: Value, image: &str, expected: Ids| {
        let more = json!({"securityContext": of_pod});
        let request = request(&more, &json!({"securityContext": own}), image);
        let made = security(&request, place(true)).expect("a context");
        let number = |id: Option<v1::Int64Value>| id.map(|id| id.value);
        let found = (
            number(made.run_as_user),
            made.run_as_username.as_str(),
            number(made.run_as_group),
        );
        assert_eq!(found, expected, "{more} {own} {image:?}");
    };
    // The runtime applies the image's user and group itself.
    check(json!({}), json!({}), "1000", (None, "", None));
    check(
        json!({"runAsUser": 1, "runAsGroup": 2}),
        json!({}),
        "",
        (Some(1), "", Some(2)),
    );
    check(
        json!({"runAsUser": 1}),
        json!({"runAsUser": 3}),
        "",
        (Some(3), "", None),
    );
    // Runtimes reject a group without a user.
    check(
        json!({"runAsGroup": 2}),
        json!({}),
        "1000",
        (Some(1000), "", Some(2)),
    );
    check(
        json!({"runAsGroup": 2}),
        json!({}),
        "web",
        (None, "web", Some(2)),
    );
    check(
        json!({"runAsGroup": 2}),
        json!({}),
        "",
        (Some(0), "", Some(2)),
    );
}

#[test]
fn security_contexts_are_told() {
    let check =
        |of_pod: Value, own: Value, holds: fn(&v1::LinuxContainerSecurityContext) -> bool| {
            let request = request(&of_pod, &json!({"securityContext": own}), "");
            let made = security(&request, place(true)).expect("a context");
            assert!(holds(&made), "{of_pod} {own}: {made:?}");
        };
    check(json!({}), json!({}), |it| {
        !it.privileged
            && !it.no_new_privs
            && !it.readonly_rootfs
            && it.masked_paths.contains(&"/proc/kcore".to_owned())
            && it.readonly_paths.contains(&"/proc/sys".to_owned())
            && it
                .seccomp
                .as_ref()
                .is_some_and(|it| it.profile_type() == ProfileType::Unconfined)
            && it.apparmor.is_none()
    });
    check(json!({}), json!({"privileged": true}), |it| {
        it.privileged && it.masked_paths.is_empty() && it.readonly_paths.is_empty()
    });
    check(json!({}), json!({"procMount": "Unmasked"}), |it| {
        it.masked_paths.is_empty()
    });
    check(
        json!({}),
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true}),
        |it| it.no_new_privs && it.readonly_rootfs,
    );
    check(
        json!({}),
        json!({"capabilities": {"add": ["SYS_TIME"], "drop": ["ALL"]}}),
        |it| {
            let given = it.capabilities.clone().unwrap_or_default();
            given.add_capabilities == ["SYS_TIME"] && given.drop_capabilities == ["ALL"]
        },
    );
    check(
        json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
        json!({}),
        |it| {
            it.seccomp
                .as_ref()
                .is_some_and(|it| it.profile_type() == ProfileType::RuntimeDefault)
        },
    );
    check(
        json!({}),
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}}),
        |it| {
            it.seccomp
                .as_ref()
                .is_some_and(|it| it.localhost_ref == "/node/seccomp/a/b.json")
        },
    );
    check(
        json!({"securityContext": {"supplementalGroups": [5], "fsGroup": 6, "supplementalGroupsPolicy": "Strict"}}),
        json!({}),
        |it| {
            it.supplemental_groups == [5, 6]
                && it.supplemental_groups_policy() == v1::SupplementalGroupsPolicy::Strict
        },
    );
}

/// The attack: without a pod network, a pod that did not request the host's network shares it and reads its traffic.
#[test]
fn the_traffic_of_the_host_is_not_shown_to_pods_that_did_not_ask_for_its_network() {
    let check = |of_pod: Value, own: Value, networks: bool, expected: bool| {
        let request = request(&of_pod, &json!({"securityContext": own}), "");
        let made = security(&request, place(networks)).expect("a context");
        let dropped = made.capabilities.unwrap_or_default().drop_capabilities;
        let found = dropped.contains(&"NET_RAW".to_owned());
        assert_eq!(found, expected, "{of_pod} {own} {networks}");
    };
    check(json!({}), json!({}), true, false);
    check(json!({}), json!({}), false, true);
    check(json!({"hostNetwork": true}), json!({}), false, false);
    check(
        json!({}),
        json!({"capabilities": {"add": ["NET_RAW"]}}),
        false,
        false,
    );
    check(json!({}), json!({"privileged": true}), false, false);
}

#[test]
fn what_cannot_be_given_is_refused() {
    let check = |of_pod: Value, own: Value, expected: &str| {
        let request = request(&of_pod, &json!({"securityContext": own}), "");
        let error = security(&request, place(true))
            .expect_err("a refusal")
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        json!({"hostUsers": false}),
        json!({}),
        "hostUsers: false is not possible",
    );
    // The attack: a profile outside the profile directory.
    let outside =
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "../../etc/passwd"}});
    check(json!({}), outside, "invalid seccomp profile");
    let outside =
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "/etc/passwd"}});
    check(json!({}), outside, "invalid seccomp profile");
}
