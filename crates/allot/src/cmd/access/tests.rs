use super::*;

fn kubeconfig(context: &str, server: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Config
current-context: {context}
contexts: [{{name: {context}, context: {{cluster: {context}, user: {context}, namespace: team-{context}}}}}]
clusters: [{{name: {context}, cluster: {{server: 'http://{server}'}}}}]
users: [{{name: {context}, user: {{}}}}]
"
    )
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().expect("a directory"));
        for (name, server) in [("one", "127.0.0.1:1"), ("two", "127.0.0.1:2")] {
            std::fs::write(files.path(name), kubeconfig(name, server)).expect("written");
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn list(&self, names: &[&str]) -> Option<OsString> {
        let paths = names.iter().map(|name| self.path(name));
        Some(std::env::join_paths(paths).expect("a list"))
    }
}

fn context(name: &str) -> Access {
    Access {
        context: Some(name.to_owned()),
        ..Access::default()
    }
}

#[test]
fn the_first_place_that_there_is_counts() {
    let files = Files::new();
    let (one, two) = (files.path("one"), files.path("two"));
    let everything = || Surroundings {
        kubeconfig: files.list(&["missing", "one"]),
        home: Some(two.clone()),
        in_pod: true,
        up: Some(two.clone()),
        others: vec![one.clone()],
    };
    let check = |access: &Access, around: Surroundings, expected: ConfigSource| {
        assert_eq!(access.place(&around).expect("a place"), expected);
    };
    let flag = Access {
        kubeconfig: Some(two.clone()),
        ..Access::default()
    };
    let none = Access::default();
    check(&flag, everything(), ConfigSource::Files(vec![two.clone()]));
    check(&none, everything(), ConfigSource::Files(vec![one.clone()]));
    let home = || Surroundings {
        kubeconfig: None,
        ..everything()
    };
    check(&none, home(), ConfigSource::Files(vec![two.clone()]));
    let pod = || Surroundings {
        home: None,
        ..home()
    };
    check(&none, pod(), ConfigSource::Pod);
    let up = || Surroundings {
        in_pod: false,
        ..pod()
    };
    check(&none, up(), ConfigSource::Up(two.clone()));
    let named = |others: &[&PathBuf]| Surroundings {
        up: None,
        others: others.iter().map(|file| (*file).clone()).collect(),
        ..up()
    };
    check(&none, named(&[&one]), ConfigSource::Up(one.clone()));
    let several = none
        .place(&named(&[&one, &two]))
        .expect_err("two")
        .to_string();
    let expected = format!("{}, {}", one.display(), two.display());
    assert!(several.ends_with(&expected), "{several}");
    let nothing = named(&[]);
    let error = none.place(&nothing).expect_err("nothing").to_string();
    assert!(error.starts_with("no cluster found: "), "{error}");
    let missing = Surroundings {
        kubeconfig: files.list(&["missing"]),
        in_pod: false,
        ..everything()
    };
    let error = none.place(&missing).expect_err("missing").to_string();
    assert!(error.ends_with("missing, which does not exist"), "{error}");
}

#[tokio::test]
async fn files_are_merged_and_a_context_is_found_in_all_of_them() {
    let files = Files::new();
    let around = Surroundings {
        kubeconfig: files.list(&["one", "two"]),
        ..Surroundings::default()
    };
    for (access, server, namespace) in [
        (Access::default(), "http://127.0.0.1:1/", "team-one"),
        (context("two"), "http://127.0.0.1:2/", "team-two"),
    ] {
        let config = access.config(&around).await.expect("a configuration");
        assert_eq!(config.cluster_url.to_string(), server);
        assert_eq!(config.default_namespace, namespace);
    }
    let error = context("tow").config(&around).await.expect_err("unknown");
    let expected = "there is no context \"tow\"; did you mean two?; there are: one, two";
    assert_eq!(error.to_string(), expected);
}

/// The error `failed to load current context: ` had no remedy.
#[tokio::test]
async fn a_kubeconfig_without_a_current_context_is_named_with_its_contexts() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("config");
    let text =
        "apiVersion: v1\nkind: Config\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n";
    let access = Access {
        kubeconfig: Some(file.clone()),
        ..Access::default()
    };
    for (current, expected) in [
        ("", "has no current context; there are: a; select one with"),
        (
            "''",
            "has no current context; there are: a; select one with",
        ),
        (
            "b",
            "the current context \"b\" does not exist; there are: a",
        ),
    ] {
        std::fs::write(&file, format!("{text}current-context: {current}\n")).expect("written");
        let around = Surroundings::default();
        let error = access.config(&around).await.expect_err("refused");
        assert!(error.to_string().contains(expected), "{error:#}");
        let error = component::config(Some(&file)).await.expect_err("refused");
        assert!(error.to_string().contains(expected), "{error:#}");
    }
}

/// For a stopped cluster the error was "Connection refused", without the command that starts it.
#[test]
fn regression_a_kubeconfig_in_the_directory_of_a_stopped_cluster_is_known() {
    if !std::path::Path::new("/proc/locks").exists() {
        eprintln!("skipped: no /proc/locks");
        return;
    }
    let files = Files::new();
    assert_eq!(stopped(&files.path("one")), None);
    std::fs::write(files.path(allot_store::FILE_NAME), "").expect("written");
    let directory = files.0.path().to_owned();
    assert_eq!(stopped(&files.path("one")), Some(directory));
}
