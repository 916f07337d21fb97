//! Types of expressions, and the rules of assignability and unification.

use std::{fmt, sync::Arc};

mod unify;

pub(crate) use unify::{Unifier, instantiate, most_general};

/// The type of a JSON patch's operation.
pub(crate) const OPERATION: &str = "JSONPatch";

/// The type of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Any type; checked at run time.
    Dyn,
    /// Any type, packed in a message; behaves like [`Type::Dyn`].
    Any,
    /// Unknown because of an error that was reported already.
    Error,
    /// `null`.
    Null,
    /// A bool.
    Bool,
    /// A 64-bit integer.
    Int,
    /// A 64-bit unsigned integer.
    Uint,
    /// A 64-bit floating-point number.
    Double,
    /// A string.
    String,
    /// Bytes.
    Bytes,
    /// A duration.
    Duration,
    /// A point in time.
    Timestamp,
    /// A list.
    List(Arc<Type>),
    /// A map.
    Map(Arc<Type>, Arc<Type>),
    /// A type as a value; `None` is the type of types.
    Type(Option<Arc<Type>>),
    /// A type without fields, perhaps with parameters.
    Opaque(Arc<str>, Arc<[Type]>),
    /// A type with fields.
    Object(Arc<str>),
    /// A parameter of a declaration.
    Param(Arc<str>),
    /// A type that is still to be determined.
    Var(u32),
}

/// Name of the type of optional values.
pub const OPTIONAL: &str = "optional_type";

impl Type {
    /// A list of `element`.
    pub fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    /// A map from `key` to `value`.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// An optional `inner`.
    pub fn optional(inner: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), [inner].into())
    }

    /// A type with named fields: a message of protobuf, or an `Object` of mutating policies.
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any | Self::Error)
    }

    /// What an optional may hold.
    pub(crate) fn optional_inner(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, params) if &**name == OPTIONAL => params.first(),
            _ => None,
        }
    }

    /// Reads the form that error texts show: `map(string, list(A))`. Single capital letters are parameters.
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.trim();
        let Some((name, rest)) = text.split_once('(') else {
            return Self::parse_name(text);
        };
        let params: Vec<Self> = split_params(rest.strip_suffix(')').unwrap_or(rest))
            .map(Self::parse)
            .collect();
        match (name, &params[..]) {
            ("list", [element]) => Self::list(element.clone()),
            ("map", [key, value]) => Self::map(key.clone(), value.clone()),
            ("type", [inner]) => Self::Type(Some(Arc::new(inner.clone()))),
            _ => Self::Opaque(name.into(), params.into()),
        }
    }

    fn parse_name(name: &str) -> Self {
        match name {
            "dyn" => Self::Dyn,
            "any" => Self::Any,
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "duration" => Self::Duration,
            "timestamp" => Self::Timestamp,
            "type" => Self::Type(None),
            "net.IP" | "net.CIDR" => Self::Opaque(name.into(), Arc::new([])),
            _ if name.len() == 1 => Self::Param(name.into()),
            _ => Self::Object(name.into()),
        }
    }

    /// The name without parameters.
    pub(crate) fn bare_name(&self) -> String {
        let name = self.runtime_name();
        name.split_once('(')
            .map_or(name.as_str(), |(bare, _)| bare)
            .to_owned()
    }

    /// The name that a value of the type answers `type()` with, and that messages about whole expressions show.
    pub fn runtime_name(&self) -> String {
        match self {
            Self::Any => "google.protobuf.Any".to_owned(),
            Self::Null => "null_type".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::List(element) => format!("list({})", element.runtime_name()),
            Self::Map(key, value) => {
                format!("map({}, {})", key.runtime_name(), value.runtime_name())
            }
            Self::Type(Some(inner)) => format!("type({})", inner.runtime_name()),
            Self::Opaque(name, params) if !params.is_empty() => {
                let params: Vec<_> = params.iter().map(Self::runtime_name).collect();
                format!("{name}({})", params.join(", "))
            }
            other => other.to_string(),
        }
    }
}

fn split_params(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Type(None) => f.write_str("type"),
            Self::Type(Some(inner)) => write!(f, "type({inner})"),
            Self::Opaque(name, params) => {
                f.write_str(name)?;
                for (i, param) in params.iter().enumerate() {
                    write!(f, "{}{param}", if i == 0 { "(" } else { ", " })?;
                }
                f.write_str(if params.is_empty() { "" } else { ")" })
            }
            Self::Object(name) | Self::Param(name) => f.write_str(name),
            Self::Var(number) => write!(f, "_var{number}"),
        }
    }
}
