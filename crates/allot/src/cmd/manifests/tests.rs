use super::*;

const TEXT: &str = "\
# a comment
apiVersion: v1
kind: A
---

kind: B
spec:
  list:
  - name: x
    value: 1
  - name: y
    value: 2
  other:
    name: z
--- 
# nothing
";

fn documents() -> Vec<Document> {
    let mut documents = Vec::new();
    parse(Path::new("f.yaml"), TEXT, &mut documents).unwrap();
    documents
}

#[test]
fn documents_are_separated() {
    let titles: Vec<_> = documents()
        .iter()
        .map(|document| title(&document.object))
        .collect();
    assert_eq!(titles, ["A", "B"]);
}

#[test]
fn fields_have_lines() {
    let documents = documents();
    let line = |path: &str| documents[1].line(&split_path(path));
    assert_eq!(line("kind"), 6);
    assert_eq!(line("spec.list[0].value"), 10);
    assert_eq!(line("spec.list[1].name"), 11);
    assert_eq!(line("spec.list[1].value"), 12);
    assert_eq!(line("spec.other.name"), 14);
    assert_eq!(line("spec.list[1].gone"), 11);
    assert_eq!(line("gone"), 6);
    assert_eq!(documents[0].line(&split_path("kind")), 3);
}

#[test]
fn lists_are_taken_apart() {
    let mut documents = Vec::new();
    let text =
        r#"{"kind": "List", "items": [{"kind": "A", "metadata": {"name": "x"}}, {"kind": "B"}]}"#;
    parse(Path::new("f.json"), text, &mut documents).unwrap();
    let titles: Vec<_> = documents
        .iter()
        .map(|document| title(&document.object))
        .collect();
    assert_eq!(titles, ["A x", "B"]);
}

#[test]
fn what_is_no_yaml_is_named() {
    let error = parse(Path::new("f.yaml"), "a: b\n---\nc: [\n", &mut Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "f.yaml: the document that begins in line 3 is no YAML: line 1 column 4: unclosed bracket '['"
    );
}

/// An empty file was linted without a finding, and converted to nothing.
#[test]
fn regression_files_without_a_manifest_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).expect("written");
        file
    };
    let (empty, list) = (
        file("empty.yaml", "# nothing\n---\n"),
        file("list.yaml", "apiVersion: v1\nkind: List\nitems: []\n"),
    );
    let error = read(std::slice::from_ref(&empty)).expect_err("empty");
    let expected = format!("no manifest in {}", empty.display());
    assert_eq!(error.to_string(), expected);
    for files in [vec![list.clone()], vec![empty, list], Vec::new()] {
        assert!(read(&files).expect("read").is_empty(), "{files:?}");
    }
}
