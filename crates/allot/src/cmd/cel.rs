//! `allot cel`: type, cost and value of a device selector, or its error.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use allot_apimachinery::suggest;
use allot_cel::device::{Device, MAX_COST, MAX_LENGTH, Options, Selector, compile};
use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::output::lines;
use super::snapshot::{Kinds, Source};
use super::{component, some};

/// Flags of `allot cel`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
  allot cel 'device.attributes[\"gpu.example.com\"].index < 3' --slice slice.yaml
  allot cel 'device.driver == \"gpu.example.com\"' --cluster
  allot cel --class gpu.example.com         what the selectors of a class select
  allot cel EXPRESSION --class gpu.example.com --node node-0

With --driver or --node it is evaluated on the devices of the cluster, unless --slice
names a file.")]
pub struct Args {
    /// The CEL expression; `-` reads it from standard input. The selectors of the class when absent
    #[arg(required_unless_present = "class")]
    expression: Option<String>,
    /// ResourceSlice manifest (YAML or JSON, several documents allowed, `-` for standard input) whose devices it is evaluated on
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "from", "class"])]
    slice: Option<PathBuf>,
    /// Evaluate it on the devices of the cluster
    #[arg(long)]
    cluster: bool,
    /// Only on devices of this device class of the cluster
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Only on devices of this driver
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// Only on devices of this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    source: Source,
    /// How to print the result
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
    /// A line per device
    Text,
    /// One JSON object on a line
    Json,
    /// The same as a YAML document
    Yaml,
}

impl Args {
    /// Whether the devices of the cluster are meant: a node or a driver is one of the cluster unless there is a file.
    fn is_about_cluster(&self) -> bool {
        self.cluster
            || self.class.is_some()
            || self.driver.is_some()
            || self.node.is_some()
            || self.source.is_given()
    }
}

/// A device of a slice, with the name that the output shows.
struct Named {
    name: String,
    device: Device,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let options = Options {
        consumable_capacity: !args.no_consumable_capacity,
        list_type_attributes: !args.no_list_attributes,
        ..Options::default()
    };
    let from_stdin = args.expression.as_deref() == Some("-");
    let mut expressions: Vec<String> = args.expression.clone().into_iter().collect();
    if from_stdin {
        let slice_too = args.slice.as_deref() == Some(Path::new("-"));
        anyhow::ensure!(
            !slice_too,
            "standard input is the expression or the slice, not both"
        );
        expressions =
            vec![std::io::read_to_string(std::io::stdin()).context("cannot read the expression")?];
    }
    let mut devices = Vec::new();
    if let Some(file) = &args.slice {
        devices = select(&read_slices(file)?, &args)?;
    } else if args.is_about_cluster() {
        let source = &args.source;
        let snapshot = component::read(source.snapshot(Kinds::Devices, None))?;
        super::may_list(&snapshot, "ResourceSlice", "devices")?;
        devices = select(&snapshot.objects, &args)?;
        if let Some(class) = &args.class {
            super::may_list(&snapshot, "DeviceClass", "classes")?;
            let selectors = selectors_of(class, &snapshot.objects)?;
            if expressions.is_empty() {
                anyhow::ensure!(
                    !selectors.is_empty(),
                    "class {class} has no selectors: it has all devices"
                );
                expressions = selectors;
            } else {
                devices.retain(|named| {
                    selectors.iter().all(|selector| {
                        let selector = compile(selector, &options).ok();
                        selector.is_some_and(|s| s.matches(&named.device).unwrap_or_default())
                    })
                });
            }
        }
    }
    let is_for_devices = args.slice.is_some() || args.is_about_cluster();
    if is_for_devices && devices.is_empty() && args.output == Output::Text {
        eprintln!("{}", nothing(&args));
    }
    for expression in &expressions {
        evaluate(expression, &options, &devices, args.output)?;
    }
    Ok(())
}

/// Says why there is no line for a device.
fn nothing(args: &Args) -> String {
    match (&args.class, &args.slice) {
        (Some(class), _) => format!("class {class} has no such device"),
        (None, Some(file)) => format!("there is no device in {}", file.display()),
        (None, None) => "there is no device: no driver has published any".to_owned(),
    }
}

/// Prints the result of an expression.
fn evaluate(
    expression: &str,
    options: &Options,
    devices: &[Named],
    output: Output,
) -> anyhow::Result<()> {
    let selector = match compile(expression, options) {
        Ok(selector) => selector,
        Err(error) if output != Output::Text => {
            let line = json!({"expression": expression, "compileError": error.to_string()});
            writeln!(lines(output == Output::Yaml), "{line}")?;
            bail!("the expression does not compile");
        }
        Err(error) => bail!("{error}"),
    };
    match output {
        Output::Text => write!(stdout(), "{}", text(expression, &selector, devices))?,
        Output::Json | Output::Yaml => {
            let report = report(expression, &selector, devices);
            writeln!(lines(output == Output::Yaml), "{report}")?;
        }
    }
    Ok(())
}

/// The devices of the slices among the objects, of the wanted node and driver.
fn select(objects: &[Value], args: &Args) -> anyhow::Result<Vec<Named>> {
    let slices = objects.iter().filter(|o| o["kind"] == "ResourceSlice");
    let (node, driver) = (args.node.as_deref(), args.driver.as_deref());
    known("node", node, slices.clone(), "/spec/nodeName")?;
    known("driver", driver, slices.clone(), "/spec/driver")?;
    let slices = slices.filter(|slice| is(slice, "/spec/nodeName", node));
    let slices = slices.filter(|slice| is(slice, "/spec/driver", driver));
    Ok(slices.flat_map(devices_of).collect())
}

