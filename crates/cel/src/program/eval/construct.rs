//! Lists, maps and messages that an expression creates.

use std::{collections::BTreeMap, sync::Arc};

use super::{Evaluator, Outcome};
use crate::{
    cost::{LIST, MAP, STRUCT},
    env::is_made,
    program::plan::{MapEntry, Node, ObjectField},
    value::{Fault, Map, MapKey, Value},
};

impl<'a> Evaluator<'a, '_> {
    #[inline(never)]
    pub(super) fn message(&mut self, name: &'a Arc<str>, fields: &'a [ObjectField]) -> Outcome<'a> {
        let mut made = BTreeMap::new();
        let mut failed = None;
        for field in fields {
            match keep_going!(self.eval(&field.value)) {
                Ok(Value::Optional(value)) if field.optional => {
                    let value = value.map(|value| Value::clone(&value));
                    made.extend(value.map(|value| (MapKey::String(field.name.clone()), value)));
                }
                Ok(value) if field.optional => {
                    let name = &field.name;
                    failed = Some(Fault::new(format!(
                        "cannot initialize optional entry '{name}' from non-optional value {value}"
                    )));
                }
                Ok(value) => {
                    made.insert(MapKey::String(field.name.clone()), value);
                }
                Err(fault) => failed = Some(fault),
            }
            if failed.is_some() {
                break;
            }
        }
        self.spend(STRUCT)?;
        match failed {
            Some(fault) => Err(fault),
            None if is_made(name) => Ok(Value::Map(Map::Object(name.clone(), Arc::new(made)))),
            None => Err(Fault::new(format!("unknown type '{name}'"))),
        }
    }

    #[inline(never)]
    pub(super) fn list(&mut self, elements: &'a [(Node, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(elements.len());
        let mut failed = None;
        for (element, optional) in elements {
            match keep_going!(self.eval(element)) {
                Ok(Value::Optional(value)) if *optional => {
                    values.extend(value.map(|value| Value::clone(&value)))
                }
                Ok(value) if *optional => {
                    let text = format!(
                        "cannot initialize optional list element from non-optional value {value}"
                    );
                    failed = Some(Fault::new(text));
                }
                Ok(value) => values.push(value),
                Err(fault) => failed = Some(fault),
            }
            if failed.is_some() {
                break;
            }
        }
        self.spend(LIST)?;
        match failed {
            Some(fault) => Err(fault),
            None => Ok(Value::list(values)),
        }
    }

    #[inline(never)]
    pub(super) fn map(&mut self, entries: &'a [MapEntry]) -> Outcome<'a> {
        let mut map = BTreeMap::new();
        let mut failed = None;
        for entry in entries {
            match keep_going!(self.entry(entry)) {
                Ok((key, Some(value))) => {
                    map.insert(key, value);
                }
                Ok((key, None)) => {
                    map.remove(&key);
                }
                Err(fault) => {
                    failed = Some(fault);
                    break;
                }
            }
        }
        self.spend(MAP)?;
        match failed {
            Some(fault) => Err(fault),
            None => Ok(Value::Map(Map::Shared(Arc::new(map)))),
        }
    }

    fn entry(&mut self, entry: &'a MapEntry) -> Result<(MapKey, Option<Value<'a>>), Fault> {
        let key = self.eval(&entry.key)?;
        let value = self.eval(&entry.value)?;
        let value = match value {
            Value::Optional(value) if entry.optional => value.map(|value| Value::clone(&value)),
            value if entry.optional => {
                let text = format!(
                    "cannot initialize optional entry '{key}' from non-optional value {value}"
                );
                return Err(Fault::new(text));
            }
            value => Some(value),
        };
        let key = MapKey::new(&key)
            .ok_or_else(|| Fault::new(format!("unsupported key type: {}", key.type_name())))?;
        Ok((key, value))
    }
}
