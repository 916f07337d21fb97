//! The environment of device selectors, and devices as values of it.

use std::sync::LazyLock;

use super::{
    Device, Options,
    attributes::{Attribute, Domain, Table},
};
use crate::{
    env::{DeclType, Env, Overload},
    library::INCLUDES_MAX,
    types::Type,
    value::{Handle, Key, List, ListSource, Map, MapSource, Value},
};

/// Longest domain of an attribute or capacity name.
const DOMAIN_MAX: u64 = 63;
/// Longest identifier of an attribute or capacity name.
const ID_MAX: u64 = 32;
/// Longest name of a driver.
const DRIVER_MAX: u64 = 63;
/// Most attributes and capacities of a device.
const ENTRIES_MAX: u64 = 32;
/// Longest attribute value.
const VALUE_MAX: u64 = 64;

/// The environment for these options.
pub(super) fn environment(options: &Options) -> &'static Env {
    static ALL: LazyLock<[Env; 4]> = LazyLock::new(|| {
        [
            build(false, false),
            build(false, true),
            build(true, false),
            build(true, true),
        ]
    });
    &ALL[2 * usize::from(options.consumable_capacity) + usize::from(options.list_type_attributes)]
}

fn build(consumable_capacity: bool, lists: bool) -> Env {
    let (domain, id) = (DeclType::string(DOMAIN_MAX), DeclType::string(ID_MAX));
    // What an attribute holds is not known before it is read. Only dyn can be looped over.
    let (ty, most) = if lists {
        (Type::Dyn, VALUE_MAX.max(INCLUDES_MAX as u64))
    } else {
        (Type::Any, VALUE_MAX)
    };
    let attribute = DeclType::scalar(ty, most);
    let attributes = DeclType::selectable_map(id.clone(), attribute, ENTRIES_MAX as i64);
    // The size of quantities does not matter for any cost.
    let quantity = DeclType::scalar(Type::object("kubernetes.Quantity"), 0);
    let capacity = DeclType::map(id, quantity, ENTRIES_MAX);
    let mut fields = vec![
        ("driver", DeclType::string(DRIVER_MAX)),
        (
            "attributes",
            DeclType::map(domain.clone(), attributes, ENTRIES_MAX),
        ),
        ("capacity", DeclType::map(domain, capacity, ENTRIES_MAX)),
    ];
    if consumable_capacity {
        fields.push(("allowMultipleAllocations", DeclType::scalar(Type::Bool, 1)));
    }
    let device = DeclType::object("kubernetes.DRADevice", fields);
    let mut env = Env::kubernetes()
        .with_object(&device)
        .with_variable("device", device);
    if lists {
        let overload = Overload {
            id: "dra_includes_dyn_dyn".into(),
            member: true,
            args: vec![Type::Dyn, Type::Dyn],
            result: Type::Bool,
        };
        env = env.with_overload("includes", overload);
    }
    env
}

impl MapSource for Device {
    fn len(&self) -> usize {
        FIELDS.len()
    }

    fn find(&self, key: Key<'_>) -> Option<Value<'_>> {
        Some(match key.text() {
            "driver" => Value::str(self.driver()),
            "attributes" => Value::Map(Map::Source(self.attribute_table())),
            "capacity" => Value::Map(Map::Source(self.capacity_table())),
            "allowMultipleAllocations" => Value::Bool(self.allow_multiple_allocations()),
            _ => return None,
        })
    }

    fn key(&self, index: usize) -> &str {
        FIELDS[index]
    }
}

const FIELDS: [&str; 4] = [
    "allowMultipleAllocations",
    "attributes",
    "capacity",
    "driver",
];

/// Domains that a device knows nothing of are empty when they are indexed, but are not in the map.
impl<T: AsValue> MapSource for Table<T> {
    fn len(&self) -> usize {
        self.domains().len()
    }

    fn find(&self, key: Key<'_>) -> Option<Value<'_>> {
        let domain: &dyn MapSource = match self.domain(key) {
            Some(domain) => domain,
            None => &Empty,
        };
        Some(Value::Map(Map::Source(domain)))
    }

    fn contains(&self, key: Key<'_>) -> bool {
        self.domain(key).is_some()
    }

    fn key(&self, index: usize) -> &str {
        self.domains()[index].name()
    }
}

impl<T: AsValue> MapSource for Domain<T> {
    fn len(&self) -> usize {
        self.entries().len()
    }

    fn find(&self, key: Key<'_>) -> Option<Value<'_>> {
        self.get(key).map(AsValue::as_value)
    }

    fn key(&self, index: usize) -> &str {
        self.entries()[index].0.as_str()
    }
}

#[derive(Debug)]
struct Empty;

impl MapSource for Empty {
    fn len(&self) -> usize {
        0
    }

    fn find(&self, _key: Key<'_>) -> Option<Value<'_>> {
        None
    }

    fn key(&self, _index: usize) -> &str {
        ""
    }
}

/// What is behind a name.
pub(super) trait AsValue: std::fmt::Debug + Sync {
    fn as_value(&self) -> Value<'_>;
}

impl AsValue for allot_apimachinery::Quantity {
    fn as_value(&self) -> Value<'_> {
        Value::Quantity(Handle::Borrowed(self))
    }
}

impl AsValue for Attribute {
    fn as_value(&self) -> Value<'_> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::String(text) => Value::str(text),
            Self::Version(version) => Value::Version(Handle::Borrowed(version)),
            Self::Bools(_) | Self::Ints(_) | Self::Strings(_) | Self::Versions(_) => {
                Value::List(List::Source(self))
            }
        }
    }
}

impl ListSource for Attribute {
    fn len(&self) -> usize {
        match self {
            Self::Bools(values) => values.len(),
            Self::Ints(values) => values.len(),
            Self::Strings(values) => values.len(),
            Self::Versions(values) => values.len(),
            Self::Bool(_) | Self::Int(_) | Self::String(_) | Self::Version(_) => 0,
        }
    }

    fn get(&self, index: usize) -> Value<'_> {
        match self {
            Self::Bools(values) => Value::Bool(values[index]),
            Self::Ints(values) => Value::Int(values[index]),
            Self::Strings(values) => Value::str(&values[index]),
            Self::Versions(values) => Value::Version(Handle::Borrowed(&values[index])),
            Self::Bool(_) | Self::Int(_) | Self::String(_) | Self::Version(_) => Value::Null,
        }
    }
}
