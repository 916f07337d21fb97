//! The order of merged lists: that of the patch for what the patch names, that of the original for the rest, interleaved.

use std::collections::HashMap;

use serde_json::Value;

use super::{BAD_SET_ORDER, DIRECTIVE, Error, no_merge_key};
use crate::merge::go_value;

/// What identifies an element: the value of this field, or the whole value.
#[derive(Clone, Copy)]
pub(super) struct By(pub(super) Option<&'static str>);

impl By {
    fn same(self, a: &Value, b: &Value) -> bool {
        match self.0 {
            Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
            None => a == b,
        }
    }

    /// The comparison key of an element: equal for equal elements; `None` if the element equals no other.
    pub(super) fn identity(self, item: &Value) -> Option<String> {
        match self.0 {
            Some(key) => item.get(key).map(Value::to_string),
            None => Some(item.to_string()),
        }
    }

    /// The first index of each element of a list. A patch can be as large as a request body, so linear searches are
    /// avoided.
    pub(super) fn places(self, list: &[Value]) -> HashMap<String, usize> {
        let mut places = HashMap::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            if let Some(identity) = self.identity(item) {
                places.entry(identity).or_insert(at);
            }
        }
        places
    }

    /// Orders the merged list.
    pub(super) fn arrange(
        self,
        merged: Vec<Value>,
        wanted: &[Value],
        live: &[Value],
    ) -> Result<Vec<Value>, Error> {
        if let Some(key) = self.0 {
            for item in merged.iter().chain(wanted) {
                match item {
                    Value::Object(map) if map.contains_key(key) => {}
                    Value::Object(map) => return Err(no_merge_key(map, key)),
                    _ => return Err(BAD_SET_ORDER),
                }
            }
        }
        let (wanted, live) = (self.places(wanted), self.places(live));
        let (mut named, mut rest) = (Vec::new(), Vec::new());
        for item in merged {
            let identity = self.identity(&item);
            let place = |places: &HashMap<String, usize>| {
                identity.as_ref().and_then(|it| places.get(it).copied())
            };
            let (in_wanted, in_live) = (place(&wanted), place(&live));
            match in_wanted {
                Some(at) => named.push((at, in_live, item)),
                None => rest.push((in_live, item)),
            }
        }
        named.sort_by_key(|(at, ..)| *at);
        rest.sort_by_key(|(in_live, _)| *in_live);
        let mut out = Vec::with_capacity(named.len() + rest.len());
        let mut rest = rest.into_iter().peekable();
        for (_, in_live, item) in named {
            while let Some((next, _)) = rest.peek() {
                match (*next, in_live) {
                    (Some(a), Some(b)) if a < b => out.extend(rest.next().map(|(_, item)| item)),
                    _ => break,
                }
            }
            out.push(item);
        }
        let rest = rest.map(|(_, item)| item);
        out.extend(rest);
        Ok(out)
    }
}

/// The patch's list has to be in the order that the directive gives.
pub(super) fn check(
    patch: &[Value],
    wanted: &[Value],
    merge_key: Option<&'static str>,
) -> Result<(), Error> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let by = By(merge_key);
    let mut rest = wanted.iter();
    let deleted = |item: &&Value| item.get(DIRECTIVE).is_some_and(|what| what == "delete");
    for item in patch.iter().filter(|item| !deleted(item)) {
        if !rest.any(|next| by.same(next, item)) {
            return Err(Error::Mismatch(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                go_value(&patch.into()),
                go_value(&wanted.into())
            )));
        }
    }
    Ok(())
}
