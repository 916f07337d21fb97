//! Value validation with upstream's texts.
//!
//! The texts name a place relative to where validation began, and which of several alternatives is reported depends on how far each one came;
//! both are what people read, and so are kept to the letter.

use allot_apimachinery::{
    field::{BadValue, ErrorList, Path},
    quote::quote,
};
use serde_json::{Map, Value};

use super::{Additional, Pair, Structural, format, patterns};
use outcome::{Budget, Fault, Kind, Outcome};

mod number;
mod outcome;

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

/// A place below the one where validation began; put into words only where something is wrong.
struct At<'a> {
    above: Option<&'a At<'a>>,
    step: Step<'a>,
    budget: &'a Budget,
}

enum Step<'a> {
    Start,
    Property(&'a str),
    /// A key that `additionalProperties` speaks of. Upstream writes a dot before it even at the start.
    Key(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    fn start(budget: &'a Budget) -> Self {
        At {
            above: None,
            step: Step::Start,
            budget,
        }
    }

    fn below(&'a self, step: Step<'a>) -> At<'a> {
        At {
            above: Some(self),
            step,
            budget: self.budget,
        }
    }

    fn is_start(&self) -> bool {
        matches!(self.step, Step::Start)
    }

    fn write(&self, text: &mut String) {
        if let Some(above) = self.above {
            above.write(text);
        }
        match self.step {
            Step::Start => {}
            Step::Property(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Key(name) => {
                text.push('.');
                text.push_str(name);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }

    /// The place in words; `None` if too much text has been composed already.
    fn name(&self) -> Option<String> {
        if self.budget.is_spent() {
            return None;
        }
        let mut text = String::new();
        self.write(&mut text);
        self.budget.spend(&text);
        Some(text)
    }

    /// A fault whose text is `NAME in body TEXT`.
    fn fault(&self, kind: Kind, value: impl Into<BadValue>, text: &str) -> Fault {
        let Some(name) = self.name() else {
            return Fault::untold();
        };
        let text = format!("{name} in body {text}");
        self.budget.spend(&text);
        Fault {
            text: text.into(),
            name,
            value: value.into(),
            kind,
        }
    }

    /// A fault of the whole: the text names the place, the field is that where validation began.
    fn whole(&self, text: &str) -> Fault {
        match self.name() {
            Some(name) => Fault::of_start(format!("{} {text}", quote(&name))),
            None => Fault::untold(),
        }
    }
}

#[derive(Clone, Copy)]
struct Check {
    /// Formats count whatever the type; otherwise only those that fit the type.
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
            .filter(|(name, _)| !schema.properties.contains_key(*name));
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

fn wrong_type(expected: &str, found: &str, at: &At<'_>) -> Outcome {
    let text = format!("must be of type {expected}: {}", quote(found));
    Outcome::of(at.fault(Kind::Type, found, &text))
}

fn check_null(expected: &str, nullable: bool, at: &At<'_>) -> Outcome {
    if expected.is_empty() || expected == "null" || nullable {
        return Outcome::passed();
    }
    wrong_type(expected, "null", at)
}

fn check_type(value: &Value, expected: &str, format: &str, at: &At<'_>) -> Outcome {
    let expects = |ty: &str| expected.split(',').any(|expected| expected == ty);
    let (found, found_format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let fits = expects(found)
        || match value {
            Value::Number(number) if found == "number" => {
                expects("integer") && number.as_f64().is_some_and(number::is_whole)
            }
            Value::Number(_) => expects("number"),
            _ => false,
        };
    let textual = matches!(value, Value::String(_) | Value::Array(_));
    if !textual && !format.is_empty() && !fits && found_format != format {
        return wrong_type(format, found_format, at);
    }
    // Upstream leaves texts and lists with a format to the check of the format.
    let left_to_format = textual && !format.is_empty() && !expects("number") && !expects("integer");
    if fits || left_to_format {
        return Outcome::passed();
    }
    wrong_type(expected, found, at)
}

/// How many elements or fields there may be.
fn check_size(
    count: i64,
    min: Option<i64>,
    max: Option<i64>,
    what: &str,
    at: &At<'_>,
    found: &mut Outcome,
) {
    if let Some(min) = min.filter(|min| count < *min) {
        let text = format!("should have at least {min} {what}");
        found.add(at.fault(Kind::Other, count, &text));
    }
    if let Some(max) = max.filter(|max| count > *max) {
        let text = format!("should have at most {max} {what}");
        found.add(at.fault(Kind::TooMany { count, max }, count, &text));
    }
}

fn check_enum(value: &Value, schema: &Structural, at: &At<'_>) -> Outcome {
    let Some(allowed) = schema.checks.allowed.as_ref().filter(|all| !all.is_empty()) else {
        return Outcome::default();
    };
    if !value.is_null() && allowed.iter().any(|allowed| number::same(value, allowed)) {
        return Outcome::default();
    }
    if at.budget.is_spent() {
        return Outcome::of(Fault::untold());
    }
    let shown = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let names: Vec<String> = allowed.iter().map(shown).collect();
    let text = format!("should be one of [{}]", names.join(" "));
    Outcome::of(at.fault(Kind::Enum(names), value, &text))
}

fn check_string(text: &str, schema: &Structural, at: &At<'_>) -> Outcome {
    let checks = &schema.checks;
    let length = text.chars().count() as i64;
    let fault = if let Some(max) = checks.max_length.filter(|max| length > *max) {
        let words = format!("should be at most {max} chars long");
        at.fault(Kind::TooLong(max), text, &words)
    } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
        let words = format!("should be at least {min} chars long");
        at.fault(Kind::Other, text, &words)
    } else if !checks.pattern.is_empty() && !patterns::matches(&checks.pattern, text) {
        if at.budget.is_spent() {
            return Outcome::of(Fault::untold());
        }
        let words = format!("should match '{}'", checks.pattern);
        at.fault(Kind::Other, text, &words)
    } else {
        return Outcome::default();
    };
    Outcome::of(fault)
}

fn check_format(text: &str, format: &str, at: &At<'_>) -> Outcome {
    if format::check(format, text) {
        return Outcome::default();
    }
    let words = format!("must be of type {format}: {}", quote(text));
    Outcome::of(at.fault(Kind::Type, text, &words))
}
