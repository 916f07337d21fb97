//! Commands in the documents are those of the program: each is parsed by the command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap::error::ErrorKind;

/// A command as a document has it.
#[derive(Debug, PartialEq, Eq)]
struct Command {
    line: usize,
    words: Vec<String>,
    /// It can be typed as it is; otherwise it is a mention in the text, which may leave out what a command needs.
    whole: bool,
}

/// Names of internal commands, which documents may mention.
const INTERNAL: &[&str] = &["node-shim"];

/// Directories without documents of the project.
const FOREIGN: &[&str] = &["node_modules", "target", "assets"];

/// All commands of a document: in blocks of code, and in code style in the text.
fn commands(text: &str) -> Vec<Command> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let line_number = number + 1;
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None => Some(language.trim()),
            };
            continue;
        }
        let code = match fence {
            // The rest of it is output.
            Some("console") => line.trim_start().strip_prefix("$ "),
            Some("sh" | "bash" | "") => Some(line),
            Some(_) => None,
            None => line.strip_prefix("    "),
        };
        let Some(code) = code else {
            let spans = line.split('`').skip(1).step_by(2);
            for span in spans.filter(|_| fence.is_none()) {
                let typed = span.replace("\\|", "|");
                let named = typed.starts_with("allot ") || typed.starts_with("kubectl dra ");
                let all = split(&typed).into_iter().filter(|_| named);
                found.extend(all.filter_map(ours).map(|words| Command {
                    line: line_number,
                    words,
                    whole: false,
                }));
            }
            continue;
        };
        let mut code = code.to_owned();
        while code.ends_with('\\') && lines.peek().is_some() {
            code.pop();
            code += lines.next().map_or("", |(_, next)| next.trim_start());
        }
        let whole = !code.contains('…') && !code.contains("...");
        found.extend(
            split(&code)
                .into_iter()
                .filter_map(ours)
                .map(|words| Command {
                    line: line_number,
                    words,
                    whole,
                }),
        );
    }
    found
}

/// The words of a command of the program, beginning with `allot` or `kubectl-dra`.
fn ours(words: Vec<String>) -> Option<Vec<String>> {
    let is_assignment = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    let before = |word: &String| {
        is_assignment(word) || ["sudo", "do", "exec", "time"].contains(&word.as_str())
    };
    let mut words = words.into_iter().skip_while(before);
    let first = words.next()?;
    let program = Path::new(&first).file_name()?.to_str()?.to_owned();
    let mut rest: Vec<String> = words.collect();
    let name = match (program.as_str(), rest.first().map(String::as_str)) {
        // Prose that is indented as deep as code.
        ("allot", Some(_)) => "allot",
        ("kubectl", Some("dra")) => {
            rest.remove(0);
            "kubectl-dra"
        }
        ("cargo", Some("run")) => {
            let end = rest.iter().position(|word| word == "--")?;
            rest.drain(..=end);
            "allot"
        }
        _ => return None,
    };
    rest.insert(0, name.to_owned());
    Some(rest)
}

/// Simple commands of a line of shell. Brackets around what is optional are removed, the first of several alternatives is
/// taken, and what is left out (`…`) is left out.
fn split(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut word = String::new();
    let (mut quote, mut quoted, mut skipped) = (None, false, false);
    let mut before = ' ';
    let mut characters = line.chars().chain([' ']).peekable();
    while let Some(c) = characters.next() {
        let next = characters.peek().copied().unwrap_or(' ');
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                quoted = true;
            }
            (None, '#') if before == ' ' => break,
            // Without a space it is one of several words.
            (None, '|') if before != ' ' && next != ' ' => word.push(c),
            (None, ' ' | '|' | ';' | '&' | '<' | '>' | '(' | ')') => {
                let plain = match (quoted, word.strip_prefix("[-")) {
                    (true, Some(flag)) => format!("-{}", flag.trim_end_matches(']')),
                    (true, None) => word.clone(),
                    (false, _) => placeholder(&word),
                };
                // `2>` is a descriptor.
                let descriptor = "<>".contains(c) && word.chars().all(|c| c.is_ascii_digit());
                if !plain.is_empty() && !descriptor && !std::mem::take(&mut skipped) {
                    all.last_mut().expect("never empty").push(plain);
                }
                word.clear();
                quoted = false;
                match c {
                    ' ' => {}
                    '<' | '>' => skipped = true,
                    _ => all.push(Vec::new()),
                }
            }
            (None, _) => word.push(c),
        }
        before = c;
    }
    all.retain(|words| !words.is_empty());
    all
}

/// A word without the marks of documents.
fn placeholder(word: &str) -> String {
    let word = word.trim_start_matches('[').trim_end_matches(']');
    let word = word.trim_end_matches("...").trim_end_matches('…');
    let end = match word.starts_with('-') && !word.contains('=') {
        true => None,
        false => word.find('|'),
    };
    word[..end.unwrap_or(word.len())].to_owned()
}

