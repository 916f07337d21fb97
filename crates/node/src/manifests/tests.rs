use super::*;

const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: c
    image: i
";

fn parsed(text: &str) -> Result<Pod, String> {
    let file = Path::new("/etc/manifests/web.yaml");
    parse(text.as_bytes(), file, "Node-1").map_err(|fault| fault.to_string())
}

/// The pod with more lines in its specification.
fn with(lines: &str) -> String {
    format!("{POD}{lines}\n")
}

#[test]
fn a_manifest_becomes_a_pod_of_the_node() {
    let pod = parsed(POD).unwrap();
    assert_eq!(full_name(&pod), "default/web-node-1");
    let uid = pod.uid().unwrap();
    assert!(is_hash(&uid), "{uid}");
    assert_eq!(pod.annotations()[HASH], uid);
    assert_eq!(pod.annotations()[SOURCE], "file");
    let spec = pod.spec.unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("Node-1"));
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"), "defaults");
    let tolerations = spec.tolerations.unwrap();
    assert_eq!(tolerations[0].effect.as_deref(), Some("NoExecute"));
}

#[test]
fn the_hash_is_of_what_is_said_and_of_where() {
    let uid = |text: &str| parsed(text).unwrap().uid().unwrap();
    let first = uid(POD);
    assert_eq!(uid(&format!("# a comment\n{POD}")), first);
    assert_ne!(uid(&POD.replace("image: i", "image: j")), first);
    let elsewhere = parse(POD.as_bytes(), Path::new("/other"), "Node-1").unwrap();
    assert_ne!(elsewhere.uid().unwrap(), first);
    let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    assert_eq!(full_name(&parsed(json).unwrap()), "default/web-node-1");
    assert!(!is_hash("0b1c6a1e-8f4c-4d57-9d51-6a2e1f1f0a11"));
}

#[test]
fn what_only_the_api_server_has_is_refused() {
    let rows = [
        ("  serviceAccountName: a", "serviceaccounts"),
        ("  serviceAccount: a", "serviceaccounts"),
        ("  imagePullSecrets: [{name: s}]", "secrets"),
        ("    envFrom: [{secretRef: {name: s}}]", "secrets"),
        (
            "    env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
            "secrets",
        ),
        (
            "    env: [{name: A, valueFrom: {configMapKeyRef: {name: s, key: k}}}]",
            "configmaps",
        ),
        ("    envFrom: [{configMapRef: {name: s}}]", "configmaps"),
        (
            "  resourceClaims: [{name: c, resourceClaimName: c}]",
            "resourceclaims",
        ),
        (
            "  volumes: [{name: v, secret: {secretName: s}}]",
            "secrets (via secret volumes)",
        ),
        (
            "  volumes: [{name: v, configMap: {name: s}}]",
            "configmaps (via configmap volumes)",
        ),
        (
            "  volumes: [{name: v, persistentVolumeClaim: {claimName: s}}]",
            "persistentvolumeclaims",
        ),
        (
            "  volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]",
            "serviceaccounts (via projected volumes)",
        ),
        (
            "  volumes: [{name: v, projected: {sources: [{secret: {name: s}}]}}]",
            "secrets (via projected volumes)",
        ),
        (
            "  volumes: [{name: v, csi: {driver: d}}]",
            "other objects, as by volumes of the type csi",
        ),
        (
            "  initContainers: [{name: i, image: i, envFrom: [{secretRef: {name: s}}]}]",
            "secrets",
        ),
    ];
    for (lines, what) in rows {
        let expected = format!("static pods may not reference {what}");
        assert_eq!(parsed(&with(lines)).err(), Some(expected), "{lines}");
    }
    for lines in [
        "  volumes: [{name: v, emptyDir: {}}, {name: w, hostPath: {path: /srv}}]",
        "  volumes: [{name: v, projected: {sources: [{downwardAPI: {items: []}}]}}]",
        "    env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
    ] {
        parsed(&with(lines)).unwrap_or_else(|fault| panic!("{lines}: {fault}"));
    }
}

