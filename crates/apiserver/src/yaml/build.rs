//! The value that the events of a YAML document mean, as far as JSON can say it, with the errors of go-yaml v2.

use std::collections::{HashMap, HashSet};

use allot_apimachinery::quote::quote;
use allot_apimachinery::strconv::format_float;
use libyaml_safer::{Event, EventData};
use serde_json::{Map, Value};

use super::go::excerpt;
use super::resolve::{Scalar, resolve};

/// Levels of maps and lists; the decoder of JSON takes fewer. Upstream stops at 10 000.
const MAX_DEPTH: usize = 256;
/// What aliases and the values that they repeat take at most, in bytes. An element of two bytes can become an object with
/// many fields, and what aliases repeat does not count for the memory of decoding.
const MAX_ALIASED: usize = 1 << 20;
/// Repeated keys that are named at most.
pub(super) const MAX_REPEATED: usize = 64;
/// What a value takes beside its text, in bytes.
const NODE: usize = 32;

/// The first document of a text; null if there is none. Of a repeated key the last value counts.
#[derive(Debug, PartialEq)]
pub(super) struct Document {
    pub(super) value: Value,
    /// A line about each repeated key.
    pub(super) repeated: Vec<String>,
}

/// A value with what it costs to repeat it.
#[derive(Clone)]
struct Node {
    value: Value,
    count: usize,
    size: usize,
}

/// A map or a list that is not complete.
struct Frame {
    content: Content,
    anchor: Option<String>,
    line: u64,
    count: usize,
    size: usize,
}

enum Content {
    List(Vec<Value>),
    Map(Members),
}

#[derive(Default)]
struct Members {
    members: Map<String, Value>,
    /// The keys as Go shows them, which tell numbers and texts apart.
    shown: HashSet<String>,
    /// The key whose value comes next.
    key: Option<Key>,
}

impl Members {
    /// Sets a member; `repeated` gets a line if its key is there already.
    fn set(
        &mut self,
        (name, shown): (String, String),
        value: Value,
        line: u64,
        repeated: &mut Vec<String>,
    ) {
        if self.shown.contains(&shown) {
            if repeated.len() < MAX_REPEATED {
                repeated.push(format!("  line {line}: key {shown} already set in map"));
            }
        } else {
            self.shown.insert(shown);
        }
        self.members.insert(name, value);
    }
}

enum Key {
    /// The member, and how Go shows its key.
    Member(String, String),
    /// The members of the value are members of this map.
    Merge,
    /// JSON has no such key: the error about it, which shows the value as well. None if the key is an error of YAML.
    Unusable(Option<String>),
}

/// What events have built.
#[derive(Default)]
pub(super) struct Reader {
    open: Vec<Frame>,
    /// None of an anchor whose value is not complete.
    anchors: HashMap<String, Option<Node>>,
    root: Option<Value>,
    repeated: Vec<String>,
    /// The first error about values: those of the syntax come before.
    mistake: Option<String>,
    /// The first error about values that JSON does not have: those of YAML come before.
    beyond_json: Option<String>,
    count: usize,
    aliased: usize,
    aliased_size: usize,
}

impl Reader {
    /// Takes an event; true if it is the last one.
    ///
    /// # Errors
    /// Those that upstream finds while it parses, before any other.
    pub(super) fn take(&mut self, event: Event) -> Result<bool, String> {
        let line = event.start_mark.line + 1;
        match event.data {
            EventData::Scalar {
                anchor,
                tag,
                value,
                plain_implicit,
                ..
            } => {
                self.scalar(anchor, tag.as_deref(), value, plain_implicit, line);
            }
            EventData::Alias { anchor } => self.alias(&anchor, line)?,
            EventData::SequenceStart { anchor, .. } => {
                self.open(anchor, Content::List(Vec::new()), line)?
            }
            EventData::MappingStart { anchor, .. } => {
                self.open(anchor, Content::Map(Members::default()), line)?;
            }
            EventData::SequenceEnd | EventData::MappingEnd => self.close(),
            EventData::DocumentEnd { .. } | EventData::StreamEnd => return Ok(true),
            EventData::StreamStart { .. } | EventData::DocumentStart { .. } => {}
        }
        Ok(false)
    }

