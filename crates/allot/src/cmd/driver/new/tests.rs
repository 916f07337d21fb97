use super::*;

fn args(name: &str, driver: Option<&str>, sdk: Option<&str>) -> Args {
    Args {
        name: name.to_owned(),
        driver_name: driver.map(str::to_owned),
        directory: None,
        sdk: sdk.map(PathBuf::from),
    }
}

#[test]
fn a_project_has_no_placeholder_left_and_is_not_written_twice() {
    let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let project = Project::new(&args("led-driver", None, Some(checkout))).unwrap();
    assert_eq!(project.driver, "led-driver.example.com");
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a b");
    project.write(&target).unwrap();
    for (path, _) in FILES {
        let text = std::fs::read_to_string(target.join(path)).unwrap();
        for word in [
            "@CRATE@",
            "@DRIVER@",
            "@VARIABLE@",
            "@MODULE@",
            "@SDK@",
            "@TEST_SDK@",
        ] {
            assert!(!text.contains(word), "{path}: {word}");
        }
        assert!(!text.is_empty(), "{path}");
    }
    let main = std::fs::read_to_string(target.join("src/main.rs")).unwrap();
    assert!(main.contains("led_driver::start"), "{main}");
    let manifest = std::fs::read_to_string(target.join("Cargo.toml")).unwrap();
    assert!(manifest.contains("default-features = false"), "{manifest}");
    let (of_program, of_tests) = manifest.split_once("[dev-dependencies]").unwrap();
    assert!(
        !of_program.contains("\"testing\"") && of_tests.contains("\"testing\""),
        "{manifest}"
    );
    let error = project.write(&target).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
}

/// A file that is not in the list would be missing from projects.
#[test]
fn every_template_is_written() {
    fn count(directory: &Path) -> usize {
        let entries = std::fs::read_dir(directory).unwrap().flatten();
        entries.fold(0, |sum, entry| match entry.path() {
            path if path.is_dir() => sum + count(&path),
            _ => sum + 1,
        })
    }
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cmd/driver/new/project");
    assert_eq!(count(&templates), FILES.len());
}

#[test]
fn names_that_cannot_be_used_are_refused() {
    let check = |name: &str, driver: Option<&str>, expected: &str| {
        let error = Project::new(&args(name, driver, None)).unwrap_err();
        assert!(error.to_string().contains(expected), "{name}: {error}");
    };
    check("Led", None, "lowercase");
    check("../led", None, "lowercase");
    check("3d", None, "begin with a letter");
    check(&"a".repeat(41), None, "at most 40");
    check("core", None, "another name");
    check("led", Some("led_x"), "--driver-name");
    check("led", Some("3.example.com"), "begin with a letter");
    check("led", Some("leds"), "such as leds.example.com");
    check("led", Some(&"a.".repeat(40)), "--driver-name");
    let error = Project::new(&args("led", None, Some("/nowhere"))).unwrap_err();
    assert!(error.to_string().contains("is not there"), "{error}");
}
