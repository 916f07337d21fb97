//! What types and fields are for: the texts of `data/descriptions.txt`.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

static SOURCE: &str = include_str!("../../data/descriptions.txt");

/// The heading of the fields that every object has.
const EVERY: &str = "*";

/// By type and field; the field is empty for the type itself.
type Texts = FxHashMap<(&'static str, &'static str), &'static str>;

fn texts() -> &'static Texts {
    static TEXTS: OnceLock<Texts> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let mut texts = Texts::default();
        let mut ty = "";
        for line in SOURCE.lines().filter(|line| !line.starts_with("//")) {
            let (name, text) = line.trim_start().split_once(' ').unwrap_or((line, ""));
            if line.starts_with('\t') {
                texts.insert((ty, name), text);
            } else {
                ty = name;
                texts.insert((ty, ""), text);
            }
        }
        texts
    })
}

/// What a type is for, by its simple name.
pub(super) fn of_type(ty: &str) -> Option<&'static str> {
    find(ty, "")
}

/// The description of a type's field; `is_kind` says that the type is a kind.
pub(super) fn of_field(ty: &str, field: &str, is_kind: bool) -> Option<&'static str> {
    find(ty, field).or_else(|| is_kind.then(|| find(EVERY, field))?)
}

fn find(ty: &str, field: &str) -> Option<&'static str> {
    // The table's keys are static, which a borrowed key need not match.
    fn shorten<'a, 'b: 'a>(
        texts: &'a FxHashMap<(&'b str, &'b str), &'static str>,
    ) -> &'a FxHashMap<(&'a str, &'a str), &'static str> {
        texts
    }
    let found = shorten(texts()).get(&(ty, field)).copied();
    found.filter(|text| !text.is_empty())
}

/// All entries: type, field (empty for the type itself).
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    texts().keys().copied()
}
