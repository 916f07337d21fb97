//! Which run of the machine this is.

use std::path::Path;
use std::sync::OnceLock;

use crate::error::{AtPath, PathError};
use crate::spec;

/// Name of the file in a pod's directory with the boot that its containers are of.
const FILE: &str = "boot.json";

/// The kernel's ID of this run of the machine; empty where it cannot be read. No process, network namespace or number of an interface
/// outlives it.
pub(crate) fn id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        text.unwrap_or_default().trim().to_owned()
    })
}

/// Whether the containers of a pod were of an earlier boot. From now on they are of this one. `directory` is the pod's.
///
/// # Errors
/// That cannot be recorded.
pub(crate) fn enter(directory: &Path) -> Result<bool, PathError> {
    enter_boot(directory, id())
}

fn enter_boot(directory: &Path, boot: &str) -> Result<bool, PathError> {
    let file = directory.join(FILE);
    // Of an agent that wrote no such files, and of a new pod, nothing is known.
    let before: Option<String> = spec::read(&file).ok();
    if boot.is_empty() || before.as_deref() == Some(boot) {
        return Ok(false);
    }
    // A pod without volumes has no directory yet.
    std::fs::create_dir_all(directory).at(directory)?;
    spec::write(&file, &boot)?;
    Ok(before.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_of_the_boot_that_they_have_begun_in() {
        let directory = tempfile::tempdir().expect("a directory");
        let check = |boot: &str, expected: bool| {
            let moved = enter_boot(directory.path(), boot).expect("a record");
            assert_eq!(moved, expected, "{boot:?}");
        };
        check("", false);
        check("one", false);
        check("one", false);
        check("", false);
        check("two", true);
        check("two", false);
        std::fs::write(directory.path().join(FILE), "{").expect("a file");
        check("three", false);
        let none = directory.path().join("none");
        assert!(!enter_boot(&none, "one").expect("a record"));
        assert!(enter_boot(&none, "two").expect("a record"));
        enter_boot(&none.join(FILE), "one").expect_err("a file in the place of the directory");
    }
}
