//! The document of an extension API server in the older format (`/openapi/v2`), reduced to what it may say: the paths of its
//! own group version and the definitions that they use.
//!
//! It becomes a part of the document of all groups. One wrong value, and clients could read no group's schemas any more: what
//! their parsers refuse (those of kubectl are the strictest) refuses the document or is left out of it, and names of kinds
//! that are not of the group version are dropped.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use self::shape::{
    BODY, OPERATION, PARAMETER, PATH, PLAIN_TYPES, REFERENCE, RESPONSE, SCHEMA, Shape, Table,
};

mod shape;

/// The member of definitions and operations that names kinds.
pub(super) const KINDS: &str = "x-kubernetes-group-version-kind";
/// What a reference to a definition begins with.
pub(super) const DEFINITIONS: &str = "#/definitions/";
pub(super) const PARAMETERS: &str = "#/parameters/";
/// The most bytes of a reduced document, roughly.
const MOST: usize = 4 << 20;
/// What a value counts beside its text.
const COST: usize = 16;
/// The most bytes of a name or a path.
const MAX_NAME: usize = 1024;
/// The most levels of one definition or operation: documents of all groups stay below what clients read.
const MAX_DEPTH: usize = 64;
/// The most media types of an operation.
const MAX_MEDIA: usize = 8;

type Object = Map<String, Value>;
type Result<T> = std::result::Result<T, Refused>;

/// Why a document is not used.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub(crate) enum Refused {
    /// Also one that nests deeper than the parser goes.
    #[error("the document is not JSON, or nests too deeply")]
    Syntax,
    #[error("{0:?} in the document has another type than in the format")]
    Type(&'static str),
    #[error("the document refers to something that it does not have")]
    Reference,
    #[error("the document is too large")]
    Size,
    #[error("a definition or operation of the document nests too deeply")]
    Depth,
    #[error("the document has characters that clients do not read")]
    Characters,
}

/// The paths below a group version with the definitions that they use, as `{"paths": …, "definitions": …}`.
///
/// # Errors
/// See [`Refused`].
pub(crate) fn reduce(bytes: &[u8], group: &str, version: &str) -> Result<Value> {
    let document: Value = serde_json::from_slice(bytes).map_err(|_| Refused::Syntax)?;
    let own = |kind: &&Value| kind["group"] == group && kind["version"] == version;
    let mut reader = Reader {
        group,
        version,
        parameters: object(&document, "parameters")?,
        left: MOST,
        wanted: BTreeSet::new(),
    };
    let root = format!("/apis/{group}/{version}/");
    let mut paths = Object::new();
    for (path, item) in object(&document, "paths")?.into_iter().flatten() {
        if path.starts_with(&root) {
            let path = reader.name(path)?;
            paths.insert(path, reader.object(item, "paths", PATH, 0)?.into());
        }
    }
    let known = object(&document, "definitions")?;
    for (name, definition) in known.into_iter().flatten() {
        let mut kinds = definition[KINDS].as_array().into_iter().flatten();
        if kinds.any(|kind| own(&kind)) {
            reader.wanted.insert(name.clone());
        }
    }
    let mut definitions = Object::new();
    while let Some(name) = reader.wanted.pop_first() {
        if definitions.contains_key(&name) {
            continue;
        }
        let found = known.and_then(|known| known.get(&name));
        let found = found.ok_or(Refused::Reference)?;
        let mut made = reader.schema(found, 0)?;
        let kinds: Vec<Value> = found[KINDS]
            .as_array()
            .into_iter()
            .flatten()
            .filter(own)
            .filter_map(|kind| reader.kind(kind).transpose())
            .collect::<Result<_>>()?;
        if !kinds.is_empty() {
            made[KINDS] = kinds.into();
        }
        definitions.insert(reader.name(&name)?, made);
    }
    Ok(json!({"paths": paths, "definitions": definitions}))
}

/// An object in an object, if there is one.
fn object<'a>(of: &'a Value, key: &'static str) -> Result<Option<&'a Object>> {
    match of.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(found)) => Ok(Some(found)),
        Some(_) => Err(Refused::Type(key)),
    }
}

/// Whether parsers of YAML, with which clients read JSON as well, accept the character.
fn is_read(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' => true,
        '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        other => !other.is_control(),
    }
}

