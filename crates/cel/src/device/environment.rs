//! The environment of device selectors, and devices as values of it.

use std::sync::LazyLock;

use super::{Device, Options, attributes::Attribute, layout::Names};
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
    static ALL: LazyLock<[Env; 5]> = LazyLock::new(|| {
        [
            build(false, false, false),
            build(true, false, false),
            build(false, true, true),
            build(true, true, true),
            build(true, false, true),
        ]
    });
    let lists = options.list_type_attributes;
    &ALL[match (options.stored, lists) {
        (true, true) => 3,
        (true, false) => 4,
        (false, _) => 2 * usize::from(lists) + usize::from(options.consumable_capacity),
    }]
}

/// `lists` is about the type of attributes, which decides what new and stored expressions may do with them.
fn build(consumable_capacity: bool, lists: bool, includes: bool) -> Env {
    let (domain, id) = (DeclType::string(DOMAIN_MAX), DeclType::string(ID_MAX));
    // The type of an attribute is only known at run time. Only dyn can be iterated.
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
        .with_bindings()
        .with_object(&device)
        .with_variable("device", device);
    if includes {
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

/// The maps of a device: the device itself, its attributes or capacities, those of one domain, and an empty map.
#[derive(Clone, Copy)]
enum Part {
    Device,
    Attributes,
    Capacity,
    AttributeDomain(usize),
    CapacityDomain(usize),
    Nothing,
}

impl Part {
    fn number(self) -> u32 {
        match self {
            Self::Device => 0,
            Self::Attributes => 1,
            Self::Capacity => 2,
            Self::Nothing => 3,
            Self::AttributeDomain(domain) => 4 + 2 * domain as u32,
            Self::CapacityDomain(domain) => 5 + 2 * domain as u32,
        }
    }

    fn new(number: u32) -> Self {
        match number {
            0 => Self::Device,
            1 => Self::Attributes,
            2 => Self::Capacity,
            3 => Self::Nothing,
            even if even % 2 == 0 => Self::AttributeDomain((even as usize - 4) / 2),
            odd => Self::CapacityDomain((odd as usize - 5) / 2),
        }
    }
}

impl Device {
    fn part(&self, part: Part) -> Value<'_> {
        Value::Map(Map::Source(self, part.number()))
    }

    /// The device as the value of the variable.
    pub(super) fn as_value(&self) -> Value<'_> {
        self.part(Part::Device)
    }

    fn names(&self, part: Part) -> Option<(&Names, usize)> {
        match part {
            Part::AttributeDomain(domain) => Some((&self.layout.attributes, domain)),
            Part::CapacityDomain(domain) => Some((&self.layout.capacity, domain)),
            _ => None,
        }
    }
}

impl MapSource for Device {
    fn len(&self, part: u32) -> usize {
        match Part::new(part) {
            Part::Device => FIELDS.len(),
            Part::Attributes => self.layout.attributes.domains(),
            Part::Capacity => self.layout.capacity.domains(),
            part => self
                .names(part)
                .map_or(0, |(names, domain)| names.len(domain)),
        }
    }

    /// Unknown domains of a device are empty when they are indexed, but are not in the map.
    fn find(&self, part: u32, key: Key<'_>) -> Option<Value<'_>> {
        let part = Part::new(part);
        Some(match part {
            Part::Device => match key.text() {
                "driver" => Value::str(self.driver()),
                "attributes" => self.part(Part::Attributes),
                "capacity" => self.part(Part::Capacity),
                "allowMultipleAllocations" => Value::Bool(self.allow_multiple_allocations()),
                _ => return None,
            },
            Part::Attributes => {
                let domain = self.layout.attributes.domain(key);
                self.part(domain.map_or(Part::Nothing, Part::AttributeDomain))
            }
            Part::Capacity => {
                let domain = self.layout.capacity.domain(key);
                self.part(domain.map_or(Part::Nothing, Part::CapacityDomain))
            }
            Part::AttributeDomain(domain) => {
                self.attributes[self.layout.attributes.find_in(domain, key)?].as_value()
            }
            Part::CapacityDomain(domain) => {
                let index = self.layout.capacity.find_in(domain, key)?;
                Value::Quantity(Handle::Borrowed(&self.capacity[index]))
            }
            Part::Nothing => return None,
        })
    }

    fn find_other(&self, part: u32) -> Option<Value<'_>> {
        let by_domain = matches!(Part::new(part), Part::Attributes | Part::Capacity);
        by_domain.then(|| self.part(Part::Nothing))
    }

    fn contains(&self, part: u32, key: Key<'_>) -> bool {
        match Part::new(part) {
            Part::Attributes => self.layout.attributes.domain(key).is_some(),
            Part::Capacity => self.layout.capacity.domain(key).is_some(),
            _ => self.find(part, key).is_some(),
        }
    }

    fn key(&self, part: u32, index: usize) -> &str {
        match Part::new(part) {
            Part::Device => FIELDS[index],
            Part::Attributes => self.layout.attributes.domain_text(index),
            Part::Capacity => self.layout.capacity.domain_text(index),
            part => self
                .names(part)
                .map_or("", |(names, domain)| names.entry(domain, index).0),
        }
    }
}

const FIELDS: [&str; 4] = [
    "allowMultipleAllocations",
    "attributes",
    "capacity",
    "driver",
];

impl Attribute {
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
