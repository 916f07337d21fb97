//! Programs of this machine with their shared libraries, as content of test images.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of these programs of `/bin`, and the shared libraries that they need.
pub fn files(programs: &[&str]) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for name in programs {
        let path = ["/bin", "/usr/bin"]
            .map(|directory| Path::new(directory).join(name))
            .into_iter()
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("no program {name}"));
        let output = Command::new("ldd").arg(&path).output().expect("ldd");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = text.split_whitespace().filter(|word| word.starts_with('/'));
        all.extend(words.map(PathBuf::from));
        all.insert(path);
    }
    all
}
