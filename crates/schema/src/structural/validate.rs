//! Value validation with upstream's texts.
//!
//! The texts name a place relative to where validation began, and which of several alternatives is reported depends on how far each one came;
//! both are what people read, and so are kept to the letter.

use allot_apimachinery::field::{ErrorList, Path};
use serde_json::{Map, Value};

use super::{Additional, Pair, Structural, format};
use outcome::{Budget, Fault, Kind, Outcome};
use position::{At, Step};
use scalar::{check_enum, check_format, check_null, check_size, check_string, check_type};

mod number;
mod outcome;
mod position;
mod scalar;

/// Checks a new value. `path` leads to it.
pub fn validate(value: &Value, schema: &Structural, path: &Path) -> ErrorList {
    let check = Check { all_formats: false };
    let budget = Budget::default();
    let found = check.value(value, schema, &At::start(&budget), None);
    budget.finish(found, path)
}

/// As [`validate`] for an update: errors of parts that did not change are dropped.
pub fn validate_update(value: &Value, old: &Value, schema: &Structural, path: &Path) -> ErrorList {
    let check = Check { all_formats: false };
    let pair = Some(Pair::new(value, old, schema));
    let budget = Budget::default();
    let found = check.value(value, schema, &At::start(&budget), pair);
    budget.finish(found, path)
}

/// As [`validate`] for the default of a schema, where formats of every type count.
pub fn validate_default(value: &Value, schema: &Structural, path: &Path) -> ErrorList {
    let check = Check { all_formats: true };
    let budget = Budget::default();
    let found = check.value(value, schema, &At::start(&budget), None);
    budget.finish(found, path)
}

#[derive(Clone, Copy)]
struct Check {
    /// Formats apply to values of any type; otherwise only those that fit the type.
    all_formats: bool,
}

impl Check {
    /// Checks a value and drops what is wrong where nothing changed.
    fn value(
        self,
        value: &Value,
        schema: &Structural,
        at: &At<'_>,
        pair: Option<Pair<'_>>,
    ) -> Outcome {
        let mut outcome = self.all(value, schema, at, pair);
        if !outcome.faults.is_empty() && pair.is_some_and(Pair::unchanged) {
            outcome.forgive();
        }
        outcome
    }

    fn all(
        self,
        value: &Value,
        schema: &Structural,
        at: &At<'_>,
        pair: Option<Pair<'_>>,
    ) -> Outcome {
        let format = self.format(schema);
        let mut found = Outcome::default();
        if !at.budget.step() {
            return found;
        }
        if value.is_null() {
            found.merge(check_null(self.types(schema), schema.nullable, at));
            found.merge(check_enum(value, schema, at));
            return found;
        }
        let types = self.types(schema);
        if !types.is_empty() || !format.is_empty() {
            found.step(check_type(value, types, format, at));
        }
        found.step(self.junctors(value, schema, at, pair));
        match value {
            Value::String(text) => {
                found.step(check_string(text, schema, at));
                if format::known(format) {
                    found.step(check_format(text, format, at));
                }
            }
            Value::Number(number) => {
                found.step(number::check(value, number, schema, format, at));
            }
            Value::Array(items) => found.step(self.list(items, schema, at, pair)),
            _ => {}
        }
        found.step(check_enum(value, schema, at));
        if let Value::Object(map) = value {
            found.step(self.object(map, schema, at, pair));
        }
        found.matches += 1;
        found
    }

    /// The format that counts. Objects of a definition are held only to formats that go with the type and were known before.
    fn format(self, schema: &Structural) -> &str {
        let format = schema.checks.format.as_str();
        let ty = if schema.int_or_string { "" } else { &schema.ty };
        let counts = match ty {
            _ if self.all_formats => true,
            "" | "string" => format::known(format),
            "integer" => matches!(format, "int32" | "int64"),
            "number" => matches!(format, "float" | "double"),
            _ => false,
        };
        if counts { format } else { "" }
    }

    /// The types that fit, with commas between them. Upstream does not look at the type of an int-or-string in a default.
    fn types(self, schema: &Structural) -> &str {
        if schema.int_or_string && !self.all_formats {
            "integer,string"
        } else {
            &schema.ty
        }
    }

