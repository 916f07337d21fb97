//! CEL expressions over all devices, as the scheduler evaluates them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_cel::device::{Device, MAX_COST, MAX_LENGTH, Options, Selector, compile};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use crate::Dashboard;
use crate::kind::Kind;
use crate::list::{ListRequest, PAGE, page};
use crate::upstream::Failed;

/// How long all evaluations of a request may take together with the lists.
const PATIENCE: Duration = Duration::from_secs(45);

/// Selectors that must all match, as those of a DeviceClass.
pub struct Rule {
    /// The selectors.
    pub selectors: Vec<Selector>,
}

/// Which devices a rule selects.
#[derive(Default)]
pub struct Selected {
    /// For each slice by name, the places of its devices: `0-3,7`.
    slices: BTreeMap<String, String>,
    /// How many there are.
    count: usize,
    /// On how many devices there is no answer, and the first reason.
    errors: usize,
    error: Option<String>,
}

impl Selected {
    /// For the page.
    pub fn json(&self) -> Value {
        json!({
            "slices": self.slices, "count": self.count, "errors": self.errors, "error": self.error,
        })
    }
}

/// Compiles an expression and applies the limits of the API.
///
/// # Errors
/// The API server's error for it.
pub fn selector(expression: &str, options: &Options) -> Result<Selector, String> {
    if expression.len() > MAX_LENGTH {
        return Err(format!("may not be more than {MAX_LENGTH} bytes"));
    }
    let selector = compile(expression, options).map_err(|error| error.to_string())?;
    match selector.max_cost() > MAX_COST {
        true => Err("too complex, exceeds cost limit".to_owned()),
        false => Ok(selector),
    }
}

/// Answers `api/filter`: `{"expression": …}`.
///
/// # Errors
/// The expression is wrong, or devices cannot be listed.
pub async fn answer(
    dashboard: &Dashboard,
    client: &kube::Client,
    body: &[u8],
    permit: OwnedSemaphorePermit,
) -> Result<Value, Failed> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|_| Failed::Asked("the body is no JSON object".to_owned()))?;
    let expression = body["expression"].as_str();
    let expression = expression.ok_or_else(|| Failed::Asked("no expression".to_owned()))?;
    let selectors = vec![selector(expression, &Options::default()).map_err(Failed::Asked)?];
    let selected = select(dashboard, client, vec![Rule { selectors }], permit).await?;
    let selected = selected.first().map(Selected::json);
    Ok(selected.unwrap_or_default())
}

/// Evaluates rules on all devices.
///
/// # Errors
/// Devices cannot be listed, or it takes too long.
pub async fn select(
    dashboard: &Dashboard,
    client: &kube::Client,
    rules: Vec<Rule>,
    permit: OwnedSemaphorePermit,
) -> Result<Vec<Selected>, Failed> {
    let end = Instant::now() + PATIENCE;
    let rules = Arc::new(rules);
    // Held by the evaluation, which continues for a moment after the page has disconnected.
    let permit = Arc::new(permit);
    let mut all: Vec<Selected> = rules.iter().map(|_| Selected::default()).collect();
    let mut next = String::new();
    loop {
        let wanted = ListRequest {
            kind: Kind::Slices,
            namespace: None,
            next: (!next.is_empty()).then_some(&next),
            limit: PAGE,
        };
        let page = page(dashboard, client, wanted).await?;
        let (rules, permit) = (rules.clone(), permit.clone());
        let work = move || {
            let _permit = permit;
            evaluate(&page.items, &rules, &mut all, end).map(|()| all)
        };
        let done = tokio::task::spawn_blocking(work).await;
        all = done.map_err(|_| Failed::Unreadable("an evaluation failed"))??;
        if page.next.is_empty() {
            return Ok(all);
        }
        next = page.next;
    }
}

fn evaluate(
    slices: &[Value],
    rules: &[Rule],
    all: &mut [Selected],
    end: Instant,
) -> Result<(), Failed> {
    let late = || Instant::now() > end;
    for slice in slices {
        let spec = &slice["spec"];
        let driver = spec["driver"].as_str().unwrap_or_default();
        let devices = spec["devices"].as_array().into_iter().flatten();
        // Before v1beta2 the content was in a separate field.
        let content = devices.map(|device| device.get("basic").unwrap_or(device));
        let devices: Vec<Device> = content.map(|d| Device::from_json(driver, d)).collect();
        for (rule, selected) in rules.iter().zip(&mut *all) {
            let mut places = Vec::new();
            for (place, device) in devices.iter().enumerate() {
                match matches(rule, device, &late) {
                    Ok(true) => places.push(place),
                    Ok(false) => {}
                    Err(error) => {
                        selected.errors += 1;
                        selected.error.get_or_insert(error);
                    }
                }
                if late() {
                    return Err(Failed::Late);
                }
            }
            if let (Some(name), false) = (slice["metadata"]["name"].as_str(), places.is_empty()) {
                selected.count += places.len();
                selected.slices.insert(name.to_owned(), ranges(&places));
            }
        }
    }
    Ok(())
}

fn matches(rule: &Rule, device: &Device, late: &dyn Fn() -> bool) -> Result<bool, String> {
    for selector in &rule.selectors {
        match selector.evaluate(device, Some(late)).0 {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(true)
}

/// Ascending places as `0-3,7`.
fn ranges(places: &[usize]) -> String {
    let mut text = String::new();
    let runs = places.chunk_by(|a, b| a + 1 == *b);
    for run in runs {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match run {
            [one] => write!(text, "{comma}{one}"),
            [first, .., last] => write!(text, "{comma}{first}-{last}"),
            [] => Ok(()),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, expected: &str) {
        let rule = Rule {
            selectors: vec![selector(expression, &Options::default()).expect("it compiles")],
        };
        let device = |model: &str| json!({"name": "d", "attributes": {"model": {"string": model}}});
        let slices = [json!({
            "metadata": {"name": "s"},
            "spec": {"driver": "d.example.com", "devices": [
                device("a"), device("a"), device("b"), {"name": "d", "basic": device("a")},
            ]},
        })];
        let mut all = [Selected::default()];
        let end = Instant::now() + PATIENCE;
        evaluate(&slices, &[rule], &mut all, end).expect("in time");
        let found = all[0].slices.get("s").map(String::as_str);
        assert_eq!(found.unwrap_or_default(), expected, "{expression}");
    }

    #[test]
    fn devices_are_selected_as_the_scheduler_does() {
        check(
            r#"device.attributes["d.example.com"].model == "a""#,
            "0-1,3",
        );
        check(r#"device.attributes["d.example.com"].model == "b""#, "2");
        check(r#"device.attributes["other.example.com"].x == "b""#, "");
        check(r#"device.driver == "d.example.com""#, "0-3");
    }

    #[test]
    fn what_the_api_refuses_is_refused() {
        let refused = |expression: &str| selector(expression, &Options::default()).is_err();
        assert!(refused("device."));
        assert!(refused("'text'"));
        assert!(refused(&format!("true{}", " ".repeat(MAX_LENGTH))));
    }

    #[test]
    fn an_evaluation_ends_in_time() {
        let rule = Rule {
            selectors: vec![selector("true", &Options::default()).expect("it compiles")],
        };
        let slices = [json!({"spec": {"devices": [{"name": "d"}]}})];
        let end = Instant::now() - Duration::from_secs(1);
        let result = evaluate(&slices, &[rule], &mut [Selected::default()], end);
        assert!(matches!(result, Err(Failed::Late)));
    }
}