struct Reader<'a> {
    group: &'a str,
    version: &'a str,
    /// Parameters that operations refer to; they are written out where they are used.
    parameters: Option<&'a Object>,
    /// The bytes that are left.
    left: usize,
    /// The definitions that are referred to, and have not been looked at.
    wanted: BTreeSet<String>,
}

impl Reader<'_> {
    fn spend(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(bytes + COST).ok_or(Refused::Size)?;
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<String> {
        self.spend(text.len())?;
        match text.chars().all(is_read) {
            true => Ok(text.to_owned()),
            false => Err(Refused::Characters),
        }
    }

    fn name(&mut self, name: &str) -> Result<String> {
        match name.len() {
            0..=MAX_NAME => self.text(name),
            _ => Err(Refused::Size),
        }
    }

    /// The members of a table, and those that begin with `x-`.
    fn object(
        &mut self,
        from: &Value,
        of: &'static str,
        table: Table,
        depth: usize,
    ) -> Result<Object> {
        if depth > MAX_DEPTH {
            return Err(Refused::Depth);
        }
        let from = from.as_object().ok_or(Refused::Type(of))?;
        let mut made = Object::new();
        for (key, shape) in table {
            if let Some(value) = from.get(*key).filter(|value| !value.is_null()) {
                self.spend(key.len())?;
                let value = self.member(value, key, *shape, depth + 1)?;
                made.insert((*key).to_owned(), value);
            }
        }
        let extensions = from.iter().filter(|(key, _)| key.starts_with("x-"));
        for (key, value) in extensions.filter(|(key, _)| *key != KINDS) {
            let key = self.name(key)?;
            made.insert(key, self.any(value, depth + 1)?);
        }
        Ok(made)
    }

    fn member(
        &mut self,
        value: &Value,
        key: &'static str,
        shape: Shape,
        depth: usize,
    ) -> Result<Value> {
        let wrong = Refused::Type(key);
        let list = || value.as_array().ok_or(wrong);
        Ok(match shape {
            Shape::Text => self.text(value.as_str().ok_or(wrong)?)?.into(),
            Shape::Bool => value.as_bool().ok_or(wrong)?.into(),
            Shape::Whole => value.as_i64().ok_or(wrong)?.into(),
            Shape::Number => match value.is_number() {
                true => value.clone(),
                false => return Err(wrong),
            },
            Shape::Any => self.any(value, depth)?,
            Shape::Texts => self.texts(list()?, wrong)?,
            Shape::Media => self.texts(list()?.get(..MAX_MEDIA).unwrap_or(list()?), wrong)?,
            Shape::Values => self.each(list()?, |reader, one| reader.any(one, depth + 1))?,
            Shape::Schema => self.schema(value, depth)?,
            Shape::Schemas => self.each(list()?, |reader, one| reader.schema(one, depth + 1))?,
            Shape::Properties => self.properties(value, wrong, depth)?,
            Shape::Items => match value {
                Value::Array(several) => match &several[..] {
                    [one] => self.schema(one, depth)?,
                    // A list with another schema at each place: clients read lists of one schema.
                    _ => json!({}),
                },
                one => self.schema(one, depth)?,
            },
            Shape::SchemaOrBool => match value {
                Value::Bool(any) => (*any).into(),
                schema => self.schema(schema, depth)?,
            },
            Shape::Operation => self.operation(value, depth)?,
            Shape::Parameters => {
                self.each(list()?, |reader, one| reader.parameter(one, depth + 1))?
            }
            Shape::Responses => self.responses(value, depth)?,
        })
    }

    fn each(
        &mut self,
        list: &[Value],
        mut read: impl FnMut(&mut Self, &Value) -> Result<Value>,
    ) -> Result<Value> {
        list.iter()
            .map(|one| {
                self.spend(0)?;
                read(self, one)
            })
            .collect()
    }

    fn texts(&mut self, list: &[Value], wrong: Refused) -> Result<Value> {
        self.each(list, |reader, one| {
            Ok(reader.text(one.as_str().ok_or(wrong)?)?.into())
        })
    }

    /// A value of any type.
    fn any(&mut self, value: &Value, depth: usize) -> Result<Value> {
        if depth > MAX_DEPTH {
            return Err(Refused::Depth);
        }
        match value {
            Value::String(text) => Ok(self.text(text)?.into()),
            Value::Array(list) => self.each(list, |reader, one| reader.any(one, depth + 1)),
            Value::Object(members) => {
                let mut made = Object::new();
                for (key, value) in members {
                    let key = self.name(key)?;
                    made.insert(key, self.any(value, depth + 1)?);
                }
                Ok(made.into())
            }
            plain => {
                self.spend(0)?;
                Ok(plain.clone())
            }
        }
    }

    fn properties(&mut self, value: &Value, wrong: Refused, depth: usize) -> Result<Value> {
        let mut made = Object::new();
        for (name, schema) in value.as_object().ok_or(wrong)? {
            let name = self.name(name)?;
            made.insert(name, self.schema(schema, depth + 1)?);
        }
        Ok(made.into())
    }

    /// A schema as clients read it: with a reference and no type, or with one type; a list has one schema for its items.
    fn schema(&mut self, from: &Value, depth: usize) -> Result<Value> {
        match &from["$ref"] {
            Value::Null => {}
            Value::String(empty) if empty.is_empty() => {}
            reference => {
                let reference = reference.as_str().ok_or(Refused::Type("$ref"))?;
                let name = reference.strip_prefix(DEFINITIONS);
                let name = self.name(name.ok_or(Refused::Reference)?)?;
                let mut made = self.object(from, "schema", REFERENCE, depth)?;
                made.insert("$ref".to_owned(), reference.into());
                self.wanted.insert(name);
                return Ok(made.into());
            }
        }
        let mut made = self.object(from, "schema", SCHEMA, depth)?;
        let one = match &from["type"] {
            Value::Null => None,
            Value::String(one) => Some(one.as_str()),
            Value::Array(several) => match &several[..] {
                [Value::String(one)] => Some(one.as_str()),
                _ => None,
            },
            _ => return Err(Refused::Type("type")),
        };
        if let Some(known) = one.filter(|one| shape::TYPES.contains(one)) {
            made.insert("type".to_owned(), known.into());
            if known == "array" {
                made.entry("items").or_insert_with(|| json!({}));
            }
        }
        Ok(made.into())
    }

    fn operation(&mut self, from: &Value, depth: usize) -> Result<Value> {
        let mut made = self.object(from, "operation", OPERATION, depth)?;
        // Without them it is no operation.
        made.entry("responses").or_insert_with(|| json!({}));
        if let Some(kind) = self.kind(&from[KINDS])? {
            made.insert(KINDS.to_owned(), kind);
        }
        Ok(made.into())
    }

    /// The name of a kind, if it is one of the group version.
    fn kind(&mut self, from: &Value) -> Result<Option<Value>> {
        let Some(kind) = from["kind"].as_str() else {
            return Ok(None);
        };
        if from["group"] != self.group || from["version"] != self.version {
            return Ok(None);
        }
        let kind = self.name(kind)?;
        Ok(Some(
            json!({"group": self.group, "kind": kind, "version": self.version}),
        ))
    }

    fn parameter(&mut self, from: &Value, depth: usize) -> Result<Value> {
        let mut from = from;
        if let Some(reference) = from["$ref"].as_str() {
            let name = reference.strip_prefix(PARAMETERS);
            let found = name.and_then(|name| self.parameters?.get(name));
            from = found.ok_or(Refused::Reference)?;
        }
        let is_body = from["in"] == "body";
        let table = if is_body { BODY } else { PARAMETER };
        let mut made = self.object(from, "parameter", table, depth)?;
        let place = made.get("in").and_then(Value::as_str);
        let is_known = matches!(place, Some("path" | "query" | "header" | "body"));
        if !is_known || !made.contains_key("name") || is_body && !made.contains_key("schema") {
            return Err(Refused::Type("parameter"));
        }
        if place == Some("path") {
            made.insert("required".to_owned(), true.into());
        }
        let of_type = made.get("type").and_then(Value::as_str);
        if !is_body && !of_type.is_some_and(|it| PLAIN_TYPES.contains(&it)) {
            made.insert("type".to_owned(), "string".into());
        }
        Ok(made.into())
    }

    fn responses(&mut self, from: &Value, depth: usize) -> Result<Value> {
        let mut made = Object::new();
        for (code, response) in from.as_object().ok_or(Refused::Type("responses"))? {
            if code == "default" || code.parse::<u16>().is_ok() {
                let code = self.name(code)?;
                let mut response = self.object(response, "responses", RESPONSE, depth + 1)?;
                // Without one it is no response.
                response.entry("description").or_insert_with(|| "".into());
                made.insert(code, response.into());
            }
        }
        Ok(made.into())
    }
}

#[cfg(test)]
mod tests;