    /// The document that the events describe.
    ///
    /// # Errors
    /// The first error about values: of YAML before of JSON.
    pub(super) fn finish(self) -> Result<Document, String> {
        if let Some(why) = self.mistake {
            return Err(format!("yaml: {why}"));
        }
        if let Some(why) = self.beyond_json {
            return Err(why);
        }
        Ok(Document {
            value: self.root.unwrap_or_default(),
            repeated: self.repeated,
        })
    }

    fn mistake(&mut self, why: impl FnOnce() -> String) {
        self.mistake.get_or_insert_with(why);
    }

    fn expects_key(&self) -> bool {
        let frame = self.open.last();
        frame.is_some_and(|frame| matches!(&frame.content, Content::Map(map) if map.key.is_none()))
    }

    fn scalar(
        &mut self,
        anchor: Option<String>,
        tag: Option<&str>,
        text: String,
        implicit: bool,
        line: u64,
    ) {
        self.count += 1;
        let is_key = self.expects_key();
        let is_merge = tag == Some("tag:yaml.org,2002:merge") || implicit;
        if is_key && text == "<<" && is_merge {
            return self.set_key(Key::Merge);
        }
        let size = text.len() + NODE;
        let scalar = resolve(tag, implicit, text).unwrap_or_else(|why| {
            self.mistake(|| why);
            Scalar::Null
        });
        if let (true, None) = (is_key, &anchor) {
            return self.set_key(member(scalar));
        }
        let value = self.json(&scalar);
        let node = Node {
            value,
            count: 1,
            size,
        };
        if is_key {
            self.remember(anchor, node);
            return self.set_key(member(scalar));
        }
        self.add(anchor, node, true, line);
    }

    /// The value in JSON, which has neither infinities nor what is no number.
    fn json(&mut self, scalar: &Scalar) -> Value {
        match scalar {
            Scalar::Null => Value::Null,
            Scalar::Bool(is) => Value::Bool(*is),
            Scalar::Text(text) => Value::String(text.clone()),
            Scalar::Int(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ => Value::Null,
            },
            // As JSON that Go writes, in which whole numbers have no point.
            Scalar::Float(number)
                if number.fract() == 0.0
                    && number.abs() < 9e15
                    && !(*number == 0.0 && number.is_sign_negative()) =>
            {
                Value::from(*number as i64)
            }
            Scalar::Float(number) => serde_json::Number::from_f64(*number).map_or_else(
                || {
                    let why = format!("json: unsupported value: {}", format_float(*number));
                    self.beyond_json.get_or_insert(why);
                    Value::Null
                },
                Value::Number,
            ),
        }
    }

    fn set_key(&mut self, found: Key) {
        if let Some(Frame {
            content: Content::Map(map),
            ..
        }) = self.open.last_mut()
        {
            map.key = Some(found);
        }
    }

    fn alias(&mut self, name: &str, line: u64) -> Result<(), String> {
        self.count += 1;
        let node = match self.anchors.get(name) {
            None => return Err(format!("unknown anchor '{name}' referenced")),
            Some(None) => {
                self.mistake(|| format!("anchor '{name}' value contains itself"));
                Node {
                    value: Value::Null,
                    count: 0,
                    size: 0,
                }
            }
            Some(Some(node)) => {
                self.aliased_size += node.size;
                if self.aliased_size > MAX_ALIASED {
                    return Err("document contains excessive aliasing".to_owned());
                }
                node.clone()
            }
        };
        self.count += node.count;
        self.aliased += node.count;
        if self.aliased > 100
            && self.count > 1000
            && self.aliased as f64 / self.count as f64 > allowed_ratio(self.count)
        {
            self.mistake(|| "document contains excessive aliasing".to_owned());
        }
        self.add(None, node, false, line);
        Ok(())
    }

    fn open(&mut self, anchor: Option<String>, content: Content, line: u64) -> Result<(), String> {
        if self.open.len() == MAX_DEPTH {
            return Err(format!("exceeded max depth of {MAX_DEPTH}"));
        }
        if let Some(name) = &anchor {
            self.anchors.insert(name.clone(), None);
        }
        self.count += 1;
        self.open.push(Frame {
            content,
            anchor,
            line,
            count: 1,
            size: NODE,
        });
        Ok(())
    }

    fn close(&mut self) {
        // The parser closes what it has opened.
        let Some(Frame {
            content,
            anchor,
            line,
            count,
            size,
        }) = self.open.pop()
        else {
            return;
        };
        let value = match content {
            Content::List(items) => Value::Array(items),
            Content::Map(map) => Value::Object(map.members),
        };
        self.add(anchor, Node { value, count, size }, false, line);
    }

