//! The documents of extension API servers in the document of this server, in the older format.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::swagger::{DEFINITIONS, KINDS};

/// How many definitions of different extensions may have one name.
const MOST_NAMES: usize = 512;

type Object = Map<String, Value>;

/// New names of definitions: all of one extension have the same suffix, so that those of the next one are recognized as the
/// same with all that they refer to.
struct Renames {
    names: BTreeSet<String>,
    suffix: String,
}

impl Renames {
    fn of(&self, name: &str) -> String {
        match self.names.contains(name) {
            true => format!("{name}{}", self.suffix),
            false => name.to_owned(),
        }
    }

    /// The new text of a reference; `None` if it stays.
    fn reference(&self, text: &str) -> Option<String> {
        let name = text.strip_prefix(DEFINITIONS)?;
        let renamed = self.names.contains(name);
        renamed.then(|| format!("{text}{}", self.suffix))
    }
}

/// Adds the paths of a [reduced](super::swagger::reduce) document, and its definitions, to a document. What that has stays
/// as it is: a definition with a name that another one has gets a new name, as by kube-aggregator. Without a new name for
/// them nothing is added, and the answer is `false`.
pub(super) fn merge(document: &mut Value, mut part: Value) -> bool {
    let taken = |of: &mut Value, key: &str| match of[key].take() {
        Value::Object(found) => found,
        _ => Object::new(),
    };
    let mut definitions = taken(document, "definitions");
    let added = taken(&mut part, "definitions");
    let done = match renames(&definitions, &added) {
        Some(renames) => {
            insert(&mut definitions, added, &renames);
            let paths = document["paths"].as_object_mut();
            let missing = taken(&mut part, "paths").into_iter();
            if let Some(paths) = paths {
                for (path, mut item) in missing {
                    rename(&mut item, &renames);
                    paths.entry(path).or_insert(item);
                }
            }
            true
        }
        None => false,
    };
    document["definitions"] = definitions.into();
    done
}

/// New names for the definitions whose names others have.
fn renames(known: &Object, added: &Object) -> Option<Renames> {
    let none = Renames {
        names: BTreeSet::new(),
        suffix: String::new(),
    };
    let conflicts = added.iter().filter(|(name, definition)| {
        let found = known.get(*name);
        found.is_some_and(|found| !is_same_definition(found, definition, &none))
    });
    let names: BTreeSet<String> = conflicts.map(|(name, _)| name.clone()).collect();
    if names.is_empty() {
        return Some(none);
    }
    let mut renames = Renames {
        names,
        suffix: String::new(),
    };
    for number in 2..=MOST_NAMES {
        renames.suffix = format!("_v{number}");
        let fits = renames.names.iter().all(|name| {
            let new = renames.of(name);
            let same = |found| is_same_definition(found, &added[name], &renames);
            !added.contains_key(&new) && known.get(&new).is_none_or(same)
        });
        if fits {
            return Some(renames);
        }
    }
    None
}

fn insert(definitions: &mut Object, added: Object, renames: &Renames) {
    for (name, mut definition) in added {
        match definitions.get_mut(&renames.of(&name)) {
            Some(known) => add_kinds(known, &definition),
            None => {
                rename(&mut definition, renames);
                definitions.insert(renames.of(&name), definition);
            }
        }
    }
}

/// Adds the kinds of a definition to those of another one that is the same.
fn add_kinds(known: &mut Value, definition: &Value) {
    let Some(more) = definition[KINDS].as_array() else {
        return;
    };
    let mut kinds = known[KINDS].as_array().cloned().unwrap_or_default();
    let before = kinds.len();
    for kind in more {
        if !kinds.contains(kind) {
            kinds.push(kind.clone());
        }
    }
    if kinds.len() > before {
        let text = |kind: &Value, key: &str| kind[key].as_str().unwrap_or_default().to_owned();
        kinds.sort_by_cached_key(|kind| ["group", "version", "kind"].map(|key| text(kind, key)));
        known[KINDS] = json!(kinds);
    }
}

/// Whether two definitions say the same, up to the kinds that they are of.
fn is_same_definition(known: &Value, added: &Value, renames: &Renames) -> bool {
    let (Some(known), Some(added)) = (known.as_object(), added.as_object()) else {
        return false;
    };
    let count = |of: &Object| of.len() - usize::from(of.contains_key(KINDS));
    let mut members = added.iter().filter(|(key, _)| *key != KINDS);
    count(known) == count(added)
        && members.all(|(key, value)| {
            let found = known.get(key);
            found.is_some_and(|found| is_same(key, found, value, renames))
        })
}

