//! Documents name files of the repository: each link without a scheme, and each path in code style that begins with a
//! directory of the repository, leads to one. What they name of the code is in [`names`](super::names).

use std::fs;
use std::path::{Path, PathBuf};

use super::names::Names;

/// Directories whose names begin a path in code style.
const DIRECTORIES: &[&str] = &[
    "charts", "crates", "deploy", "docs", "drivers", "examples", "fuzz", "tests", "web", "xtask",
];

/// Looks at every document.
pub(super) fn check(root: &Path, findings: &mut Vec<String>) {
    let mut named = Names::default();
    for document in documents(root) {
        let Ok(text) = fs::read_to_string(&document) else {
            continue;
        };
        let shown = document.strip_prefix(root).unwrap_or(&document);
        let beside = document.parent().unwrap_or(root);
        let missing = links(&text).filter(|link| !beside.join(link).exists());
        let paths = paths(&text).filter(|path| !root.join(path).exists());
        for name in missing.chain(paths) {
            findings.push(format!(
                "{}: {name} is not in the repository",
                shown.display()
            ));
        }
        for code in code(&text) {
            named.add(&shown.display().to_string(), code);
        }
    }
    named.check(&files(root), findings);
}

/// All files below the directories of the repository, without what is built or installed there.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = DIRECTORIES.iter().map(|name| root.join(name)).collect();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true if path.ends_with("node_modules") || path.ends_with("target") => {}
                true => open.push(path),
                false => found.push(path),
            }
        }
    }
    found
}

/// The documents of the repository, its directories and its crates.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let listed = |directory: &Path| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    for entry in listed(root) {
        let name = entry.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| DIRECTORIES.contains(&name)) {
            for below in listed(&entry)
                .into_iter()
                .filter(|it| !it.ends_with("node_modules"))
            {
                match below.is_dir() {
                    true => all.extend(listed(&below)),
                    false => all.push(below),
                }
            }
        } else {
            all.push(entry);
        }
    }
    // The changelog tells of what was there once.
    all.retain(|path| {
        path.extension().is_some_and(|it| it == "md") && !path.ends_with("CHANGELOG.md")
    });
    all.sort();
    all
}

/// Targets of links without scheme and fragment.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?.split('#').next()?;
        let local =
            !target.is_empty() && !target.contains("://") && !target.contains(char::is_whitespace);
        local.then_some(target)
    })
}

/// What a document has in code style within its lines; blocks of code are not.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let mut block = false;
    let lines = text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        block ^= fence;
        !block && !fence
    });
    lines.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Paths in code style; those with a placeholder or a pattern are none.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    code(text).filter(|code| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let placeholder = code.contains("NAME") || code.contains("KIND");
        let first = code.split('/').next().unwrap_or_default();
        code.contains('/')
            && code.chars().all(plain)
            && !placeholder
            && DIRECTORIES.contains(&first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_paths_are_found() {
        let text = "[a](docs/a.md#b) [c](https://example.com/x) [d](#e) `crates/x/src/a.rs`\n\
                    `docs/NAME.md` `plugins/image.rs` `crates/{a,b}` ![f](images/f.png)";
        let found: Vec<&str> = links(text).collect();
        assert_eq!(found, ["docs/a.md", "images/f.png"]);
        let found: Vec<&str> = paths(text).collect();
        assert_eq!(found, ["crates/x/src/a.rs"]);
    }

    #[test]
    fn a_file_that_is_gone_is_named() {
        let mut findings = Vec::new();
        check(&crate::root(), &mut findings);
        assert!(findings.is_empty(), "{findings:#?}");
    }
}
