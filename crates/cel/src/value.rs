//! Values of expressions.
//!
//! A value borrows from its source (a device, a JSON document, the program's constants) for `'a`, so that reading and
//! comparing parts of an object does not allocate.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use allot_apimachinery::Quantity;

use crate::{semver::Version, types::Type, url::Url};

mod access;
mod collections;
mod constructed;
mod format;
mod json;
mod ops;
mod text;
mod time;

pub use collections::{List, ListSource, Map, MapKey, MapSource};
pub use constructed::{ObjectTypeError, ToJsonError};
pub use format::Format;
pub use time::Timestamp;

pub(crate) use json::decode_base64;
pub(crate) use ops::Fault;
pub(crate) use time::{days_from_civil, parse_duration};

/// A borrowed or shared object.
#[derive(Debug)]
pub enum Handle<'a, T: ?Sized> {
    /// Borrowed.
    Borrowed(&'a T),
    /// Shared.
    Shared(Arc<T>),
}

impl<T: ?Sized> Clone for Handle<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(value) => Self::Borrowed(value),
            Self::Shared(value) => Self::Shared(value.clone()),
        }
    }
}

impl<T: ?Sized> Deref for Handle<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<T: ?Sized> Handle<'_, T> {
    fn borrow(&self) -> Handle<'_, T> {
        Handle::Borrowed(self)
    }
}

