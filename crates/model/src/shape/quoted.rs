//! Values as error messages of upstream show them: internal structs printed as JSON.

use std::cell::Cell;
use std::fmt::Write as _;

use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::{GoName, Presence, Struct, Ty, is_empty, normalize, slice, tables, zero};

thread_local! {
    static RAW_TEXTS: Cell<RawTexts> = const {
        Cell::new(RawTexts {
            shown: |_| None,
            length: |_| None,
        })
    };
}

/// The texts of raw fields as they were sent, by their values.
#[derive(Debug, Clone, Copy)]
pub struct RawTexts {
    /// The text in errors.
    pub shown: fn(&Value) -> Option<String>,
    /// The length of the longest text with this value, in bytes.
    pub length: fn(&Value) -> Option<usize>,
}

/// Runs `work`, in which errors show raw fields as they were sent: in the order of their members and with the digits of
/// their numbers, which a tree of values does not keep. Their lengths are those of the texts, too.
pub fn showing_raw<T>(texts: RawTexts, work: impl FnOnce() -> T) -> T {
    struct Restore(RawTexts);
    impl Drop for Restore {
        fn drop(&mut self) {
            RAW_TEXTS.set(self.0);
        }
    }
    let _restore = Restore(RAW_TEXTS.replace(texts));
    work()
}

/// The length of a raw field as it was sent, in bytes; `None` if that is not known.
pub(crate) fn raw_length(value: &Value) -> Option<usize> {
    (RAW_TEXTS.get().length)(value)
}

/// Quotes a value the way upstream prints an internal struct in an error message: JSON with Go's field names, in
/// the order of their declaration, nothing left out.
pub(crate) fn quote(ty: Ty, value: &Value) -> String {
    let mut out = String::new();
    write_quoted(ty, value, &mut out);
    out
}

fn write_quoted(ty: Ty, value: &Value, out: &mut String) {
    match ty {
        _ if value.is_null() && matches!(ty, Ty::Struct(_) | Ty::List(_) | Ty::Map(_)) => {
            out.push_str("null")
        }
        Ty::Raw => {
            let sent = (RAW_TEXTS.get().shown)(value);
            out.push_str(&sent.unwrap_or_else(|| go_json(value)));
        }
        Ty::Text | Ty::Int | Ty::Bool => out.push_str(&go_json(value)),
        Ty::Quantity | Ty::Time => {
            let mut canonical = value.clone();
            normalize(ty, &mut canonical);
            out.push_str(&go_json(&canonical));
        }
        Ty::Meta => write_struct(&tables::OBJECT_META, value, out),
        Ty::Struct(shape) => write_struct(shape, value, out),
        Ty::List(item) => {
            out.push('[');
            for (index, entry) in slice(value).iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_entry(*item, entry, out);
            }
            out.push(']');
        }
        Ty::Map(item) => {
            out.push('{');
            let mut entries: Vec<_> = value.as_object().into_iter().flatten().collect();
            entries.sort_by(|left, right| left.0.cmp(right.0));
            for (index, (key, entry)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", go_json(&Value::String(key.clone())));
                write_entry(*item, entry, out);
            }
            out.push('}');
        }
    }
}

fn write_entry(ty: Ty, value: &Value, out: &mut String) {
    if value.is_null() {
        write_quoted(ty, &zero(ty), out)
    } else {
        write_quoted(ty, value, out)
    }
}

fn write_struct(shape: &Struct, value: &Value, out: &mut String) {
    out.push('{');
    let mut first = true;
    write_members(shape, value, &mut first, out);
    out.push('}');
}

fn write_members(shape: &Struct, value: &Value, first: &mut bool, out: &mut String) {
    for field in shape.fields {
        let member = value.get(field.json).filter(|member| !member.is_null());
        if field.go == GoName::Embedded {
            write_members(
                &tables::OBJECT_META,
                member.unwrap_or(&Value::Null),
                first,
                out,
            );
            continue;
        }
        let omitted = match member {
            None => matches!(field.presence, Presence::Omit | Presence::Pointer),
            Some(member) => field.presence == Presence::Omit && is_empty(field.ty, member),
        };
        if shape.tagged && omitted {
            continue;
        }
        if !std::mem::take(first) {
            out.push(',');
        }
        let (initial, rest) = field.json.split_at(1);
        let _ = match field.go {
            GoName::Given(name) => write!(out, "\"{name}\":"),
            _ if shape.tagged => write!(out, "\"{}\":", field.json),
            _ => write!(out, "\"{}{rest}\":", initial.to_ascii_uppercase()),
        };
        let pointer = matches!(field.presence, Presence::Pointer | Presence::KeepPointer);
        match member {
            Some(member) => write_quoted(field.ty, member, out),
            None if pointer => out.push_str("null"),
            None => write_quoted(field.ty, &zero(field.ty), out),
        }
    }
}