#[test]
fn what_is_no_pod_is_refused_with_the_reason() {
    let rows = [
        ("a: [", "line 1 column 4"),
        ("a: 1\na: 2", "duplicate"),
        ("{}", "expected a Pod of v1, found kind \"\" of \"\""),
        (
            "{apiVersion: apps/v1, kind: Deployment}",
            "expected a Pod of v1",
        ),
        (
            "{apiVersion: v1, kind: Pod, spec: {containers: []}}",
            "name is needed",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
            "at least one is needed",
        ),
        (&POD.replace("name: web", "name: ../up"), "metadata.name"),
        (
            &POD.replace("name: web", "name: web\n  namespace: a/b"),
            "metadata.namespace",
        ),
        (&POD.replace("name: c", "name: ../c"), "name of a container"),
        (&POD.replace("    image: i\n", ""), "image is needed"),
        (
            &with("  - name: c\n    image: i"),
            "container \"c\" is defined twice",
        ),
        (
            &with("  volumes: [{name: ../v, emptyDir: {}}]"),
            "name of a volume",
        ),
        (
            &POD.replace("containers:", "containers: x\n  y:"),
            "cannot unmarshal",
        ),
    ];
    for (text, expected) in rows {
        let fault = parsed(text).expect_err(text).to_lowercase();
        assert!(fault.contains(&expected.to_lowercase()), "{text}: {fault}");
    }
}

#[test]
fn files_at_fault_are_named_and_the_others_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
    write("a.yaml", POD);
    write("b-same.yaml", POD);
    write(".hidden.yaml", &POD.replace("web", "hidden"));
    write("large.yaml", &format!("{POD}#{}", "x".repeat(1 << 20)));
    std::fs::create_dir(path("below")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), fifo, mode, 0).unwrap();
    let read = read(directory.path(), "n1").unwrap();
    let found: Vec<String> = read.pods.iter().map(full_name).collect();
    assert_eq!(found, ["default/web-n1"]);
    let fault = |name: &str| read.faults.get(&path(name)).cloned().unwrap_or_default();
    assert!(fault("b-same.yaml").contains("defined in another file"));
    assert!(fault("large.yaml").contains("larger than 1 MiB"));
    assert!(fault("below").contains("not a regular file"));
    assert!(fault("pipe").contains("not a regular file"));
    assert_eq!(read.faults.len(), 4);
}

#[test]
fn the_number_of_manifests_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..MAX_FILES + 3 {
        let text = POD.replace("web", &format!("web-{number}"));
        std::fs::write(directory.path().join(format!("{number:04}")), text).unwrap();
    }
    let read = read(directory.path(), "n1").unwrap();
    assert_eq!((read.pods.len(), read.faults.len()), (MAX_FILES, 3));
}

#[test]
fn the_path_may_be_a_file_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pod.json");
    let nothing = read(&file, "n1").unwrap();
    assert_eq!((nothing.pods.len(), nothing.faults.len()), (0, 1));
    std::fs::write(&file, POD).unwrap();
    assert_eq!(read(&file, "n1").unwrap().pods.len(), 1);
}

/// Files that would take all memory, the stack, or forever.
#[test]
fn a_manifest_that_grows_or_never_ends_is_a_fault() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..40 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        laughs += &format!("a{level}: &a{level} [{before}]\n");
    }
    let deep =
        |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let nested =
        |inner: &str| POD.replace("  name: web\n", &format!("  name: web\n  x: {inner}\n"));
    for text in [
        format!("{laughs}{POD}"),
        "&a [*a]".to_owned(),
        "&a {b: *a}".to_owned(),
        format!("{POD}x: &x\n  y: *x\n"),
        "*nothing".to_owned(),
        deep("[", "]"),
        deep("{\"a\":", "}"),
        deep("- ", ""),
        nested(&deep("[", "]")),
        "\0".repeat(1000),
        "---\n".repeat(100_000),
        format!("{POD}---\n{POD}"),
        "? ".repeat(100_000),
        "!!binary ".repeat(10_000),
    ] {
        let shown: String = text.chars().take(40).collect();
        assert!(parsed(&text).is_err(), "{shown}");
    }
}

/// A manifest may be a link, as those of mounted config maps are, and a link may lead anywhere.
#[test]
fn links_lead_to_files_or_to_faults() {
    use std::os::unix::fs::symlink;

    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path(".data")).unwrap();
    std::fs::write(path(".data/web.yaml"), POD).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path(".data/pipe"), fifo, mode, 0).unwrap();
    for (name, to) in [
        ("good", ".data/web.yaml"),
        ("loop", "loop"),
        ("nowhere", "missing"),
        ("pipe", ".data/pipe"),
        ("self", "."),
        ("zero", "/dev/zero"),
        ("random", "/dev/urandom"),
    ] {
        symlink(to, path(name)).unwrap();
    }
    let read = read(directory.path(), "n1").unwrap();
    let found: Vec<String> = read.pods.iter().map(full_name).collect();
    assert_eq!(found, ["default/web-n1"]);
    let faults: Vec<&str> = read
        .faults
        .keys()
        .filter_map(|it| it.file_name()?.to_str())
        .collect();
    assert_eq!(faults, ["loop", "pipe", "random", "self", "zero"]);
}
