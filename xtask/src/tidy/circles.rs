//! Circles among the top-level modules of a crate: modules of which each uses the next, directly or through others.
//!
//! Modules in a circle cannot be read, tested or moved separately.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Which top-level module uses which others.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// What the root of a crate offers to its modules by a short path: the name, and the module that it comes from.
pub type Exports = BTreeMap<String, String>;

/// The names that the root of a crate takes from its modules: with `use a::B` in it, `crate::B` is a use of `a`. Globs
/// are not resolved.
pub fn exports(root: &str, modules: &BTreeSet<String>) -> Exports {
    let code = code(root);
    let mut exports = Exports::new();
    for item in code.split(';') {
        // What stands before the item in the same piece (attributes, other items) ends with a line.
        let Some(at) = item.rfind("use ").filter(|at| {
            let before = item[..*at].rsplit('\n').next().unwrap_or_default().trim();
            before.is_empty() || before.starts_with("pub")
        }) else {
            continue;
        };
        let path = item[at + "use ".len()..].trim_start();
        let path = path.strip_prefix("crate::").unwrap_or(path);
        let path = path.strip_prefix("self::").unwrap_or(path);
        let module = name(path);
        if modules.contains(&module) {
            let names = last_names(&path[module.len()..]);
            exports.extend(names.into_iter().map(|name| (name, module.clone())));
        }
    }
    exports
}

/// The names that a `use` of this tree brings: `::{b::C, D as E}` has `C` and `E`.
fn last_names(tree: &str) -> Vec<String> {
    tree.split(['{', ',', '}'])
        .map(|part| part.rsplit("::").next().unwrap_or_default())
        .map(|part| part.rsplit(" as ").next().unwrap_or_default().trim())
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The text without tests and comments.
fn code(text: &str) -> String {
    super::library(text)
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// Adds what a file uses to the graph of its crate. `path` is relative to `src`.
pub fn add(
    path: &Path,
    text: &str,
    modules: &BTreeSet<String>,
    exports: &Exports,
    graph: &mut Graph,
) {
    let place = place(path);
    let Some(top) = place.first() else { return };
    let code = code(text);
    let uses = graph.entry(top.clone()).or_default();
    let from_root = "super::".repeat(place.len());
    for (start, prefix) in [("crate::", "crate::"), ("super::", from_root.as_str())] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before == ':' || before == '_' || before.is_alphanumeric() || before == '$' {
                continue;
            }
            let Some(rest) = code[at..].strip_prefix(prefix) else {
                continue;
            };
            // More `super`s than modules refer to a module inside of the file.
            for name in first_names(rest) {
                let module = match modules.contains(&name) {
                    true => Some(&name),
                    false => exports.get(&name),
                };
                uses.extend(module.filter(|module| *module != top).cloned());
            }
        }
    }
}

/// The module that a file is: `a/b.rs` is `a::b`. The root is none.
fn place(path: &Path) -> Vec<String> {
    let mut parts: Vec<_> = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if parts.len() == 1 && ["lib", "main"].contains(&parts[0].as_str()) {
        parts.clear();
    }
    parts
}

/// The first names of the paths at the start of the text: `a::b` has one, `{a::b, c}` two.
fn first_names(text: &str) -> Vec<String> {
    let Some(group) = text.strip_prefix('{') else {
        return vec![name(text)];
    };
    let mut names = Vec::new();
    let mut depth = 0;
    let mut fresh = true;
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            character if fresh && !character.is_whitespace() => {
                names.push(name(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

fn name(text: &str) -> String {
    text.chars()
        .take_while(|character| character.is_alphanumeric() || *character == '_')
        .collect()
}

/// The modules that are in a circle.
pub fn in_circles(graph: &Graph) -> BTreeSet<String> {
    let modules = graph.keys();
    modules
        .filter(|module| reaches(graph, module, module))
        .cloned()
        .collect()
}

fn reaches(graph: &Graph, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let modules = files
            .iter()
            .filter_map(|(path, _)| place(Path::new(path)).first().cloned())
            .collect();
        let root = files.iter().find(|(path, _)| *path == "lib.rs");
        let exports = exports(root.map_or("", |(_, text)| text), &modules);
        let mut graph = Graph::new();
        for (path, text) in files {
            add(Path::new(path), text, &modules, &exports, &mut graph);
        }
        graph
    }

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        in_circles(&graph(files)).into_iter().collect()
    }

    #[test]
    fn modules_that_use_each_other_are_in_a_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::{x::{b, c}, b::Thing};"),
            ("b/part.rs", "fn f() { super::super::c::f() }"),
            ("c.rs", "use super::a;"),
            ("d.rs", "use crate::a::Thing;"),
        ];
        assert_eq!(circles(&files), ["a", "b", "c"]);
    }

    #[test]
    fn comments_tests_and_own_parts_are_no_use_of_others() {
        let files = [
            ("a.rs", "use crate::b::B; // crate::c\nuse self::part::P;"),
            ("a/part.rs", "use super::Thing; use crate::a::Other;"),
            (
                "b.rs",
                "fn f() {}\n#[cfg(test)]\nmod tests { use crate::a::A; }",
            ),
            ("c.rs", "use allot_crate::a; use super::a::A;"),
        ];
        assert!(circles(&files).is_empty());
        assert_eq!(graph(&files)["c"], BTreeSet::from(["a".to_owned()]));
    }

    #[test]
    fn names_that_the_root_exports_belong_to_their_modules() {
        let root = "//! use x::y;\nmod a;\nmod b;\nmod c;\n\npub use a::{A, part::{Deep, Old as New}};\n\
            pub(crate) use crate::b::B;\nuse std::c::C;\nuse c::C2;\n";
        let modules = ["a", "b", "c"].map(str::to_owned).into();
        let found = exports(root, &modules);
        let found: Vec<_> = found.iter().map(|(n, m)| format!("{m}::{n}")).collect();
        assert_eq!(found, ["a::A", "b::B", "c::C2", "a::Deep", "a::New"]);
        let files = [
            ("lib.rs", root),
            ("a.rs", "use crate::B;"),
            ("b.rs", "fn f() -> super::New {}"),
            ("c.rs", "use crate::{A, B};"),
        ];
        assert_eq!(circles(&files), ["a", "b"]);
    }
}