    /// Keeps the value of an anchor.
    fn remember(&mut self, anchor: Option<String>, node: Node) {
        if let Some(name) = anchor {
            self.aliased_size += node.size;
            let kept = (self.aliased_size <= MAX_ALIASED).then_some(node);
            if kept.is_none() {
                self.mistake(|| "document contains excessive aliasing".to_owned());
            }
            self.anchors.insert(name, kept);
        }
    }

    /// Adds a complete value to what is open.
    fn add(&mut self, anchor: Option<String>, node: Node, is_scalar: bool, line: u64) {
        if anchor.is_some() {
            self.remember(anchor, node.clone());
        }
        let Node { value, count, size } = node;
        let Some(frame) = self.open.last_mut() else {
            self.root = Some(value);
            return;
        };
        frame.count += count;
        frame.size += size;
        let map = match &mut frame.content {
            Content::List(items) => return items.push(value),
            Content::Map(map) => map,
        };
        match map.key.take() {
            // Scalars are no values here but keys, unless an alias repeats them.
            None => {
                let found = match value {
                    Value::Array(_) | Value::Object(_) => {
                        self.mistake(|| format!("invalid map key: {}", excerpt(&value)));
                        Key::Unusable(None)
                    }
                    Value::String(text) => Key::Member(text.clone(), quote(&text)),
                    Value::Null => member(Scalar::Null),
                    other => Key::Member(other.to_string(), other.to_string()),
                };
                self.set_key(found);
            }
            Some(Key::Unusable(None)) => {}
            Some(Key::Unusable(Some(why))) => {
                let shown = match value {
                    Value::Null => "<nil>".to_owned(),
                    value => excerpt(&value),
                };
                let why = || format!("{why}, value: {shown}");
                self.beyond_json.get_or_insert_with(why);
            }
            Some(Key::Member(name, shown)) => {
                frame.size += name.len() + NODE;
                map.set((name, shown), value, line, &mut self.repeated);
            }
            Some(Key::Merge) => {
                let Some(merged) = merged(value, is_scalar) else {
                    let why = "map merge requires map or sequence of maps as the value";
                    return self.mistake(|| why.to_owned());
                };
                for (name, value) in merged.into_iter().flatten() {
                    let shown = quote(&name);
                    map.set((name, shown), value, line, &mut self.repeated);
                }
            }
        }
    }
}

/// The maps whose members a map takes over, in the order in which they are set; none if the value is no map and no list of
/// maps.
fn merged(value: Value, is_scalar: bool) -> Option<Vec<Map<String, Value>>> {
    match value {
        Value::Object(merged) => Some(vec![merged]),
        // Those that come first take precedence.
        Value::Array(items) if !is_scalar => {
            let maps = items.into_iter().rev().map(|item| match item {
                Value::Object(merged) => Some(merged),
                _ => None,
            });
            maps.collect()
        }
        _ => None,
    }
}

/// The name of a member: upstream makes names of all scalars but null.
fn member(scalar: Scalar) -> Key {
    match scalar {
        Scalar::Text(text) => {
            let shown = quote(&text);
            Key::Member(text, shown)
        }
        Scalar::Bool(is) => Key::Member(is.to_string(), is.to_string()),
        Scalar::Int(number) if i64::try_from(number).is_ok() => {
            Key::Member(number.to_string(), number.to_string())
        }
        Scalar::Int(number) => {
            let why = format!("unsupported map key of type: uint64, key: {number:#x}");
            Key::Unusable(Some(why))
        }
        Scalar::Float(number) => {
            let name = match () {
                () if number.is_nan() => ".nan".to_owned(),
                () if number == f64::INFINITY => ".inf".to_owned(),
                () if number == f64::NEG_INFINITY => "-.inf".to_owned(),
                // Upstream prints it as a float of 32 bits.
                () => format_float(number as f32),
            };
            Key::Member(name, format_float(number))
        }
        Scalar::Null => {
            let why = "unsupported map key of type: %!s(<nil>), key: <nil>";
            Key::Unusable(Some(why.to_owned()))
        }
    }
}

/// Which part of all values may come from aliases, by the number of values, as upstream.
fn allowed_ratio(count: usize) -> f64 {
    const LOW: f64 = 400_000.0;
    const HIGH: f64 = 4_000_000.0;
    let above = (count as f64 - LOW) / (HIGH - LOW);
    0.99 - 0.89 * above.clamp(0.0, 1.0)
}