    fn list(
        self,
        items: &[Value],
        schema: &Structural,
        at: &At<'_>,
        pair: Option<Pair<'_>>,
    ) -> Outcome {
        let mut found = Outcome::default();
        if let Some(element) = &schema.items {
            let mut before = pair.map(|pair| pair.elements().into_iter());
            for (index, item) in items.iter().enumerate() {
                let pair = before.as_mut().and_then(|all| all.next().flatten());
                let at = at.below(Step::Index(index));
                found.merge(self.value(item, element, &at, pair));
            }
        }
        let (checks, count) = (&schema.checks, items.len() as i64);
        check_size(
            count,
            checks.min_items,
            checks.max_items,
            "items",
            at,
            &mut found,
        );
        if checks.unique_items && (1..items.len()).any(|n| items[..n].contains(&items[n])) {
            found.add(at.fault(Kind::Other, "", "shouldn't contain duplicates"));
        }
        found.matches += 1;
        found
    }

    fn object(
        self,
        map: &Map<String, Value>,
        schema: &Structural,
        at: &At<'_>,
        pair: Option<Pair<'_>>,
    ) -> Outcome {
        let mut found = Outcome::default();
        let (checks, count) = (&schema.checks, map.len() as i64);
        check_size(
            count,
            checks.min_properties,
            checks.max_properties,
            "properties",
            at,
            &mut found,
        );
        let below = |name: &str| {
            // What an object is says nothing about what it was.
            let typed = at.is_start() && matches!(name, "apiVersion" | "kind");
            pair.filter(|_| !typed).and_then(|pair| pair.key(name))
        };
        let unknown = map
            .iter()
            .filter(|(name, _)| !schema.properties.contains_key(name));
        match &schema.additional {
            Additional::Allowed(false) => {
                for (name, _) in unknown {
                    let told = at.name().map(|place| Fault {
                        text: format!("{place}.{name} in body is a forbidden property").into(),
                        name: place,
                        value: name.into(),
                        kind: Kind::Other,
                    });
                    found.add(told.unwrap_or_else(Fault::untold));
                }
            }
            Additional::Schema(sub) => {
                for (name, value) in unknown {
                    let at = at.below(Step::Key(name));
                    found.merge(self.value(value, sub, &at, below(name)));
                }
            }
            _ => {}
        }
        for (name, property) in &schema.properties {
            if let Some(value) = map.get(name) {
                let at = at.below(Step::Property(name));
                found.merge(self.value(value, property, &at, below(name)));
            }
        }
        for name in &checks.required {
            if !map.contains_key(name) {
                let missing = at.below(Step::Key(name));
                found.add(missing.fault(Kind::Required, "", "is required"));
            }
        }
        found
    }

    fn junctors(
        self,
        value: &Value,
        schema: &Structural,
        at: &At<'_>,
        pair: Option<Pair<'_>>,
    ) -> Outcome {
        let checks = &schema.checks;
        let run = |sub: &Structural| self.all(value, sub, at, pair);
        let mut found = Outcome::default();
        if !checks.any_of.is_empty() {
            let mut closest: Option<Outcome> = None;
            let mut fits = None;
            for outcome in checks.any_of.iter().map(run) {
                if outcome.faults.is_empty() {
                    fits = Some(outcome);
                    break;
                }
                closest = Some(closer(closest, outcome));
            }
            if fits.is_none() {
                found.add(at.whole("must validate at least one schema (anyOf)"));
            }
            found.merge(fits.or(closest).unwrap_or_default());
        }
        if !checks.one_of.is_empty() {
            let mut closest: Option<Outcome> = None;
            let mut first = None;
            let mut fitting = 0;
            for outcome in checks.one_of.iter().map(run) {
                if outcome.faults.is_empty() {
                    fitting += 1;
                    first.get_or_insert(outcome);
                } else if fitting == 0 {
                    closest = Some(closer(closest, outcome));
                }
            }
            let text = "must validate one and only one schema (oneOf).";
            match fitting {
                1 => found.merge(first.unwrap_or_default()),
                0 => {
                    found.add(at.whole(&format!("{text} Found none valid")));
                    found.merge(closest.unwrap_or_default());
                }
                many => found.add(at.whole(&format!("{text} Found {many} valid alternatives"))),
            }
        }
        if !checks.all_of.is_empty() {
            let mut fitting = 0;
            for outcome in checks.all_of.iter().map(run) {
                fitting += usize::from(outcome.faults.is_empty());
                found.merge(outcome);
            }
            if fitting != checks.all_of.len() {
                let none = if fitting == 0 { ". None validated" } else { "" };
                let text = format!("must validate all the schemas (allOf){none}");
                found.add(at.whole(&text));
            }
        }
        if let Some(not) = &checks.not
            && run(not).faults.is_empty()
        {
            found.add(at.whole("must not validate the schema (not)"));
        }
        found.matches += 1;
        found
    }
}

/// Of two alternatives that failed, the one that came further; the first where both came as far.
fn closer(best: Option<Outcome>, next: Outcome) -> Outcome {
    match best {
        Some(best) if best.matches >= next.matches => best,
        _ => next,
    }
}
