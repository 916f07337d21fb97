use super::*;

fn entry(uid: &str) -> Entry {
    let claim = ClaimRef {
        namespace: "default".into(),
        name: "claim".into(),
        uid: uid.into(),
    };
    Entry {
        claim,
        devices: vec![PreparedDevice {
            device: "gpu-0".into(),
            ..Default::default()
        }],
        begun: false,
        held: None,
        pod_claim: None,
        state: None,
    }
}

#[test]
fn entries_survive_and_damage_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("checkpoint.json");
    let mut checkpoint = Checkpoint::open(Some(path.clone())).unwrap();
    checkpoint.insert(entry("a")).unwrap();
    checkpoint.insert(entry("b")).unwrap();
    checkpoint.remove("a").unwrap();
    let again = Checkpoint::open(Some(path.clone())).unwrap();
    assert_eq!(again.get("b"), Some(&entry("b")));
    assert_eq!(again.get("a"), None);

    let text = std::fs::read_to_string(&path).unwrap();
    for damaged in [
        text.replace("gpu-0", "gpu-1"),
        String::new(),
        text[..text.len() / 2].to_owned(),
    ] {
        std::fs::write(&path, &damaged).unwrap();
        let mut checkpoint = Checkpoint::open(Some(path.clone())).unwrap();
        assert_eq!(checkpoint.entries().count(), 0);
        assert!(!path.exists());
        let names = std::fs::read_dir(directory.path()).unwrap().flatten();
        let aside = names
            .map(|entry| entry.path())
            .find(|path| path.to_string_lossy().contains(".damaged-"))
            .unwrap();
        assert_eq!(std::fs::read_to_string(&aside).unwrap(), damaged);
        std::fs::remove_file(aside).unwrap();
        checkpoint.insert(entry("c")).unwrap();
        assert!(
            Checkpoint::open(Some(path.clone()))
                .unwrap()
                .get("c")
                .is_some()
        );
    }
}

/// Entries of releases that did not write down which devices are held.
#[test]
fn a_device_is_held_unless_it_is_a_share() {
    let mut entry = entry("a");
    assert!(
        entry.holds("", "gpu-0") && !entry.holds("", "gpu-1") && !entry.holds("other", "gpu-0")
    );
    entry.devices[0].share_id = Some("s".into());
    assert!(!entry.holds("", "gpu-0"));
    entry.held = Some(vec![("p".into(), "gpu-2".into())]);
    assert!(entry.holds("p", "gpu-2"));
}

#[test]
fn what_is_not_on_disk_is_not_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sub").join("checkpoint.json");
    std::fs::write(
        directory.path().join("sub"),
        "a file where a directory is needed",
    )
    .unwrap();
    let mut checkpoint = Checkpoint {
        path: Some(path),
        entries: BTreeMap::new(),
        written: None,
        boot: None,
    };
    assert!(checkpoint.insert(entry("a")).is_err());
    assert_eq!(checkpoint.get("a"), None);
}

#[test]
fn a_boot_is_told_from_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("checkpoint.json");
    let open = || Checkpoint::open(Some(path.clone())).unwrap();
    let mut checkpoint = open();
    assert_eq!(checkpoint.boot(), Boot::Unknown);
    checkpoint.insert(entry("a")).unwrap();
    assert_eq!(open().boot(), Boot::Same);

    let mut earlier = open();
    earlier.boot = Some("another".into());
    earlier.insert(entry("b")).unwrap();
    let mut checkpoint = open();
    assert_eq!(checkpoint.boot(), Boot::Changed);
    checkpoint.restored(BTreeMap::new()).unwrap();
    assert_eq!(open().boot(), Boot::Same);

    // Of a release that did not write it.
    let text = std::fs::read_to_string(&path).unwrap();
    let boot = checkpoint.boot.unwrap();
    let text = text.replace(&format!(r#","boot":"{boot}""#), "");
    std::fs::write(&path, text).unwrap();
    let checkpoint = open();
    assert_eq!(checkpoint.boot(), Boot::Unknown);
    assert!(checkpoint.get("a").is_some());
}

/// The attack: something that never ends in the place of the checkpoint, and the driver hung at its start.
#[test]
fn regression_what_is_no_file_is_set_aside() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let directory = tempfile::tempdir().unwrap();
    let check = |name: &str, make: &dyn Fn(&Path)| {
        let path = directory.path().join(name);
        make(&path);
        let mut checkpoint = Checkpoint::open(Some(path.clone())).unwrap();
        assert_eq!(checkpoint.entries().count(), 0, "{name}");
        checkpoint.insert(entry("a")).unwrap();
        let again = Checkpoint::open(Some(path)).unwrap();
        assert_eq!(again.get("a"), Some(&entry("a")), "{name}");
    };
    check("pipe", &|path| {
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    });
    check("device", &|path| {
        std::os::unix::fs::symlink("/dev/zero", path).unwrap();
    });
    check("directory", &|path| std::fs::create_dir(path).unwrap());
    check("large", &|path| {
        let file = std::fs::File::create(path).unwrap();
        file.set_len(MOST_BYTES + 1).unwrap();
    });
}