/// Refuses a name that no slice has in a field.
fn known<'a>(
    what: &str,
    wanted: Option<&str>,
    slices: impl Iterator<Item = &'a Value>,
    pointer: &str,
) -> anyhow::Result<()> {
    let names = slices.filter_map(|slice| slice.pointer(pointer).and_then(Value::as_str));
    super::known(&format!("no device of {what}"), wanted, names)
}

/// Whether a field has the wanted value; true without one.
fn is(object: &Value, pointer: &str, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| object.pointer(pointer).and_then(Value::as_str) == Some(wanted))
}

/// The selectors of a class.
fn selectors_of(class: &str, objects: &[Value]) -> anyhow::Result<Vec<String>> {
    let classes = objects.iter().filter(|o| o["kind"] == "DeviceClass");
    let name = |class: &Value| {
        let name = class.pointer("/metadata/name").and_then(Value::as_str);
        name.unwrap_or_default().to_owned()
    };
    let known: Vec<String> = classes.clone().map(name).collect();
    let Some(found) = classes.clone().find(|c| name(c) == class) else {
        let others = super::others(class, known.iter().map(String::as_str));
        bail!("there is no device class {class}{others}");
    };
    let selectors = found.pointer("/spec/selectors").and_then(Value::as_array);
    let expressions = selectors.into_iter().flatten();
    let expressions = expressions.filter_map(|s| s.pointer("/cel/expression")?.as_str());
    Ok(expressions.map(str::to_owned).collect())
}

/// What an evaluation failed with, and which name was probably meant.
fn explained(error: &str, device: &Device) -> String {
    let Some((_, key)) = error.split_once("no such key: ") else {
        return error.to_owned();
    };
    let key = key.trim();
    let attributes = device
        .attributes()
        .map(|(domain, id, _)| ("attributes", domain, id));
    let capacities = device
        .capacities()
        .map(|(domain, id, _)| ("capacity", domain, id));
    let all: Vec<_> = attributes.chain(capacities).collect();
    if let Some((list, domain, id)) = all.iter().find(|it| it.2 == key) {
        return format!("{error}; it is in device.{list}[{domain:?}].{id}");
    }
    let known: Vec<&str> = all.iter().map(|it| it.2).collect();
    let hint = suggest::hint(key, known.iter().copied());
    match hint.is_empty() && !known.is_empty() {
        true => format!("{error}; it has {}", some(&known)),
        false => format!("{error}{hint}"),
    }
}

fn report(expression: &str, selector: &Selector, devices: &[Named]) -> Value {
    let devices: Vec<Value> = devices
        .iter()
        .map(
            |Named { name, device }| match selector.matches_with_cost(device) {
                (Ok(matches), cost) => json!({"device": name, "matches": matches, "cost": cost}),
                (Err(error), cost) => {
                    let error = explained(&error.to_string(), device);
                    json!({"device": name, "evaluationError": error, "cost": cost})
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
            Err(error) => format!("error: {}", explained(&error.to_string(), device)),
        };
        out.push_str(&format!("{name:width$}  {value:5}  cost {cost}\n"));
    }
    out
}

/// The reason why the API server would reject an expression that compiles.
fn refusal(expression: &str, selector: &Selector) -> Option<String> {
    if expression.len() > MAX_LENGTH {
        return Some(format!("may not be more than {MAX_LENGTH} bytes"));
    }
    (selector.max_cost() > MAX_COST).then(|| "too complex, exceeds cost limit".to_owned())
}

/// The slices of a file; what has no kind is one.
fn read_slices(file: &Path) -> anyhow::Result<Vec<Value>> {
    let content = super::allocate::read(Some(file))?;
    let content = String::from_utf8_lossy(&content);
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(&content)
        .with_context(|| format!("{} is neither YAML nor JSON", file.display()))?;
    let mut slices = Vec::new();
    for document in &mut documents {
        let items = match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => vec![document.take()],
        };
        for mut slice in items.into_iter().filter(Value::is_object) {
            if slice["kind"].as_str().is_none() {
                slice["kind"] = json!("ResourceSlice");
            }
            slices.push(slice);
        }
    }
    let has_devices = |o: &Value| o["kind"] == "ResourceSlice" && !devices_of(o).is_empty();
    if !slices.iter().any(has_devices) {
        bail!("{} has no ResourceSlice with devices", file.display());
    }
    Ok(slices)
}

fn devices_of(slice: &Value) -> Vec<Named> {
    let spec = &slice["spec"];
    let driver = spec["driver"].as_str().unwrap_or_default();
    let pool = spec["pool"]["name"].as_str().unwrap_or_default();
    let devices = spec["devices"].as_array().into_iter().flatten();
    let named = devices.map(|device| Named {
        name: format!(
            "{driver}/{pool}/{}",
            device["name"].as_str().unwrap_or_default()
        ),
        // Before v1beta2 the content was in a separate field.
        device: Device::from_json(driver, device.get("basic").unwrap_or(device)),
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of what it has contained the very name that it has not.
    #[test]
    fn a_capacity_that_is_read_as_an_attribute_is_shown_with_its_list() {
        let device =
            json!({"attributes": {"index": {"int": 0}}, "capacity": {"memory": {"value": "80Gi"}}});
        let device = Device::from_json("gpu.example.com", &device);
        let text = explained("no such key: memory", &device);
        let expected = "no such key: memory; it is in device.capacity[\"gpu.example.com\"].memory";
        assert_eq!(text, expected);
    }

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
