//! Version and kind of an object as its text states them. Upstream reads them before the object itself, with a decoder that
//! finds fields in any letter case.

use allot_apimachinery::gvk::GroupVersion;
use allot_schema::decode::json_type;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::object::split_api_version;

/// The type that upstream decodes first of every object, in Go's notation.
const TYPE_META: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                         Kind string \"json:\\\"kind,omitempty\\\"\" }";

/// What an object states about its type. Both are empty if it states nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::rest) struct TypeMeta {
    /// Group and version, as in the text.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

impl TypeMeta {
    /// What a JSON text states. Of several fields whose names differ in letter case only, the last counts. A text that is no JSON
    /// states nothing: the decoder of the object reports it.
    ///
    /// # Errors
    /// Upstream's message about a version or kind that is no string, about one that is no version, and about a text that is
    /// no object.
    pub fn of_text(text: &[u8]) -> Result<Self, String> {
        let found = match serde_json::from_slice::<Found>(text) {
            Ok(Found(found)) => found,
            Err(_) => return Ok(Self::default()),
        };
        found.and_then(Self::checked)
    }

    /// What an object of a custom kind states, whose fields are found in their own letter case only.
    ///
    /// # Errors
    /// As for a text.
    pub fn of_value(value: &Value) -> Result<Self, String> {
        let mut members = Members::default();
        match value {
            Value::Null => {}
            Value::Object(object) => {
                for field in Field::ALL {
                    if let Some(member) = object.get(field.name()) {
                        members.set(field, member.clone());
                    }
                }
            }
            other => return Err(no_object(other)),
        }
        members.finish().and_then(Self::checked)
    }

    /// Whether the type is found in its own fields alone: the value is an object without a member whose name differs from theirs
    /// in letter case only. Then [`TypeMeta::of_value`] finds what [`TypeMeta::of_text`] does, unless the text repeats a field.
    pub fn is_plain(value: &Value) -> bool {
        let own = |key: &String| Field::of_key(key).is_none_or(|field| field.name() == key);
        value
            .as_object()
            .is_some_and(|object| object.keys().all(own))
    }

    /// The same with what is not stated from `own`, also the version if the group is the one of `own`.
    pub fn or(self, own: &Self) -> Self {
        let kind = match self.kind.is_empty() {
            true => own.kind.clone(),
            false => self.kind,
        };
        let without_version = match self.api_version.strip_suffix('/') {
            Some(group) => group == split_api_version(&own.api_version).0,
            None => self.api_version.is_empty(),
        };
        let api_version = match without_version {
            true => own.api_version.clone(),
            false => self.api_version,
        };
        Self { api_version, kind }
    }

    /// The same if a kind is stated.
    ///
    /// # Errors
    /// Upstream's message with what was `sent`.
    pub fn with_kind(self, sent: &[u8]) -> Result<Self, String> {
        if self.kind.is_empty() {
            let sent = String::from_utf8_lossy(sent);
            return Err(format!("Object 'Kind' is missing in '{sent}'"));
        }
        Ok(self)
    }

    /// The same with a version of the core group written without a group, as Go parses versions.
    fn checked(mut self) -> Result<Self, String> {
        let parsed = GroupVersion::parse(&self.api_version).map_err(|error| error.to_string())?;
        self.api_version = parsed.to_string();
        Ok(self)
    }
}

#[derive(Clone, Copy)]
enum Field {
    ApiVersion,
    Kind,
}

impl Field {
    const ALL: [Field; 2] = [Field::ApiVersion, Field::Kind];

    fn name(self) -> &'static str {
        match self {
            Field::ApiVersion => "apiVersion",
            Field::Kind => "kind",
        }
    }

    /// The field that Go's decoder finds for a key.
    fn of_key(key: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|field| same_letters(key, field.name()))
    }
}

/// Two texts differ in letter case at most, `name` being of ASCII letters. Two other characters have such letters as another
/// case: the long s and the sign of the kelvin.
fn same_letters(key: &str, name: &str) -> bool {
    let lower = |letter: char| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    };
    key.chars()
        .map(lower)
        .eq(name.chars().map(|letter| letter.to_ascii_lowercase()))
}

/// The members as they come; the first that is no string is reported, as Go does after the last one.
#[derive(Default)]
struct Members {
    found: TypeMeta,
    error: Option<String>,
}

impl Members {
    fn set(&mut self, field: Field, value: Value) {
        let place = match field {
            Field::ApiVersion => &mut self.found.api_version,
            Field::Kind => &mut self.found.kind,
        };
        match value {
            Value::Null => {}
            Value::String(text) => *place = text,
            other => {
                self.error.get_or_insert_with(|| {
                    format!(
                        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{} \
                         of type string",
                        json_type(&other),
                        field.name()
                    )
                });
            }
        }
    }