fn is_same(key: &str, known: &Value, added: &Value, renames: &Renames) -> bool {
    match (known, added) {
        (Value::String(known), Value::String(added)) if key == "$ref" => {
            match renames.reference(added) {
                Some(renamed) => *known == renamed,
                None => known == added,
            }
        }
        (Value::Array(known), Value::Array(added)) => {
            let mut pairs = known.iter().zip(added);
            known.len() == added.len() && pairs.all(|(a, b)| is_same("", a, b, renames))
        }
        (Value::Object(known), Value::Object(added)) => {
            known.len() == added.len()
                && added.iter().all(|(key, value)| {
                    let found = known.get(key);
                    found.is_some_and(|found| is_same(key, found, value, renames))
                })
        }
        (known, added) => known == added,
    }
}

/// Follows renamed definitions in all references.
fn rename(value: &mut Value, renames: &Renames) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|one| rename(one, renames)),
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(text) if key == "$ref" => {
                        if let Some(renamed) = renames.reference(text) {
                            *text = renamed;
                        }
                    }
                    value => rename(value, renames),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(name: &str) -> Value {
        json!({"$ref": format!("{DEFINITIONS}{name}")})
    }

    fn own() -> Value {
        json!({
            "paths": {"/apis/own/v1/things": {"get": 1}},
            "definitions": {
                "Meta": {"type": "object", "description": "own"},
                "Same": {"type": "string", KINDS: [{"group": "own", "kind": "Same", "version": "v1"}]},
            },
        })
    }

    fn part(group: &str, note: &str) -> Value {
        json!({
            "paths": {
                "/apis/own/v1/things": {"get": 2},
                format!("/apis/{group}/v1/things"): {"get": {"schema": reference("Meta")}},
            },
            "definitions": {
                "Meta": {"type": "object", "properties": {"inner": reference("Inner")}},
                "Inner": {"description": note},
                "Same": {"type": "string", KINDS: [{"group": group, "kind": "Same", "version": "v1"}]},
            },
        })
    }

    #[test]
    fn what_is_there_stays_and_conflicts_get_new_names() {
        let mut document = own();
        assert!(merge(&mut document, part("a", "")));
        let definitions = &document["definitions"];
        assert_eq!(document["paths"]["/apis/own/v1/things"]["get"], 1);
        assert_eq!(definitions["Meta"]["description"], "own");
        assert_eq!(
            document["paths"]["/apis/a/v1/things"]["get"]["schema"],
            reference("Meta_v2")
        );
        let inner = &definitions["Meta_v2"]["properties"]["inner"];
        assert_eq!(inner, &reference("Inner"));
        let groups = |document: &Value| -> Vec<String> {
            let kinds = document["definitions"]["Same"][KINDS].as_array().unwrap();
            let groups = kinds.iter().map(|kind| kind["group"].as_str().unwrap());
            groups.map(str::to_owned).collect()
        };
        assert_eq!(groups(&document), ["a", "own"]);
        // The next extension with the same definitions shares them; one with others does not.
        let count = |document: &Value| document["definitions"].as_object().unwrap().len();
        let before = count(&document);
        assert!(merge(&mut document, part("b", "")));
        assert_eq!(count(&document), before);
        assert_eq!(groups(&document), ["a", "b", "own"]);
        assert!(merge(&mut document, part("c", "other")));
        assert_eq!(count(&document), before + 2);
        let meta = &document["definitions"]["Meta_v3"];
        assert_eq!(meta["properties"]["inner"], reference("Inner_v3"));
        let used = &document["paths"]["/apis/c/v1/things"]["get"]["schema"];
        assert_eq!(used, &reference("Meta_v3"));
    }

    #[test]
    fn a_new_name_is_one_that_nothing_has() {
        let mut document = own();
        let mut part = part("a", "");
        part["definitions"]["Meta_v2"] = json!({"description": "own name"});
        assert!(merge(&mut document, part));
        let definitions = &document["definitions"];
        assert_eq!(definitions["Meta_v2"]["description"], "own name");
        assert_eq!(definitions["Meta_v3"]["type"], "object");
    }

    /// The attack: an extension takes all names that another one's definitions could get.
    #[test]
    fn without_a_name_nothing_is_added() {
        let mut document = own();
        let mut part = part("a", "");
        for number in 2..=MOST_NAMES {
            part["definitions"][format!("Meta_v{number}")] = json!({});
        }
        let before = document.clone();
        assert!(!merge(&mut document, part));
        assert_eq!(document, before);
    }
}
