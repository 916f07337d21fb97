//! Flags of `allot up` in a file: YAML with the flags' own names.
//!
//! The file is converted to arguments after those of the command line, so that values are parsed and validated in one
//! place. The command line takes precedence.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use allot_apimachinery::suggest;
use anyhow::{Context as _, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Largest file.
const LARGEST: u64 = 1 << 20;

/// Flags that have no meaning in a file.
const ELSEWHERE: [&str; 3] = ["config", "detached", "help"];

/// The arguments followed by those of a file for `allot up`.
///
/// # Errors
/// The file cannot be read, or contains an unknown flag.
pub fn expand(
    mut command: Command,
    arguments: &[OsString],
    file: &Path,
) -> anyhow::Result<Vec<OsString>> {
    let shown = file.display();
    let read = || -> anyhow::Result<String> {
        let length = std::fs::metadata(file)?.len();
        anyhow::ensure!(length <= LARGEST, "longer than {LARGEST} bytes");
        Ok(std::fs::read_to_string(file)?)
    };
    let text = read().with_context(|| format!("cannot read the configuration {shown}"))?;
    command.build();
    let matches = command.clone().get_matches_from(arguments);
    let up = command.find_subcommand("up").context("no command up")?;
    let given = matches.subcommand_matches("up").context("no command up")?;
    let mut all = arguments.to_vec();
    all.extend(flags(&text, up, given).with_context(|| shown.to_string())?);
    Ok(all)
}

/// The content of a document as arguments.
fn flags(text: &str, up: &Command, given: &ArgMatches) -> anyhow::Result<Vec<OsString>> {
    let file: Option<BTreeMap<String, Entry>> = serde_saphyr::from_str(text)?;
    let mut all = Vec::new();
    for (name, entry) in file.unwrap_or_default() {
        let arg = up
            .get_arguments()
            .find(|arg| arg.get_long() == Some(&name))
            .filter(|_| !ELSEWHERE.contains(&name.as_str()));
        let Some(arg) = arg else {
            let names = up.get_arguments().filter_map(Arg::get_long);
            let names = names.filter(|known| !ELSEWHERE.contains(known));
            bail!(
                "{name}: `allot up` has no flag of this name{}",
                suggest::hint(&name, names)
            );
        };
        if given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine) {
            continue;
        }
        for value in values(arg, entry).with_context(|| name.clone())? {
            all.push(match value {
                Some(value) => format!("--{name}={value}").into(),
                None => format!("--{name}").into(),
            });
        }
    }
    Ok(all)
}

/// The values of a flag, one for each occurrence; `None` for a flag without a value.
fn values(arg: &Arg, entry: Entry) -> anyhow::Result<Vec<Option<String>>> {
    let many = arg.get_value_delimiter().is_some() || matches!(arg.get_action(), ArgAction::Append);
    Ok(match (entry, arg.get_action()) {
        (Entry::One(value), ArgAction::SetTrue) => match value.as_str() {
            "true" => vec![None],
            "false" => Vec::new(),
            other => bail!("{other:?} is neither true nor false"),
        },
        (_, ArgAction::SetTrue) => bail!("it is either true or false"),
        (Entry::One(value), _) => vec![Some(value)],
        (Entry::Many(_) | Entry::Pairs(_), _) if !many => bail!("it has one value"),
        (Entry::Many(values), _) => values.into_iter().map(Some).collect(),
        (Entry::Pairs(pairs), _) => pairs
            .into_iter()
            .map(|(name, value)| Some(format!("{name}={value}")))
            .collect(),
    })
}

/// The value of a name.
#[derive(Debug, PartialEq)]
enum Entry {
    /// One value, as it would be on the command line.
    One(String),
    /// A list of them.
    Many(Vec<String>),
    /// Values by name, such as feature gates.
    Pairs(BTreeMap<String, String>),
}

/// One value. A fraction is refused: 1.30 would be read as 1.3.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Entry::deserialize(deserializer)? {
            Entry::One(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("a list in a list")),
        }
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Entry;

            fn expecting(&self, into: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                into.write_str("a value, a list of values, or values by name")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Entry, E> {
                Ok(Entry::One(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Entry, E> {
                Ok(Entry::One(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Entry, E> {
                Ok(Entry::One(value.to_string()))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Entry, E> {
                Err(E::custom(format!(
                    "a number with a fraction ({value}): write it in quotes, such as \"1.30\""
                )))
            }

            fn visit_str<E>(self, value: &str) -> Result<Entry, E> {
                Ok(Entry::One(value.to_owned()))
            }

            fn visit_unit<E: Error>(self) -> Result<Entry, E> {
                Err(E::custom("no value"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entry, A::Error> {
                let mut all = Vec::new();
                while let Some(Scalar(value)) = list.next_element()? {
                    all.push(value);
                }
                Ok(Entry::Many(all))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((name, Scalar(value))) = map.next_entry()? {
                    all.insert(name, value);
                }
                Ok(Entry::Pairs(all))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests;
