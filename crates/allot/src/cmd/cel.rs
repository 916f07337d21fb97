//! `allot cel`: type, cost and value of a device selector, or what is wrong with it.

use std::{
    fs,
    io::{Read, Write, stdout},
    path::PathBuf,
};

use allot_cel::device::{Device, MAX_COST, MAX_LENGTH, Options, Selector, compile};
use anyhow::{Context, bail};
use serde_json::{Value, json};

/// Flags of `allot cel`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The CEL expression; `-` reads it from standard input
    expression: String,
    /// ResourceSlice manifest (YAML or JSON, several documents allowed) whose devices the expression is evaluated on
    #[arg(long, value_name = "FILE")]
    slice: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// Without the feature DRAConsumableCapacity (device.allowMultipleAllocations)
    #[arg(long)]
    no_consumable_capacity: bool,
    /// Without the feature DRAListTypeAttributes (lists as attributes, includes)
    #[arg(long)]
    no_list_attributes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

/// A device of a slice, with the name that the output shows.
struct Named {
    name: String,
    device: Device,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let mut expression = args.expression;
    if expression == "-" {
        expression.clear();
        std::io::stdin()
            .read_to_string(&mut expression)
            .context("cannot read the expression")?;
    }
    let options = Options {
        consumable_capacity: !args.no_consumable_capacity,
        list_type_attributes: !args.no_list_attributes,
        ..Options::default()
    };
    let devices = match &args.slice {
        Some(file) => read_devices(file)?,
        None => Vec::new(),
    };
    let selector = match compile(&expression, &options) {
        Ok(selector) => selector,
        Err(error) if args.output == Output::Json => {
            writeln!(
                stdout(),
                "{:#}",
                json!({"expression": expression, "compileError": error.to_string()})
            )?;
            bail!("the expression does not compile");
        }
        Err(error) => bail!("{error}"),
    };
    match args.output {
        Output::Text => write!(stdout(), "{}", text(&expression, &selector, &devices))?,
        Output::Json => writeln!(stdout(), "{:#}", report(&expression, &selector, &devices))?,
    }
    Ok(())
}

fn report(expression: &str, selector: &Selector, devices: &[Named]) -> Value {
    let devices: Vec<Value> = devices
        .iter()
        .map(
            |Named { name, device }| match selector.matches_with_cost(device) {
                (Ok(matches), cost) => json!({"device": name, "matches": matches, "cost": cost}),
                (Err(error), cost) => {
                    json!({"device": name, "evaluationError": error.to_string(), "cost": cost})
                }
            },
        )
        .collect();
    json!({
        "expression": expression,
        "type": selector.output().to_string(),
        "maxCost": selector.max_cost(),
        "admitted": refusal(expression, selector).is_none(),
        "devices": devices,
    })
}

fn text(expression: &str, selector: &Selector, devices: &[Named]) -> String {
    let mut out = format!(
        "type:     {}\nmax cost: {} of {MAX_COST}\n",
        selector.output(),
        selector.max_cost()
    );
    if let Some(problem) = refusal(expression, selector) {
        out.push_str(&format!("refused:  {problem}\n"));
    }
    let width = devices
        .iter()
        .map(|named| named.name.len())
        .max()
        .unwrap_or(0);
    for Named { name, device } in devices {
        let (result, cost) = selector.matches_with_cost(device);
        let value = match result {
            Ok(matches) => matches.to_string(),
            Err(error) => format!("error: {error}"),
        };
        out.push_str(&format!("{name:width$}  {value:5}  cost {cost}\n"));
    }
    out
}

/// Why the API would not take an expression that compiles.
fn refusal(expression: &str, selector: &Selector) -> Option<String> {
    if expression.len() > MAX_LENGTH {
        return Some(format!("may not be more than {MAX_LENGTH} bytes"));
    }
    (selector.max_cost() > MAX_COST).then(|| "too complex, exceeds cost limit".to_owned())
}

fn read_devices(file: &PathBuf) -> anyhow::Result<Vec<Named>> {
    let content =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&content)
        .with_context(|| format!("{} is neither YAML nor JSON", file.display()))?;
    let mut devices = Vec::new();
    for document in &documents {
        let items = document["items"].as_array();
        for slice in items.map_or(std::slice::from_ref(document), Vec::as_slice) {
            if slice["kind"]
                .as_str()
                .is_some_and(|kind| kind != "ResourceSlice")
            {
                continue;
            }
            let spec = &slice["spec"];
            let driver = spec["driver"].as_str().unwrap_or_default();
            let pool = spec["pool"]["name"].as_str().unwrap_or_default();
            for device in spec["devices"].as_array().into_iter().flatten() {
                let name = format!(
                    "{driver}/{pool}/{}",
                    device["name"].as_str().unwrap_or_default()
                );
                // Before v1beta2 the content was in a field of its own.
                let content = device.get("basic").unwrap_or(device);
                devices.push(Named {
                    name,
                    device: Device::from_json(driver, content),
                });
            }
        }
    }
    if devices.is_empty() {
        bail!("{} has no ResourceSlice with devices", file.display());
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_each_device() {
        let selector = compile(
            "device.attributes['gpu.example.com'].memory >= 40",
            &Options::default(),
        )
        .unwrap();
        let named = |name: &str, device: Value| Named {
            name: name.to_owned(),
            device: Device::from_json("gpu.example.com", &device),
        };
        let devices = [
            named("a", json!({"attributes": {"memory": {"int": 80}}})),
            named("bb", json!({"attributes": {}})),
        ];
        assert_eq!(
            text("x", &selector, &devices),
            "type:     bool\nmax cost: 5 of 1000000\na   true   cost 5\nbb  error: no such key: memory  cost 5\n"
        );
        assert_eq!(
            report("x", &selector, &devices)["devices"][0]["matches"],
            true
        );
    }
}
