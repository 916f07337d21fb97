use super::*;

fn read(text: &[u8]) -> Result<Policies, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policies");
    std::fs::write(&file, text).unwrap();
    let read = Policies::read(&file);
    read.map_err(|error| error.replace(&file.display().to_string(), "FILE"))
}

/// A line of the version that names all parts.
fn line(spec: &str) -> String {
    format!("{{\"apiVersion\":\"{GROUP}/v1beta1\",\"kind\":\"Policy\",\"spec\":{spec}}}")
}

#[test]
fn lines_are_policies() {
    let text = |text: &str| text.to_owned();
    let [first, second] = [
        Policy {
            user: text("ann"),
            readonly: true,
            path: text("/x*"),
            ..Policy::default()
        },
        Policy {
            group: text(AUTHENTICATED),
            api_group: text("apps"),
            resource: text("*"),
            namespace: text("n"),
            ..Policy::default()
        },
    ];
    let whole = format!(
        "# who may what\n\n  {}  \r\n{}\n",
        line("{\"user\":\"ann\",\"readonly\":true,\"namespace\":null,\"nonResourcePath\":\"/x*\"}"),
        line(
            "{\"group\":\"*\",\"user\":\"x\",\"apiGroup\":\"apps\",\"resource\":\"*\",\"namespace\":\"n\"}"
        ),
    );
    assert_eq!(read(whole.as_bytes()), Ok(Policies(vec![first, second])));
    assert_eq!(read(b""), Ok(Policies::default()));
}

/// Before there were versions, what was missing was not restricted.
#[test]
fn lines_without_a_version_restrict_less() {
    let one = |text: &str| read(text.as_bytes()).unwrap().0.remove(0);
    let all = Policy {
        group: AUTHENTICATED.to_owned(),
        api_group: "*".to_owned(),
        resource: "*".to_owned(),
        namespace: "*".to_owned(),
        path: "*".to_owned(),
        ..Policy::default()
    };
    assert_eq!(one("{}"), all);
    assert_eq!(one("{\"user\":\"*\"}"), all);
    assert_eq!(one(&format!("{{\"apiVersion\":\"{GROUP}/v0\"}}")), all);
    let of_ann = Policy {
        user: "ann".to_owned(),
        group: String::new(),
        readonly: true,
        resource: "pods".to_owned(),
        path: String::new(),
        ..all
    };
    assert_eq!(
        one("{\"user\":\"ann\",\"resource\":\"pods\",\"readonly\":true}"),
        of_ann
    );
}

#[test]
fn errors_name_file_and_line() {
    let good = line("{\"user\":\"ann\"}");
    let misspelt = line("{\"user\":\"ann\",\"readOnly\":true}");
    for (bad, why) in [
        ("{", "EOF while parsing"),
        ("[]", "it is no object"),
        ("null", "it is no object"),
        (
            "{\"user\": 1}",
            "invalid type: integer `1`, expected a string",
        ),
        ("{\"apiGroup\": \"\"}", "unknown field `apiGroup`"),
        (misspelt.as_str(), "unknown field `readOnly`"),
        (
            "{\"apiVersion\":\"x/v1\",\"kind\":\"Policy\"}",
            "no kind \"Policy\" is registered for version \"x/v1\"",
        ),
        (
            "{\"kind\":\"Pod\"}",
            "no kind \"Pod\" is registered for version \"\"",
        ),
        (
            "{\"apiVersion\":\"abac.authorization.kubernetes.io/v1beta1\"}",
            "no kind \"\" is registered",
        ),
    ] {
        let error = read(format!("{good}\n\n{bad}\n").as_bytes()).expect_err(bad);
        let start = format!("error reading policy file FILE, line 3: {bad}: {why}");
        assert!(error.starts_with(&start), "{error}");
    }
    let error = read(&[b' '; 100_000]).unwrap_err();
    assert_eq!(
        error,
        "error reading policy file FILE: bufio.Scanner: token too long"
    );
    let deep = format!("{{\"user\":{}", "[".repeat(60_000));
    assert!(read(deep.as_bytes()).is_err());
    assert!(read(b"{\"user\":\"\xff\"}").is_err());
    assert!(Policies::read(std::path::Path::new("/none")).is_err());
}
