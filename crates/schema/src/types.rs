//! What is known about every built-in type: fields, their types, and how they encode and merge.
//!
//! The facts are in `data/types.txt` (written by `tools/types.py`) and `data/classic.txt` (by hand). Finding the types
//! in it costs one pass over its lines; a type's own lines are parsed on first use, and all names are slices of the
//! embedded text.
//!
//! The file: `# package` opens a package, a line that starts with a name a type of it, an indented line a field of that type.
//! A type line continues with `gvk=group/version/kind`, `anygroup` (the type is served in every group), `atomic` (its map merges as a
//! whole) and `is=type` (not an object). A field line is `name type` and then any of: `!N` required (N = its place in the published
//! list), `*` pointer, `o` omitempty and `z` omitzero joined to one word, `#N` the protobuf number, `d=` its default as JSON, `t=` its own Go type name,
//! `e=` its known values, joined by `|`, with `_` for blanks,
//! `set`, `atomic` or `map=keys` for lists (and `atomic` or `granular` for objects), `patch=strategy:key` for strategic merge patch.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde_json::Value;

pub(crate) mod messages;
mod parse;

/// A built-in struct type.
#[derive(Debug)]
pub struct Struct {
    /// The name of the type in the published OpenAPI documents, such as `io.k8s.api.core.v1.Pod`.
    pub name: &'static str,
    /// Its fields in alphabetical order.
    pub fields: Vec<Field>,
    /// Server-side apply owns and replaces the object as a whole.
    pub atomic: bool,
    /// Group, version and kind if the type is a kind.
    pub gvk: Option<(&'static str, &'static str, &'static str)>,
    /// The type is part of every API group (DeleteOptions and its like).
    pub any_group: bool,
    /// Set where the type is not an object but a name for something else.
    pub alias: Option<Type>,
    /// The names of raw fields in the type and below it, found at first use.
    pub(crate) raw_names: OnceLock<Vec<&'static str>>,
    /// Its message in protobuf, laid out at first use.
    message: OnceLock<messages::Message>,
    /// Places in `fields` of those that are always written.
    always: Vec<u16>,
    /// Positions in `fields` by name: looked up for every key of every object.
    places: FxHashMap<&'static str, u16>,
}

/// A field of a type: its JSON name, protobuf number and type, and how patches and server-side apply merge it.
#[derive(Debug)]
pub struct Field {
    /// The JSON name.
    pub name: &'static str,
    /// What it holds.
    pub ty: Type,
    /// Listed as required in the published schema, at this place of the list.
    pub required: Option<u16>,
    /// A Go pointer: a zero value that is present stays present.
    pub pointer: bool,
    /// The encoder leaves out a zero value (not a struct).
    pub omit_empty: bool,
    /// The encoder leaves out a zero struct as well.
    pub omit_zero: bool,
    /// The field's number in protobuf; 0 where it has none.
    pub proto: u16,
    /// The default that the published schema names; it completes the keys of associative lists.
    pub default: Option<Value>,
    /// The values that the published schema names, of the field or of its elements; empty where it names none.
    pub values: Vec<String>,
    /// The name that Go gives to the type where it is more than a plain string or number.
    pub go_type: Option<&'static str>,
    /// How server-side apply merges the list or object.
    pub topology: Topology,
    /// How a strategic merge patch merges it.
    pub patch: Patch,
}

impl Field {
    /// Whether the encoder writes the field even if it is unset.
    pub(crate) fn is_always_written(&self) -> bool {
        if self.pointer {
            return !self.omit_empty;
        }
        if self.omit_zero {
            return false;
        }
        // Raw JSON also represents pointers and interfaces, which the encoder omits.
        self.ty.is_struct() || !self.omit_empty
    }
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// A string.
    String,
    /// A boolean.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating point number.
    Double,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A time with seconds (RFC 3339), or null.
    Time,
    /// A time with microseconds.
    MicroTime,
    /// A Go duration such as `1h30m`.
    Duration,
    /// A quantity; a number in JSON becomes a string.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// An object of another API, kept as it is and owned as a whole.
    Raw,
    /// Any JSON, kept as it is.
    Json,
    /// A boolean or a JSON schema (of a CRD).
    SchemaOrBool,
    /// A JSON schema or a list of them (of a CRD).
    SchemaOrArray,
    /// A list.
    List(Box<Type>),
    /// A map with string keys.
    Map(Box<Type>),
    /// A struct.
    Struct(StructId),
}

impl Type {
    /// Whether the Go type is a struct, whose zero value the encoder writes unless the field is a pointer.
    pub(crate) fn is_struct(&self) -> bool {
        matches!(
            self,
            Type::Struct(_)
                | Type::Time
                | Type::MicroTime
                | Type::Quantity
                | Type::IntOrString
                | Type::Duration
        )
    }
}

/// How server-side apply treats a list or an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Topology {
    /// Lists are atomic and objects granular, as nothing is said.
    #[default]
    Unset,
    /// Owned and replaced as a whole.
    Atomic,
    /// Merged field by field, though the type of the field is atomic elsewhere.
    Granular,
    /// A list of distinct scalars.
    Set,
    /// A list of objects told apart by these fields.
    Map(Vec<&'static str>),
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// Lists are merged element by element instead of replaced.
    pub merge: bool,
    /// Objects are replaced instead of merged.
    pub replace: bool,
    /// Objects lose the keys that the patch's `$retainKeys` does not name.
    pub retain_keys: bool,
    /// The field that tells the elements of a merged list of objects apart.
    pub merge_key: Option<&'static str>,
}

/// A struct type's place in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StructId(u16);

impl StructId {
    /// The type itself, parsed at first use.
    pub fn get(self) -> &'static Struct {
        let entry = &registry().entries[self.0 as usize];
        entry
            .parsed
            .get_or_init(|| parse::structure(entry.package, entry.text))
    }
}