/// A value of CEL. What comes from the input is borrowed.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A bool.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    String(Handle<'a, str>),
    /// Bytes.
    Bytes(Handle<'a, [u8]>),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A point in time.
    Timestamp(Timestamp),
    /// A type.
    Type(Arc<Type>),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// A value that may be missing.
    Optional(Option<Arc<Value<'a>>>),
    /// A Kubernetes quantity.
    Quantity(Handle<'a, Quantity>),
    /// A semantic version.
    Version(Handle<'a, Version>),
    /// A value of a library that is used rarely.
    Extension(Arc<Extension>),
}

/// Values of libraries that are used rarely.
#[derive(Debug, Clone, PartialEq)]
pub enum Extension {
    /// A URL.
    Url(Url),
    /// An IP address.
    Ip(std::net::IpAddr),
    /// An IP network: address with host bits, and length of the prefix.
    Cidr(std::net::IpAddr, u8),
    /// A named format.
    Format(&'static Format),
    /// An authorization check, or its decision.
    Access(Box<crate::authorization::Access>),
}

impl<'a> Value<'a> {
    /// A string that the value owns; clones share it.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(Handle::Shared(text.into()))
    }

    /// A borrowed string.
    pub const fn str(text: &'a str) -> Self {
        Self::String(Handle::Borrowed(text))
    }

    /// A list that the value owns; clones share it.
    pub fn list(values: Vec<Self>) -> Self {
        Self::List(List::Shared(Arc::new(values)))
    }

    /// The same value, borrowed: no reference counting or copying for the usual kinds.
    pub fn borrowed(&'a self) -> Self {
        match self {
            Self::String(text) => Self::String(text.borrow()),
            Self::Bytes(bytes) => Self::Bytes(bytes.borrow()),
            Self::Quantity(quantity) => Self::Quantity(quantity.borrow()),
            Self::Version(version) => Self::Version(version.borrow()),
            other => other.clone(),
        }
    }

    /// Whether lists, maps and optionals that expressions have created are nested at most this deep.
    pub fn nests_within(&self, levels: usize) -> bool {
        let below = levels.checked_sub(1);
        let fits = |value: &Self| below.is_some_and(|levels| value.nests_within(levels));
        match self {
            Self::List(List::Shared(values)) => below.is_some() && values.iter().all(fits),
            Self::Map(Map::Shared(entries) | Map::Object(_, entries)) => {
                below.is_some() && entries.values().all(fits)
            }
            Self::Optional(Some(inner)) => fits(inner),
            _ => true,
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The type at run time, which `type(value)` returns.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::Type(_) => Type::Type(None),
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(Map::Object(name, _)) => Type::Object(name.clone()),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Quantity(_) => Type::object("kubernetes.Quantity"),
            Self::Version(_) => Type::object("kubernetes.Semver"),
            Self::Extension(extension) => Type::parse(match **extension {
                Extension::Url(_) => "kubernetes.URL",
                Extension::Ip(_) => "net.IP",
                Extension::Cidr(..) => "net.CIDR",
                Extension::Format(_) => "kubernetes.NamedFormat",
                Extension::Access(ref access) => access.type_name(),
            }),
        }
    }

    /// Name of the type as messages of the runtime show it.
    pub fn type_name(&self) -> Cow<'static, str> {
        match self {
            Self::Null => "null_type".into(),
            Self::Bool(_) => "bool".into(),
            Self::Int(_) => "int".into(),
            Self::Uint(_) => "uint".into(),
            Self::Double(_) => "double".into(),
            Self::String(_) => "string".into(),
            Self::Bytes(_) => "bytes".into(),
            Self::Duration(_) => "google.protobuf.Duration".into(),
            Self::Timestamp(_) => "google.protobuf.Timestamp".into(),
            Self::Type(_) => "type".into(),
            Self::List(_) => "list".into(),
            Self::Map(Map::Object(name, _)) => name.to_string().into(),
            Self::Map(_) => "map".into(),
            Self::Optional(_) => "optional_type".into(),
            other => other.type_of().to_string().into(),
        }
    }

    /// Name of the Go type that upstream shows in a few messages.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::Duration(_) => "types.Duration",
            Self::Timestamp(_) => "types.Timestamp",
            Self::Type(_) => "*types.Type",
            Self::List(_) => "*types.baseList",
            Self::Map(_) => "*types.baseMap",
            Self::Optional(_) => "*types.Optional",
            Self::Quantity(_) => "cel.Quantity",
            Self::Version(_) => "cel.Semver",
            Self::Extension(extension) => match **extension {
                Extension::Url(_) => "cel.URL",
                Extension::Ip(_) => "cel.IP",
                Extension::Cidr(..) => "cel.CIDR",
                Extension::Format(_) => "*cel.Format",
                Extension::Access(ref access) => access.go_type(),
            },
        }
    }

    /// Size as the cost rules count it: characters, bytes, elements or entries; 1 for everything else.
    pub(crate) fn cost_size(&self, through_optional: bool) -> u64 {
        match self {
            Self::String(text) => text.chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Optional(Some(inner)) if through_optional => inner.cost_size(true),
            Self::Extension(extension) => match **extension {
                Extension::Ip(address) => {
                    if address.is_ipv4() {
                        4
                    } else {
                        16
                    }
                }
                Extension::Cidr(_, prefix) => u64::from(prefix).div_ceil(8),
                _ => 1,
            },
            _ => 1,
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::str(text)
    }
}

/// A string with its hash, so that looking it up among few others compares one number each.
#[derive(Debug, Clone, Copy)]
pub struct Key<'k> {
    hash: u64,
    text: &'k str,
}

impl<'k> Key<'k> {
    /// Hashes a string.
    pub fn new(text: &'k str) -> Self {
        Self {
            hash: hash(text),
            text,
        }
    }

    /// A key whose hash is known.
    pub(crate) fn hashed(hash: u64, text: &'k str) -> Self {
        Self { hash, text }
    }

    /// The key as text, without copying.
    pub fn text(self) -> &'k str {
        self.text
    }

    /// The hash of the string.
    pub fn hash(self) -> u64 {
        self.hash
    }
}

/// A hash of the string that is the same in every run; equality is always checked, too.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ text.len() as u64;
    for chunk in text.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word))
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29);
    }
    hash
}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The value in upstream's `%v` format.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::show(self, f)
    }
}
