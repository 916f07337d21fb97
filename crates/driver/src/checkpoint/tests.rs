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
    std::fs::write(&path, text.replace("gpu-0", "gpu-1")).unwrap();
    assert!(matches!(
        Checkpoint::open(Some(path)),
        Err(Error::Checkpoint { .. })
    ));
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
    };
    assert!(checkpoint.insert(entry("a")).is_err());
    assert_eq!(checkpoint.get("a"), None);
}
