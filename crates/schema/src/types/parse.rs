//! Reading `data/types.txt`.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use super::{Field, Patch, Struct, Topology, Type, resolve};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Calls `found` with the package and the lines of every type.
pub(super) fn index(source: &'static str, mut found: impl FnMut(&'static str, &'static str)) {
    let mut package = "";
    let mut start: Option<usize> = None;
    let mut offset = 0;
    for line in source.split_inclusive('\n') {
        if !line.starts_with('\t') {
            if let Some(from) = start.take() {
                found(package, &source[from..offset]);
            }
            if let Some(name) = line.strip_prefix("# ") {
                package = name.trim_end();
            } else if !line.starts_with("//") && !line.trim().is_empty() {
                start = Some(offset);
            }
        }
        offset += line.len();
    }
    if let Some(from) = start {
        found(package, &source[from..offset]);
    }
}

/// Parses the lines of one type.
pub(super) fn structure(package: &'static str, text: &'static str) -> Struct {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let mut words = head.split(' ');
    let simple = words.next().unwrap_or_default();
    let mut result = Struct {
        name: full_name(package, simple),
        fields: Vec::new(),
        atomic: false,
        gvk: None,
        any_group: false,
        alias: None,
        raw_names: OnceLock::new(),
        message: OnceLock::new(),
        always: Vec::new(),
        places: FxHashMap::default(),
    };
    for word in words {
        if let Some(gvk) = word.strip_prefix("gvk=") {
            let mut parts = gvk.split('/');
            if let (Some(group), Some(version), Some(kind)) =
                (parts.next(), parts.next(), parts.next())
            {
                result.gvk = Some((group, version, kind));
            }
        } else if let Some(name) = word.strip_prefix("is=") {
            result.alias = Some(type_of(package, name));
        } else if word == "atomic" {
            result.atomic = true;
        } else if word == "anygroup" {
            result.any_group = true;
        }
    }
    result.fields = lines
        .map(|line| field(package, line.trim_start_matches('\t')))
        .collect();
    result.fields.sort_by_key(|f| f.name);
    for (place, field) in (0u16..).zip(&result.fields) {
        result.places.insert(field.name, place);
        if field.is_always_written() {
            result.always.push(place);
        }
    }
    result
}

/// The full name as one string. It is needed for error texts and documents only, once per type, and lives as long as the registry.
fn full_name(package: &'static str, simple: &'static str) -> &'static str {
    Box::leak(format!("{package}.{simple}").into_boxed_str())
}

fn field(package: &'static str, line: &'static str) -> Field {
    // A default may hold blanks, no other word does.
    let mut words = line.split(' ');
    let mut field = Field {
        name: words.next().unwrap_or_default(),
        ty: type_of(package, words.next().unwrap_or_default()),
        required: None,
        pointer: false,
        omit_empty: false,
        omit_zero: false,
        proto: 0,
        default: None,
        values: Vec::new(),
        go_type: None,
        topology: Topology::Unset,
        patch: Patch::default(),
    };
    for word in words {
        if let Some(place) = word.strip_prefix('!') {
            field.required = place.parse().ok();
        } else if let Some(number) = word.strip_prefix('#') {
            field.proto = number.parse().unwrap_or_default();
        } else if let Some(default) = word.strip_prefix("d=") {
            field.default = serde_json::from_str(default).ok();
        } else if let Some(values) = word.strip_prefix("e=") {
            let values = values.split('|').map(|value| value.replace('_', " "));
            field.values = values.collect();
        } else if let Some(name) = word.strip_prefix("t=") {
            field.go_type = Some(name);
        } else if let Some(keys) = word.strip_prefix("map=") {
            field.topology = Topology::Map(keys.split(',').collect());
        } else if let Some(patch) = word.strip_prefix("patch=") {
            let (strategy, key) = patch
                .split_once(':')
                .map_or((patch, None), |(s, k)| (s, Some(k)));
            field.patch = Patch {
                merge: strategy.split('+').any(|s| s == "merge"),
                replace: strategy.split('+').any(|s| s == "replace"),
                retain_keys: strategy.split('+').any(|s| s == "retainKeys"),
                merge_key: key,
            };
        } else {
            match word {
                "set" => field.topology = Topology::Set,
                "atomic" => field.topology = Topology::Atomic,
                "granular" => field.topology = Topology::Granular,
                flags => {
                    field.pointer = flags.contains('*');
                    field.omit_empty = flags.contains('o');
                    field.omit_zero = flags.contains('z');
                }
            }
        }
    }
    field
}

fn type_of(package: &'static str, text: &'static str) -> Type {
    if let Some(element) = text.strip_prefix("[]") {
        return Type::List(Box::new(type_of(package, element)));
    }
    if let Some(element) = text.strip_prefix("{}") {
        return Type::Map(Box::new(type_of(package, element)));
    }
    match text {
        "str" => Type::String,
        "bool" => Type::Bool,
        "i32" => Type::Int32,
        "i64" => Type::Int64,
        "f64" => Type::Double,
        "bytes" => Type::Bytes,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "duration" => Type::Duration,
        "quantity" => Type::Quantity,
        "intstr" => Type::IntOrString,
        "raw" => Type::Raw,
        "json" => Type::Json,
        "schemaorbool" => Type::SchemaOrBool,
        "schemaorarray" => Type::SchemaOrArray,
        name => reference(package, name).map_or(Type::Json, Type::Struct),
    }
}

fn reference(package: &'static str, name: &'static str) -> Option<super::StructId> {
    if let Some(simple) = name.strip_prefix('.') {
        return resolve(package, simple);
    }
    if let Some(simple) = name.strip_prefix("meta.") {
        return resolve(META, simple);
    }
    // Another package, with `io.k8s.` left out; the full package name is that of some type we know.
    let (rest, simple) = name.rsplit_once('.')?;
    super::registry()
        .by_name
        .iter()
        .find(|((p, s), _)| {
            *s == simple
                && (p.strip_prefix("io.k8s.") == Some(rest)
                    || p.strip_prefix("io.k8s.apimachinery.pkg.")
                        .is_some_and(|p| rest.strip_prefix("apimachinery.") == Some(p)))
        })
        .map(|(_, id)| *id)
}