    fn finish(self) -> Result<TypeMeta, String> {
        self.error.map_or(Ok(self.found), Err)
    }
}

fn no_object(value: &Value) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {TYPE_META}",
        json_type(value)
    )
}

/// What a whole text states.
struct Found(Result<TypeMeta, String>);

impl<'de> Deserialize<'de> for Found {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FoundVisitor)
    }
}

struct FoundVisitor;

impl<'de> Visitor<'de> for FoundVisitor {
    type Value = Found;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut members = Members::default();
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match Field::of_key(&key) {
                Some(field) => members.set(field, map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Found(members.finish()))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Found(Err(no_object(&Value::Array(Vec::new())))))
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(Found(Ok(TypeMeta::default())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Found, E> {
        Ok(Found(Err(no_object(&value.into()))))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Found, E> {
        Ok(Found(Err(no_object(&value.into()))))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Found, E> {
        Ok(Found(Err(no_object(&value.into()))))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Found, E> {
        Ok(Found(Err(no_object(&value.into()))))
    }

    fn visit_str<E>(self, value: &str) -> Result<Found, E> {
        Ok(Found(Err(no_object(&value.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(&str, &str), &str>) {
        let found = TypeMeta::of_text(text.as_bytes());
        let found = found
            .as_ref()
            .map(|found| (found.api_version.as_str(), found.kind.as_str()))
            .map_err(|error| error.as_str());
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn regression_fields_are_found_in_any_letter_case() {
        check(r#"{"apiVersion":"v1","kind":"Pod"}"#, Ok(("v1", "Pod")));
        check(
            r#"{"kind":"Foo","metadata":{"kind":"x"},"KIND":"Pod","APIversion":"v9"}"#,
            Ok(("v9", "Pod")),
        );
        check(r#"{"Kind":"Foo","kind":null}"#, Ok(("", "Foo")));
        check(
            "{\"\u{212a}ind\":\"Foo\",\"apiVer\u{17f}ion\":\"v8\"}",
            Ok(("v8", "Foo")),
        );
        check(r#"{"kinds":"Foo","api_version":"v1"}"#, Ok(("", "")));
        check("null", Ok(("", "")));
    }

    #[test]
    fn what_is_no_type_is_reported_with_upstreams_words() {
        let field = |found: &str, name: &str| {
            format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{name} of \
                 type string"
            )
        };
        check(
            r#"{"KIND":1,"apiVersion":[]}"#,
            Err(&field("number", "kind")),
        );
        check(
            r#"{"kind":"Pod","apiversion":{}}"#,
            Err(&field("object", "apiVersion")),
        );
        check(r#"{"apiVersion":"/v1"}"#, Ok(("v1", "")));
        check(r#"{"apiVersion":"/"}"#, Ok(("", "")));
        check(
            r#"{"apiVersion":"a/b/c"}"#,
            Err("unexpected GroupVersion string: a/b/c"),
        );
        check(
            "[1]",
            Err(&format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {TYPE_META}"
            )),
        );
    }

    #[test]
    fn what_is_not_stated_is_that_of_the_request() {
        let of = |api_version: &str, kind: &str| TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        let own = of("apps/v1", "Deployment");
        let check = |sent: TypeMeta, expected: TypeMeta| assert_eq!(sent.or(&own), expected);
        check(of("", ""), of("apps/v1", "Deployment"));
        check(of("apps/", ""), of("apps/v1", "Deployment"));
        check(of("batch/", "Job"), of("batch/", "Job"));
        check(of("v1", "Pod"), of("v1", "Pod"));
    }

    #[test]
    fn a_plain_object_states_in_its_text_what_its_value_does() {
        for text in [
            r#"{"apiVersion":"v1","kind":"Pod"}"#,
            r#"{"apiVersion":1,"kind":"Pod"}"#,
            r#"{"apiVersion":"a/b/c","kinds":"Pod"}"#,
            r#"{"kind":null}"#,
            "{}",
        ] {
            let value = serde_json::from_str(text).unwrap();
            assert!(TypeMeta::is_plain(&value), "{text}");
            let stated = TypeMeta::of_text(text.as_bytes());
            assert_eq!(TypeMeta::of_value(&value), stated, "{text}");
        }
        for text in [r#"{"Kind":"Pod","kind":"Pod"}"#, "[]", "null", "1"] {
            let value = serde_json::from_str(text).unwrap();
            assert!(!TypeMeta::is_plain(&value), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_json_states_nothing() {
        check(r#"{"kind":"Pod""#, Ok(("", "")));
        check("", Ok(("", "")));
    }
}
