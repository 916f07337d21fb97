use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::clusters::record::Process;

/// A user's kubeconfig, with what a careless writer would lose or change.
const OTHERS: &str = r#"
apiVersion: v1
kind: Config
preferences: {colors: true}
current-context: work
clusters:
- name: work
  cluster: {server: "https://example.com", certificate-authority-data: "MDEyMw=="}
users:
- name: work
  user: {token: "0123", username: "yes", password: "1e3"}
contexts:
- name: work
  context: {cluster: work, user: work, namespace: "null"}
unknown: [1, "1", "~", "a: b", "multi\nline\n"]
"#;

const OWN: &str = "clusters: [{name: allot, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: admin, user: {token: t}}]\n";

struct Files {
    _directory: tempfile::TempDir,
    target: PathBuf,
    record: Record,
}

fn files(name: Option<&str>) -> Files {
    let directory = tempfile::tempdir().expect("directory");
    let data = directory.path().join("data");
    std::fs::create_dir(&data).expect("made");
    std::fs::write(data.join("kubeconfig"), OWN).expect("written");
    let record = Record {
        name: name.map(str::to_owned),
        kubeconfig: data.join("kubeconfig"),
        data_dir: data,
        temporary: false,
        process: Process::current(),
        version: String::new(),
        server: String::new(),
        merged_into: None,
        nodes: 1,
        log: None,
        dashboard: None,
        started: jiff::Timestamp::UNIX_EPOCH,
        ready: true,
    };
    Files {
        target: directory.path().join("home/.kube/config"),
        _directory: directory,
        record,
    }
}

impl Files {
    fn with_others(self) -> Self {
        std::fs::create_dir_all(self.target.parent().expect("a directory")).expect("made");
        std::fs::write(&self.target, OTHERS).expect("written");
        self
    }

    fn mode(&self) -> u32 {
        let file = std::fs::metadata(&self.target).expect("a file");
        file.permissions().mode() & 0o777
    }
}

#[test]
fn a_context_is_added_and_removed_and_others_stay() {
    let files = files(Some("dev")).with_others();
    let before: Value = serde_saphyr::from_str(OTHERS).expect("YAML");
    for _ in 0..2 {
        merge(&files.target, &files.record).expect("merged");
        let merged = read(&files.target).expect("readable");
        assert_eq!(merged["current-context"], "allot-dev");
        for (list, _) in LISTS {
            let all = merged[list].as_array().expect("a list");
            assert_eq!(all.len(), 2, "{list}");
            assert_eq!(all[0], before[list][0]);
        }
        assert_eq!(merged["unknown"], before["unknown"]);
        assert_eq!(merged["preferences"], before["preferences"]);
        assert_eq!(files.mode(), 0o600);
    }
    assert!(remove(&files.target, &files.record.data_dir).expect("removed"));
    let after = read(&files.target).expect("readable");
    assert_eq!(after, before);
    assert!(!remove(&files.target, &files.record.data_dir).expect("nothing to do"));
}

/// The end of a cluster used to leave a kubeconfig without a current context, also that of another cluster.
#[test]
fn the_context_before_a_cluster_becomes_current_again() {
    let first = files(Some("first")).with_others();
    let second = files(Some("second"));
    let end = |of: &Files| {
        remove(&first.target, &of.record.data_dir).expect("removed");
        read(&first.target).expect("readable")["current-context"].clone()
    };
    for ended in [[&first, &second], [&second, &first]] {
        merge(&first.target, &first.record).expect("merged");
        merge(&first.target, &second.record).expect("merged");
        let left = ended[1].record.name.as_deref().expect("a name");
        assert_eq!(end(ended[0]), format!("allot-{left}"));
        assert_eq!(end(ended[1]), "work");
    }

    // What the user selected meanwhile stays.
    merge(&first.target, &first.record).expect("merged");
    edit(&first.target, |config| {
        config["current-context"] = json!("mine");
        let mine = json!({"name": "mine", "context": {"cluster": "work", "user": "work"}});
        entries(config, "contexts")?.push(mine);
        Ok(true)
    })
    .expect("edited");
    assert_eq!(end(&first), "mine");

    // The context before it may be gone.
    merge(&first.target, &first.record).expect("merged");
    assert_eq!(end(&first), "mine");
    let mut config = read(&first.target).expect("readable");
    config["current-context"] = json!("allot-first");
    let mut circle = config.clone();
    circle["contexts"] = json!([{"name": "allot-first", "context": {"extensions": [
        {"name": EXTENSION, "extension": {"dataDir": first.record.data_dir, "previousContext": "allot-first"}}]}}]);
    assert!(take_away(&mut circle, &first.record.data_dir));
    assert_eq!(circle["current-context"], "");
}

#[test]
fn a_kubeconfig_is_made_where_there_is_none() {
    let files = files(None);
    assert!(!remove(&files.target, &files.record.data_dir).expect("nothing to do"));
    merge(&files.target, &files.record).expect("merged");
    let merged = read(&files.target).expect("readable");
    assert_eq!(merged["current-context"], "allot");
    assert_eq!(merged["users"][0]["user"]["token"], "t");
    assert_eq!(files.mode(), 0o600);
}

#[test]
fn entries_of_others_are_not_replaced() {
    let files = files(Some("x")).with_others();
    let theirs = OTHERS.replace("name: work", "name: allot-x");
    std::fs::write(&files.target, &theirs).expect("written");
    let error = merge(&files.target, &files.record).expect_err("refused");
    assert!(
        format!("{error:#}").contains("is not of `allot up`"),
        "{error:#}"
    );
    assert_eq!(
        std::fs::read_to_string(&files.target).expect("read"),
        theirs
    );

    // The same name for another cluster, which still has its directory.
    let files = self::files(None).with_others();
    merge(&files.target, &files.record).expect("merged");
    let other = self::files(None);
    let error = merge(&files.target, &other.record).expect_err("refused");
    assert!(format!("{error:#}").contains("another --name"), "{error:#}");
    std::fs::remove_dir_all(&files.record.data_dir).expect("removed");
    merge(&files.target, &other.record).expect("merged");
    let merged = read(&files.target).expect("readable");
    assert_eq!(merged["contexts"].as_array().map(Vec::len), Some(2));
}

#[test]
fn what_is_no_kubeconfig_is_left_alone() {
    for text in ["- a\n", "clusters: 3\n", "a: [\n"] {
        let files = files(None).with_others();
        std::fs::write(&files.target, text).expect("written");
        assert!(merge(&files.target, &files.record).is_err(), "{text}");
        assert_eq!(std::fs::read_to_string(&files.target).expect("read"), text);
        let lock = files.target.with_file_name("config.lock");
        assert!(!lock.exists());
    }
}

#[test]
fn a_kubeconfig_that_is_a_symbolic_link_stays_a_link() {
    let files = files(None).with_others();
    let real = files.target.with_file_name("real");
    std::fs::rename(&files.target, &real).expect("renamed");
    std::os::unix::fs::symlink("real", &files.target).expect("linked");
    merge(&files.target, &files.record).expect("merged");
    assert!(files.target.is_symlink());
    let merged = read(&real).expect("readable");
    assert_eq!(merged["current-context"], "allot");
}
