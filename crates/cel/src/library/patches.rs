//! Functions for JSON patches.

use super::{Args, Outcome, text};
use crate::{
    library::Function,
    value::{Fault, Value},
};

pub(super) fn function(name: &str) -> Option<Function> {
    (name == "jsonpatch.escapeKey").then_some(escape_key as Function)
}

/// A key as a step of a JSON pointer.
fn escape_key<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let [key] = args else {
        return Err(Fault::NoOverload);
    };
    Ok(Value::string(
        text(key)?.replace('~', "~0").replace('/', "~1"),
    ))
}
