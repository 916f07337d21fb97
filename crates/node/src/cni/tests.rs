//! The client against programs that behave as plugins do, and against some that do not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use allot_testing::wait::until_true;

use super::*;

/// A directory with plugins and a configuration.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A plugin that notes how it was called, and then does what the script says.
    fn plugin(&self, name: &str, script: &str) {
        let shown = self.directory.path().display();
        let text = format!(
            "#!/bin/sh\nd={shown}\nprintf '%s %s\\n' \"$CNI_COMMAND\" {name} >> $d/calls\n\
             env | grep -v '^_=\\|^PWD=\\|^SHLVL=\\|^OLDPWD=' | sort > $d/{name}.$CNI_COMMAND.env\n\
             cat > $d/{name}.$CNI_COMMAND.json\n{script}\n"
        );
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    fn config(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    fn client(&self) -> Client {
        Client::new(vec![self.path("none"), self.directory.path().to_owned()])
    }

    /// The network of a list of plugins.
    fn network(&self, version: &str, kinds: &[&str]) -> Network {
        let plugins = kinds.iter().map(|kind| {
            json!({"type": kind, "own": kind, "capabilities": {"portMappings": *kind == "b", "dns": false}})
        });
        let whole =
            json!({"cniVersion": version, "name": "net", "plugins": plugins.collect::<Vec<_>>()});
        self.config("10.conflist", &whole.to_string());
        find(self.directory.path()).expect("a network")
    }

    fn input(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap_or_default()
    }
}

fn pod() -> Attachment {
    let ports = json!([{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}]);
    let capabilities = json!({"portMappings": ports, "dns": {"servers": []}});
    Attachment {
        id: "uid-1".into(),
        namespace: Some("/run/netns/p".into()),
        args: vec![
            ("IgnoreUnknown".into(), "1".into()),
            ("K8S_POD_NAME".into(), "p".into()),
        ],
        capabilities: capabilities.as_object().cloned().expect("an object"),
        result: None,
    }
}

const RESULT: &str = r#"{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.7/24"}]}"#;

#[tokio::test]
async fn plugins_are_called_in_order_with_the_result_of_the_one_before() {
    let place = Place::new();
    place.plugin("a", &format!("[ $CNI_COMMAND != ADD ] || echo '{RESULT}'"));
    let more = r#"{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.8/24"}], "more": 1}"#;
    place.plugin("b", &format!("[ $CNI_COMMAND != ADD ] || echo '{more}'"));
    let network = place.network("1.1.0", &["a", "b"]);
    let client = place.client();
    let mut pod = pod();
    let result = client.add(&network, &pod).await.expect("added");
    assert_eq!(result, serde_json::from_str::<Value>(more).expect("JSON"));
    assert_eq!(place.read("calls"), "ADD a\nADD b\n");
    let first = place.input("a.ADD.json");
    assert_eq!(
        first,
        json!({"type": "a", "own": "a", "name": "net", "cniVersion": "1.1.0",
            "capabilities": {"portMappings": false, "dns": false}})
    );
    let second = place.input("b.ADD.json");
    assert_eq!(second["prevResult"]["ips"][0]["address"], "10.9.0.7/24");
    let ports = second["runtimeConfig"]["portMappings"][0]["hostPort"].clone();
    assert_eq!(ports, 80);
    assert_eq!(second["runtimeConfig"]["dns"], Value::Null);
    let shown = place.directory.path().display();
    let expected = format!(
        "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=p\nCNI_COMMAND=ADD\nCNI_CONTAINERID=uid-1\nCNI_IFNAME=eth0\n\
         CNI_NETNS=/run/netns/p\nCNI_PATH={shown}/none:{shown}\n\
         PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    );
    assert_eq!(place.read("a.ADD.env"), expected);
    pod.result = Some(result);
    client.check(&network, &pod).await.expect("checked");
    client.status(&network).await.expect("ready");
    client.delete(&network, &pod).await.expect("deleted");
    assert_eq!(
        place.read("calls"),
        "ADD a\nADD b\nCHECK a\nCHECK b\nSTATUS a\nSTATUS b\nDEL b\nDEL a\n"
    );
    for name in ["a.CHECK.json", "b.CHECK.json", "a.DEL.json", "b.DEL.json"] {
        assert_eq!(place.input(name)["prevResult"]["more"], 1, "{name}");
    }
    assert!(!place.read("a.STATUS.env").contains("CNI_CONTAINERID"));
}

#[tokio::test]
async fn old_versions_are_asked_only_what_they_know() {
    let place = Place::new();
    place.plugin("a", &format!("[ $CNI_COMMAND != ADD ] || echo '{RESULT}'"));
    let network = place.network("0.3.1", &["a"]);
    let client = place.client();
    let mut pod = pod();
    pod.result = Some(client.add(&network, &pod).await.expect("added"));
    client.check(&network, &pod).await.expect("nothing asked");
    client.status(&network).await.expect("nothing asked");
    pod.namespace = None;
    client.delete(&network, &pod).await.expect("deleted");
    assert_eq!(place.read("calls"), "ADD a\nDEL a\n");
    assert_eq!(place.input("a.DEL.json")["prevResult"], Value::Null);
    assert!(place.read("a.DEL.env").contains("CNI_NETNS=\n"));
}

#[tokio::test]
async fn errors_of_plugins_are_told_in_their_words() {
    let cases = [
        (
            r#"echo '{"code": 11, "msg": "no more", "details": "of 254"}'; exit 1"#,
            "no more; of 254",
        ),
        ("echo trouble >&2; exit 3", "netplugin failed: \"trouble\""),
        (
            "exit 3",
            "netplugin failed with no error message: exit status: 3",
        ),
        (
            "echo '{}'; exit 1",
            "netplugin failed but error parsing its diagnostic message \"{}\"",
        ),
        (
            "echo '[1]'",
            "netplugin succeeded, but its result is malformed",
        ),
        ("", "netplugin succeeded, but its result is malformed"),
        (
            "kill -9 $$",
            "netplugin failed with no error message: signal: 9",
        ),
        ("yes", "it wrote more than 1048576 bytes"),
        (
            "i=0; while [ $i -lt 300 ]; do printf '%01024d' 0; i=$((i + 1)); done | tr 0 '['",
            "netplugin succeeded, but its result is malformed",
        ),
    ];
    for (script, expected) in cases {
        let place = Place::new();
        place.plugin("a", script);
        let network = place.network("1.0.0", &["a"]);
        let error = place.client().add(&network, &pod()).await;
        let error = error.expect_err(script).to_string();
        let prefix = "plugin type=\"a\" failed (add): ";
        assert!(error.starts_with(&format!("{prefix}{expected}")), "{error}");
        assert!(error.len() < 6000, "{}", error.len());
    }
    let place = Place::new();
    let network = place.network("1.0.0", &["a"]);
    let error = place
        .client()
        .add(&network, &pod())
        .await
        .expect_err("none");
    assert!(
        error
            .to_string()
            .contains("failed to find plugin \"a\" in path ["),
        "{error}"
    );
}

#[tokio::test]
async fn a_plugin_that_hangs_is_killed_with_what_it_started() {
    let place = Place::new();
    place.plugin("a", "sleep 1000 & echo $! > $d/child; wait");
    let network = place.network("1.0.0", &["a"]);
    let mut client = place.client();
    client.change = Duration::from_secs(10);
    let error = client.add(&network, &pod()).await.expect_err("killed");
    assert!(
        error.to_string().contains("did not end within 10 s"),
        "{error}"
    );
    let child: i32 = place.read("child").trim().parse().expect("it began");
    until_true("the child has ended", || {
        crate::spec::start_time(child).is_none()
    })
    .await;
}

#[tokio::test]
async fn a_plugin_that_reads_nothing_may_answer() {
    let place = Place::new();
    place.plugin("a", "");
    let text = format!("#!/bin/sh\necho '{RESULT}'\n");
    fs::write(place.path("a"), text).expect("written");
    let mut network = place.network("1.0.0", &["a"]);
    network.plugins[0].insert("long".into(), "x".repeat(1 << 18).into());
    let result = place.client().add(&network, &pod()).await.expect("added");
    assert_eq!(
        addresses(&result),
        ["10.9.0.7".parse::<std::net::IpAddr>().expect("an address")]
    );
}

#[tokio::test]
async fn pods_that_would_be_read_as_something_else_are_refused() {
    let place = Place::new();
    place.plugin("a", &format!("echo '{RESULT}'"));
    let network = place.network("1.0.0", &["a"]);
    for id in ["", "../x", "a;b", "-a"] {
        let pod = Attachment {
            id: id.into(),
            ..pod()
        };
        let error = place.client().add(&network, &pod).await.expect_err(id);
        assert!(error.to_string().contains("containerID"), "{error}");
    }
    let mut pod = pod();
    pod.args.push(("A".into(), "b;C=d".into()));
    let error = place.client().add(&network, &pod).await.expect_err("args");
    assert!(error.to_string().contains("CNI_ARGS"), "{error}");
    assert_eq!(place.read("calls"), "");
}

#[test]
fn the_first_configuration_counts() {
    let place = Place::new();
    assert!(!is_configured(place.directory.path()));
    let none = find(place.directory.path()).expect_err("none").to_string();
    assert!(
        none.starts_with("cni plugin not initialized: no network config found in "),
        "{none}"
    );
    assert!(find(Path::new("/nonexistent")).is_err());
    let one = |name: &str| format!(r#"{{"cniVersion": "0.4.0", "name": "{name}", "type": "a"}}"#);
    place.config("20-b.json", &one("b"));
    place.config("05-x.conf.bak", &one("x"));
    place.config("README", "");
    fs::create_dir(place.path("00-directory.conf")).expect("made");
    let of = |place: &Place| find(place.directory.path()).expect("a network").name;
    assert_eq!(of(&place), "b");
    place.config("10-a.conf", &one("a"));
    assert_eq!(of(&place), "a");
    place.config("10-a", &one("no ending"));
    place.config(
        "09-l.conflist",
        r#"{"cniVersion": "0.4.0", "name": "l", "plugins": [{"type": "a"}]}"#,
    );
    assert_eq!(of(&place), "l");
    // The folder of the network has further plugins.
    fs::create_dir(place.path("l")).expect("made");
    place.config("l/2.conf", r#"{"type": "c"}"#);
    place.config("l/1.conf", r#"{"type": "b"}"#);
    let network = find(place.directory.path()).expect("a network");
    let kinds: Vec<&str> = network.plugins.iter().map(config::kind).collect();
    assert_eq!(kinds, ["a", "b", "c"]);
}

#[test]
fn the_newest_known_version_is_spoken() {
    let place = Place::new();
    let check = |versions: &str, expected: Result<&str, &str>| {
        let text = format!(r#"{{{versions}"name": "n", "plugins": [{{"type": "a"}}]}}"#);
        place.config("1.conflist", &text);
        match (find(place.directory.path()), expected) {
            (Ok(network), Ok(version)) => assert_eq!(network.version, version, "{versions}"),
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
            (found, _) => panic!("{versions}: {found:?}"),
        }
    };
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        check(&format!(r#""cniVersion": "{version}", "#), Ok(version));
    }
    check(
        r#""cniVersion": "0.4.0", "cniVersions": ["1.0.0", "2.0.0", "0.3.1"], "#,
        Ok("1.0.0"),
    );
    check("", Err("CNI version none is not supported"));
    check(r#""cniVersion": "0.2.0", "#, Err("expected 0.3.0 to 1.1.0"));
    check(r#""cniVersion": "2.0.0", "#, Err("expected 0.3.0 to 1.1.0"));
    check(r#""cniVersion": 1, "#, Err("invalid CNI version 1"));
    check(r#""cniVersion": "x", "#, Err("invalid CNI version"));
    check(r#""cniVersions": {}, "#, Err("'cniVersions' is not a list"));
}

#[test]
fn configurations_at_fault_are_named() {
    let many: Vec<Value> = (0..40).map(|_| json!({"type": "a"})).collect();
    let many = json!({"cniVersion": "1.0.0", "name": "n", "plugins": many}).to_string();
    let deep = format!("{{\"a\": {}", "[".repeat(100_000));
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20));
    let list = |more: &str| format!(r#"{{"cniVersion": "1.0.0", {more}}}"#);
    let cases = [
        (String::new(), "error parsing configuration"),
        ("[]".into(), "error parsing configuration"),
        (deep, "error parsing configuration"),
        (long, "larger than 1 MiB"),
        (many, "more than 32 plugins"),
        (list(r#""plugins": [{"type": "a"}]"#), "no name"),
        (list(r#""name": 1, "plugins": [{"type": "a"}]"#), "no name"),
        (
            list(r#""name": "../n", "plugins": [{"type": "a"}]"#),
            "invalid characters found in network name",
        ),
        (list(r#""name": "n""#), "no plugin configs found"),
        (list(r#""name": "n", "plugins": []"#), "no plugins in list"),
        (
            list(r#""name": "n", "plugins": 1"#),
            "'plugins' is not a list",
        ),
        (list(r#""name": "n", "plugins": [1]"#), "plugin config 0"),
        (
            list(r#""name": "n", "plugins": [{"type": "../../bin/sh"}]"#),
            "invalid plugin name",
        ),
        (
            list(r#""name": "n", "plugins": [{"type": ".."}]"#),
            "invalid plugin name",
        ),
        (list(r#""name": "n", "plugins": [{}]"#), "missing 'type'"),
        (
            list(r#""name": "n", "disableCheck": "maybe", "plugins": [{"type": "a"}]"#),
            "for disableCheck",
        ),
    ];
    for (text, expected) in cases {
        let place = Place::new();
        place.config("1.conflist", &text);
        let error = find(place.directory.path())
            .expect_err(expected)
            .to_string();
        assert!(error.contains(expected), "{error}");
        assert!(
            error.starts_with("cni plugin not initialized: ") && error.contains("1.conflist: "),
            "{error}"
        );
    }
    let place = Place::new();
    place.config(
        "1.conf",
        r#"{"cniVersion": "1.0.0", "name": "n", "plugins": []}"#,
    );
    let error = find(place.directory.path())
        .expect_err("a list")
        .to_string();
    assert!(error.contains("needs the ending .conflist"), "{error}");
    for target in ["/dev/zero", "/nonexistent", "/"] {
        let place = Place::new();
        std::os::unix::fs::symlink(target, place.path("1.conflist")).expect("a link");
        assert!(find(place.directory.path()).is_err(), "{target}");
    }
}

#[test]
fn a_pipe_is_not_waited_for() {
    let place = Place::new();
    let mode = rustix::fs::Mode::from_bits_truncate(0o600);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path("1.conf"),
        rustix::fs::FileType::Fifo,
        mode,
        0,
    )
    .expect("a pipe");
    let error = find(place.directory.path())
        .expect_err("a pipe")
        .to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn a_pod_has_the_addresses_of_its_interface() {
    let check = |result: Value, expected: &[&str]| {
        let found: Vec<String> = addresses(&result).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{result}");
    };
    let interfaces = json!([{"name": "br0"}, {"name": "veth0"}, {"name": "eth0", "sandbox": "/n"}]);
    check(
        json!({"interfaces": interfaces, "ips": [
            {"address": "10.0.0.1/16", "interface": 0},
            {"address": "10.0.0.7/16", "interface": 2},
            {"address": "fd00::7/64", "interface": 2},
            {"address": "10.0.0.8/16", "interface": 2},
            {"address": "10.0.0.9/16", "interface": 9},
        ]}),
        &["10.0.0.7", "fd00::7"],
    );
    check(json!({"ips": [{"address": "10.0.0.7/16"}]}), &["10.0.0.7"]);
    let odd = [
        Value::Null,
        json!({"ips": {}}),
        json!({"ips": [{"address": "x"}, {"address": 1}, {}, 1]}),
        json!({"ips": [{"address": "127.0.0.1/8"}, {"address": "0.0.0.0/0"}, {"address": "::1/128"}]}),
        json!({"ips": [{"address": "10.0.0.7/16", "interface": u64::MAX}], "interfaces": 1}),
    ];
    for result in odd {
        check(result, &[]);
    }
}
