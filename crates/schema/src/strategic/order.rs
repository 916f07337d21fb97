//! The order of merged lists: that of the patch for what the patch names, that of the original for the rest, interleaved.

use serde_json::Value;

use super::{BAD_SET_ORDER, DIRECTIVE, Error, no_merge_key};
use crate::merge::go_value;

/// How elements are told apart: by this field of theirs, or by value.
#[derive(Clone, Copy)]
pub(super) struct By(pub(super) Option<&'static str>);

impl By {
    fn same(self, a: &Value, b: &Value) -> bool {
        match self.0 {
            Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
            None => a == b,
        }
    }

    fn place(self, list: &[Value], item: &Value) -> Option<usize> {
        list.iter().position(|other| self.same(other, item))
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
        let (mut named, mut rest): (Vec<Value>, Vec<Value>) = merged
            .into_iter()
            .partition(|item| self.place(wanted, item).is_some());
        named.sort_by_key(|item| self.place(wanted, item));
        rest.sort_by_key(|item| self.place(live, item));
        let mut out = Vec::with_capacity(named.len() + rest.len());
        let mut rest = rest.into_iter().peekable();
        for item in named {
            while let Some(next) = rest.peek() {
                match (self.place(live, next), self.place(live, &item)) {
                    (Some(a), Some(b)) if a < b => out.extend(rest.next()),
                    _ => break,
                }
            }
            out.push(item);
        }
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