/// Why a command is not one of the program.
fn wrong(command: &Command) -> Option<String> {
    let Command { words, whole, .. } = command;
    if words
        .get(1)
        .is_some_and(|name| INTERNAL.contains(&name.as_str()))
    {
        return None;
    }
    let parser = match words[0].as_str() {
        "allot" => crate::Cli::command(),
        _ => crate::plugin::command(),
    };
    let error = parser.try_get_matches_from(words).err()?;
    // A document writes NAME where the user writes a name.
    let placeholders = words.iter().any(|word| {
        let value = word.rsplit('=').next().unwrap_or(word);
        let name = |c: char| c.is_ascii_uppercase() || "._-/:".contains(c);
        word.contains(['$', '{', '*']) || (!value.is_empty() && value.chars().all(name))
    });
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::InvalidValue
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if !whole =>
        {
            None
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation if placeholders => None,
        // A variable with several words.
        ErrorKind::UnknownArgument if words.iter().any(|word| word.starts_with('$')) => None,
        _ => Some(error.to_string()),
    }
}

/// All documents with an extension below a directory, without the changelog, which also names what has been removed.
fn documents(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && !FOREIGN.contains(&name) {
                documents(&path, extension, found);
            }
        } else if name.ends_with(extension) && name != "CHANGELOG.md" {
            found.push(path);
        }
    }
}

/// The comments of a manifest as text of a document, in which commands are indented.
fn comments(manifest: &str) -> String {
    let lines = manifest.lines().map(|line| {
        let comment = line.strip_prefix('#').unwrap_or_default();
        match comment.strip_prefix("   ") {
            Some(command) => format!("    {command}\n"),
            None => format!("{}\n", comment.trim_start()),
        }
    });
    lines.collect()
}

/// Examples in the help of a command and of those below it, as text of a document.
fn help(command: &clap::Command, found: &mut Vec<String>) {
    for text in [command.get_after_help(), command.get_after_long_help()] {
        let text = text.map(ToString::to_string).unwrap_or_default();
        found.extend(text.lines().map(|line| {
            // What an example is for is in a column of its own.
            let example = line.trim_start().split("   ").next();
            let indent = match line.starts_with("  ") {
                true => "    ",
                false => "",
            };
            format!("{indent}{}", example.unwrap_or_default())
        }));
    }
    for below in command.get_subcommands() {
        help(below, found);
    }
}

#[test]
fn commands_are_found_in_code_and_in_text() {
    let text = [
        "text `allot store check\\|dump` and `allot`, not `allots up`",
        "    sudo /usr/bin/allot up --nodes 2 \\",
        "      --name 'a b' > log 2> x # why",
        "```console",
        "$ A=b allot explain | grep x && kubectl dra devices",
        "allot output",
        "```",
        "    cargo run -- demo",
        "    allot node [--runtime auto|cri] [--label='a|b'] IMAGE...",
    ];
    let found = commands(&text.join("\n"));
    let lines: Vec<_> = (found.iter())
        .map(|command| (command.line, command.words.join(" "), command.whole))
        .collect();
    let expected = [
        (1, "allot store check", false),
        (2, "allot up --nodes 2 --name a b", true),
        (5, "allot explain", true),
        (5, "kubectl-dra devices", true),
    ];
    let expected = expected.map(|(line, words, whole)| (line, words.to_owned(), whole));
    assert_eq!(lines[..4], expected);
    assert_eq!(lines[4].1, "allot demo");
    assert_eq!(lines[5].1, "allot node --runtime auto --label=a|b IMAGE");
}

#[test]
fn commands_are_found_in_the_comments_of_manifests() {
    let manifest =
        "# Text about `allot down`:\n#   allot up --nodes 2\nkind: Pod # allot explain\n";
    let found = commands(&comments(manifest));
    let lines: Vec<_> = found
        .iter()
        .map(|command| (command.line, command.words.join(" ")))
        .collect();
    let expected = [(1, "allot down"), (2, "allot up --nodes 2")];
    assert_eq!(
        lines,
        expected.map(|(line, words)| (line, words.to_owned()))
    );
}

/// Both documents count the lines of the driver in the crate documentation.
#[test]
fn the_documented_driver_has_as_many_lines_as_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect(path);
    let library = read("crates/driver/src/lib.rs");
    let driver = library.split("//! ```").nth(1).expect("an example");
    let lines = driver
        .lines()
        .skip(1)
        .filter(|line| line.starts_with("//!"));
    let expected = format!("a driver in {} lines", lines.count());
    let readme = read("README.md").replace('\n', " ");
    let guide = read("docs/drivers.md").replace("complete driver", "driver");
    assert!(readme.contains(&expected), "README.md: {expected}");
    assert!(guide.contains(&expected), "docs/drivers.md: {expected}");
}

#[test]
fn every_command_of_the_documents_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    documents(&root, ".md", &mut files);
    documents(&root.join("examples"), ".yaml", &mut files);
    files.sort();
    let mut texts: Vec<(String, String)> = files
        .iter()
        .map(|file| {
            let shown = file
                .strip_prefix(&root)
                .unwrap_or(file)
                .display()
                .to_string();
            let text = fs::read_to_string(file).expect("a document");
            match shown.ends_with(".yaml") {
                true => (shown, comments(&text)),
                false => (shown, text),
            }
        })
        .collect();
    let mut examples = Vec::new();
    help(&crate::Cli::command(), &mut examples);
    texts.push(("the examples of --help".to_owned(), examples.join("\n")));
    let (mut count, mut findings) = (0, String::new());
    for (file, text) in &texts {
        for command in commands(text) {
            count += 1;
            if let Some(why) = wrong(&command) {
                let words = command.words.join(" ");
                findings += &format!("{file}:{}: {words}\n    {why}\n", command.line);
            }
        }
    }
    assert!(findings.is_empty(), "{findings}");
    assert!(
        count > 200,
        "{count} commands were found in {} files",
        files.len()
    );
}
