//! The driver's command line: words, environment and placeholders.

use std::path::Path;

/// Placeholders and their values.
pub const PLACEHOLDERS: [(&str, &str); 8] = [
    (
        "kubeconfig",
        "file with the address and credentials of the API server",
    ),
    ("node", "name of the Node object"),
    ("kubelet", "root directory of the kubelet"),
    (
        "plugins",
        "directory in which drivers have a directory of their own (`plugins` of the kubelet)",
    ),
    (
        "registry",
        "directory of the registration sockets (`plugins_registry` of the kubelet)",
    ),
    ("cdi", "directory of CDI files"),
    (
        "scratch",
        "a directory that is kept while the driver is restarted",
    ),
    (
        "instance",
        "UID of the driver's pod: it stays when the driver is restarted, and a second instance has another one",
    ),
];

/// A command line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No command.
    #[error("the command is empty")]
    Empty,
    /// A quotation without an end.
    #[error("the command has a quotation mark {0} without its end")]
    Quote(char),
    /// An unbalanced brace.
    #[error("the command has a single {0}: write {0}{0} for the character itself")]
    Brace(char),
    /// A placeholder that does not exist.
    #[error("the command has the unknown placeholder {{{0}}}: known are {names}", names = names())]
    Unknown(String),
}

fn names() -> String {
    PLACEHOLDERS
        .map(|(name, _)| format!("{{{name}}}"))
        .join(", ")
}

/// The values of the placeholders.
#[derive(Debug, Clone)]
pub(crate) struct CommandPaths<'a> {
    pub(crate) kubeconfig: &'a Path,
    pub(crate) node: &'a str,
    pub(crate) kubelet: &'a Path,
    pub(crate) plugins: &'a Path,
    pub(crate) registry: &'a Path,
    pub(crate) cdi: &'a Path,
    pub(crate) scratch: &'a Path,
    pub(crate) instance: &'a str,
}

impl CommandPaths<'_> {
    fn get(&self, name: &str) -> String {
        let path = |path: &Path| path.display().to_string();
        match name {
            "kubeconfig" => path(self.kubeconfig),
            "node" => self.node.to_owned(),
            "kubelet" => path(self.kubelet),
            "plugins" => path(self.plugins),
            "registry" => path(self.registry),
            "cdi" => path(self.cdi),
            "scratch" => path(self.scratch),
            _ => self.instance.to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(String),
}

type Word = Vec<Piece>;

/// A command line, split as a shell does it: blanks separate words, `'…'` and `"…"` keep them together, `\` quotes the
/// next character. Words of the form `NAME=value` before the program become its environment. There is no other
/// expansion: for a pipe or a variable, run `sh -c '…'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    env: Vec<(String, Word)>,
    words: Vec<Word>,
}

/// A command line without placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) env: Vec<(String, String)>,
    pub(crate) words: Vec<String>,
}

impl Command {
    /// Reads a command line.
    ///
    /// # Errors
    /// No program, an open quotation, an unknown placeholder.
    pub fn parse(text: &str) -> Result<Self, CommandError> {
        let mut words = split(text)?.into_iter().peekable();
        let mut env = Vec::new();
        while let Some((name, value)) = words.peek().and_then(|word| variable(word)) {
            env.push((name, pieces(&value)?));
            words.next();
        }
        let words = words
            .map(|word| pieces(&word))
            .collect::<Result<Vec<_>, _>>()?;
        match words.is_empty() {
            true => Err(CommandError::Empty),
            false => Ok(Self { env, words }),
        }
    }

    pub(crate) fn fill(&self, places: &CommandPaths<'_>) -> Filled {
        let word = |word: &Word| {
            let piece = |piece: &Piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Place(name) => places.get(name),
            };
            word.iter().map(piece).collect::<String>()
        };
        Filled {
            env: self
                .env
                .iter()
                .map(|(name, value)| (name.clone(), word(value)))
                .collect(),
            words: self.words.iter().map(word).collect(),
        }
    }
}

fn split(text: &str) -> Result<Vec<String>, CommandError> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        None => return Err(CommandError::Quote(c)),
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => word.extend(characters.next()),
                        Some(other) => word.push(other),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// The parts of `NAME=value`.
fn variable(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let first = name.chars().next()?;
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (fits && !first.is_ascii_digit()).then(|| (name.to_owned(), value.to_owned()))
}

fn pieces(word: &str) -> Result<Word, CommandError> {
    let (mut pieces, mut text) = (Vec::new(), String::new());
    let mut characters = word.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '{' | '}' if characters.peek() == Some(&c) => {
                characters.next();
                text.push(c);
            }
            '{' => {
                let mut name = String::new();
                loop {
                    match characters.next() {
                        None => return Err(CommandError::Brace('{')),
                        Some('}') => break,
                        Some(c) => name.push(c),
                    }
                }
                if !PLACEHOLDERS.iter().any(|(known, _)| *known == name) {
                    return Err(CommandError::Unknown(name));
                }
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Place(name));
            }
            '}' => return Err(CommandError::Brace('}')),
            c => text.push(c),
        }
    }
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The environment and the words of a command.
    type Parts<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

    fn check(text: &str, expected: Result<Parts<'_>, CommandError>) {
        let path = Path::new("/r");
        let places = CommandPaths {
            kubeconfig: Path::new("/k"),
            node: "n1",
            kubelet: path,
            plugins: path,
            registry: path,
            cdi: path,
            scratch: path,
            instance: "uid",
        };
        let got = Command::parse(text).map(|command| command.fill(&places));
        let owned = |(env, words): Parts<'_>| Filled {
            env: env
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            words: words.iter().map(|word| (*word).into()).collect(),
        };
        assert_eq!(got, expected.map(owned), "{text}");
    }

    #[test]
    fn words_quotes_environment_and_placeholders() {
        check(
            "./d --kc={kubeconfig} {node}",
            Ok((&[], &["./d", "--kc=/k", "n1"])),
        );
        check(
            "A=1 B='x y' d C=2",
            Ok((&[("A", "1"), ("B", "x y")], &["d", "C=2"])),
        );
        check(
            r#"d "a \" b" '' \ x"#,
            Ok((&[], &["d", "a \" b", "", " x"])),
        );
        check(
            "NODE={node} d '{{a}}'",
            Ok((&[("NODE", "n1")], &["d", "{a}"])),
        );
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        check("", Err(CommandError::Empty));
        check("A=1", Err(CommandError::Empty));
        check("d 'x", Err(CommandError::Quote('\'')));
        check("d {nodes}", Err(CommandError::Unknown("nodes".into())));
        check("d {node", Err(CommandError::Brace('{')));
        check("d node}", Err(CommandError::Brace('}')));
    }
}