impl Struct {
    /// The field of that JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.places
            .get(name)
            .map(|place| &self.fields[usize::from(*place)])
    }

    /// The fields that the encoder writes even where nothing was given for them.
    pub(crate) fn always(&self) -> impl Iterator<Item = &Field> {
        self.always.iter().map(|at| &self.fields[usize::from(*at)])
    }

    /// The type's message in protobuf.
    pub(crate) fn message(&'static self) -> &'static messages::Message {
        self.message.get_or_init(|| messages::Message::new(self))
    }

    /// The type's simple name, such as `Pod`.
    pub fn simple_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// The name that Go prints for the type, such as `v1.PodSpec`.
    pub fn go_name(&self) -> &'static str {
        let package = self.name.len() - self.simple_name().len();
        let start = self.name[..package.saturating_sub(1)]
            .rfind('.')
            .map_or(0, |i| i + 1);
        &self.name[start..]
    }
}

struct Entry {
    package: &'static str,
    text: &'static str,
    parsed: OnceLock<Struct>,
}

struct Registry {
    entries: Vec<Entry>,
    by_kind: FxHashMap<(&'static str, &'static str, &'static str), StructId>,
    by_name: FxHashMap<(&'static str, &'static str), StructId>,
}

/// The types of 1.36, and those that earlier releases had.
static SOURCE: &str = concat!(
    include_str!("../data/types.txt"),
    include_str!("../data/classic.txt")
);

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut registry = Registry {
            entries: Vec::with_capacity(1024),
            by_kind: FxHashMap::default(),
            by_name: FxHashMap::default(),
        };
        parse::index(SOURCE, |package, text| {
            // The file is ours and far smaller than the type allows.
            let id = StructId(registry.entries.len() as u16);
            let head = text.lines().next().unwrap_or_default();
            let mut words = head.split(' ');
            if let Some(name) = words.next() {
                registry.by_name.insert((package, name), id);
            }
            for word in words {
                if let Some(gvk) = word.strip_prefix("gvk=") {
                    let mut parts = gvk.split('/');
                    if let (Some(group), Some(version), Some(kind)) =
                        (parts.next(), parts.next(), parts.next())
                    {
                        registry.by_kind.insert((group, version, kind), id);
                    }
                }
            }
            registry.entries.push(Entry {
                package,
                text,
                parsed: OnceLock::new(),
            });
        });
        registry
    })
}

/// The type of a built-in kind; `group` is empty for the core group.
pub fn lookup(group: &str, version: &str, kind: &str) -> Option<&'static Struct> {
    // The table's keys are static, which a borrowed key cannot match; the tables are small enough to compare by value.
    lookup_id(group, version, kind).map(StructId::get)
}

/// As [`lookup`], without parsing the type.
pub fn lookup_id(group: &str, version: &str, kind: &str) -> Option<StructId> {
    fn shorten<'a, 'b: 'a>(
        map: &'a FxHashMap<(&'b str, &'b str, &'b str), StructId>,
    ) -> &'a FxHashMap<(&'a str, &'a str, &'a str), StructId> {
        map
    }
    let found = shorten(&registry().by_kind)
        .get(&(group, version, kind))
        .copied();
    found.or_else(|| match kind {
        // The options and Status types belong to every group but stand in one package.
        "DeleteOptions" | "CreateOptions" | "UpdateOptions" | "PatchOptions" | "Status"
        | "WatchEvent" => registry()
            .by_name
            .get(&("io.k8s.apimachinery.pkg.apis.meta.v1", kind_static(kind)))
            .copied(),
        _ => None,
    })
}

fn kind_static(kind: &str) -> &'static str {
    match kind {
        "DeleteOptions" => "DeleteOptions",
        "CreateOptions" => "CreateOptions",
        "UpdateOptions" => "UpdateOptions",
        "PatchOptions" => "PatchOptions",
        "WatchEvent" => "WatchEvent",
        _ => "Status",
    }
}

/// The type of that full OpenAPI name.
pub fn by_name(name: &str) -> Option<StructId> {
    let (package, simple) = name.rsplit_once('.')?;
    registry()
        .by_name
        .iter()
        .find(|((p, s), _)| *p == package && *s == simple)
        .map(|(_, id)| *id)
}

/// `ObjectMeta` of meta/v1.
pub fn object_meta() -> &'static Struct {
    static META: OnceLock<StructId> = OnceLock::new();
    META.get_or_init(|| {
        registry()
            .by_name
            .get(&("io.k8s.apimachinery.pkg.apis.meta.v1", "ObjectMeta"))
            .copied()
            .unwrap_or(StructId(0))
    })
    .get()
}

/// All types, in the file's order.
pub fn all() -> impl Iterator<Item = StructId> {
    (0..registry().entries.len() as u16).map(StructId)
}

fn resolve(package: &'static str, simple: &'static str) -> Option<StructId> {
    registry().by_name.get(&(package, simple)).copied()
}

#[cfg(test)]
mod tests;
