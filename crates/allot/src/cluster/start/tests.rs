use super::*;

#[test]
fn a_directory_too_deep_for_sockets_is_refused_with_a_reason() {
    let deep = Path::new("/").join("d".repeat(80));
    let error = node_directories(&deep, 1).expect_err("deep").to_string();
    assert!(error.contains("choose a shorter --data-dir"), "{error}");
    assert_eq!(node_directories(&deep, 0).expect("no nodes").len(), 0);
}
