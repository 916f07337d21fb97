//! `allot hardware`: models of hardware, and failures of modelled devices.

use std::io::{Write as _, stdout};
use std::path::PathBuf;

use allot_hardware::{Expanded, Model, names, source};
use allot_model::features::Features;
use allot_model::{Kind, Version, defaults, validate};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{bounds, count, output};

mod failure;
mod record;

/// Flags of `allot hardware`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List the models of the catalogue
    List {
        /// How to print the list
        #[arg(short, long, value_enum, default_value_t = output::Format::Text)]
        output: output::Format,
    },
    /// Show a model: in short, as the objects of a node, or as its file
    Show(Show),
    /// Check files with models, and their objects
    Validate {
        /// File with a model
        #[arg(required = true)]
        file: Vec<PathBuf>,
    },
    /// Write models of the nodes of a cluster, with names replaced
    Record(record::Record),
    /// Make a modelled device fail
    Fail(failure::Fail),
    /// Revert `allot hardware fail`
    Restore(failure::Restore),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// A name of the list, or a file
    name: String,
    /// What to show: yaml and json are the objects of one node, ready to be applied
    #[arg(short, long, value_enum, default_value_t = Format::Short)]
    output: Format,
    /// Name of the node
    #[arg(long, default_value = "node-0")]
    node: String,
    /// Number of preceding nodes with the same hardware
    #[arg(long, default_value_t = 0, value_parser = bounds::within(bounds::NODES))]
    index: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Drivers, devices, classes and sources
    Short,
    /// DeviceClasses and ResourceSlices, as YAML documents
    Yaml,
    /// The same as one JSON list
    Json,
    /// The file itself
    Model,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        What::List { output } => list(output),
        What::Show(args) => show(&args),
        What::Validate { file } => validate_files(&file),
        What::Record(args) => record::run(args),
        What::Fail(args) => failure::fail(args),
        What::Restore(args) => failure::restore(args),
    }
}

fn list(format: output::Format) -> anyhow::Result<()> {
    let models = names().map(Model::named).collect::<Result<Vec<_>, _>>()?;
    let list = models.iter().map(|model| {
        let classes: Vec<_> = model.classes.iter().map(|class| &class.name).collect();
        json!({"name": model.name, "title": model.title, "drivers": model.drivers(), "classes": classes})
    });
    let list: Vec<Value> = list.collect();
    format.print(&mut stdout().lock(), &list, |out| {
        let width = names().map(str::len).max().unwrap_or(0);
        for model in &models {
            writeln!(out, "{:width$}  {}", model.name, model.title)?;
        }
        Ok(())
    })
}

/// The objects of one node.
fn objects(model: &Model, expanded: &Expanded) -> Vec<Value> {
    let classes = model.classes.iter().map(|class| {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": class.name},
            "spec": class.spec,
        })
    });
    let slices = expanded.slices.iter().map(|slice| slice.object(None));
    classes.chain(slices).collect()
}

fn show(args: &Show) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    let model = Model::named(&args.name)?;
    let expanded = model.expand(&args.node, args.index)?;
    match args.output {
        Format::Short => write!(out, "{}", summary(&model, &expanded))?,
        Format::Yaml => {
            for object in objects(&model, &expanded) {
                write!(out, "---\n{}", serde_saphyr::to_string(&object)?)?;
            }
        }
        Format::Json => {
            let items = objects(&model, &expanded);
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        }
        Format::Model => match source(&args.name) {
            Some(text) => write!(out, "{text}")?,
            None => write!(out, "{}", std::fs::read_to_string(&args.name)?)?,
        },
    }
    Ok(())
}

/// The summary of a model.
fn summary(model: &Model, expanded: &Expanded) -> String {
    let mut lines = vec![format!("{}: {}", model.name, model.title)];
    for driver in model.drivers() {
        let slices = expanded
            .slices
            .iter()
            .filter(|slice| slice.driver == driver);
        let devices: usize = slices.clone().map(|slice| slice.devices.len()).sum();
        let (devices, slices) = (count(devices, "device"), count(slices.count(), "slice"));
        lines.push(format!("driver {driver}: {devices} in {slices}"));
    }
    let classes: Vec<_> = model
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    if !classes.is_empty() {
        lines.push(format!("classes: {}", classes.join(", ")));
    }
    for (name, value) in &expanded.labels {
        lines.push(format!("node label {name}={value}"));
    }
    for (name, value) in &expanded.capacity {
        lines.push(format!("node capacity {name}: {value}"));
    }
    for source in &model.sources {
        lines.push(format!("source: {}: {}", source.from, source.facts));
    }
    lines.join("\n") + "\n"
}

fn validate_files(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut wrong = 0;
    for file in files {
        let shown = file.display();
        match Model::read(file) {
            Err(error) => {
                wrong += 1;
                writeln!(stdout(), "{error}")?;
            }
            Ok(model) => {
                let findings = findings(&model)?;
                wrong += usize::from(!findings.is_empty());
                for finding in &findings {
                    writeln!(stdout(), "{shown}: {finding}")?;
                }
                if findings.is_empty() {
                    let devices: usize = model
                        .expand("node-0", 0)?
                        .slices
                        .iter()
                        .map(|s| s.devices.len())
                        .sum();
                    let devices = count(devices, "device");
                    writeln!(
                        stdout(),
                        "{shown}: {} is valid, {devices} on a node",
                        model.name
                    )?;
                }
            }
        }
    }
    match wrong {
        0 => Ok(()),
        wrong => bail!("{} not valid", count(wrong, "file")),
    }
}

/// The API server's validation errors for the objects of a node.
fn findings(model: &Model) -> anyhow::Result<Vec<String>> {
    let features = Features::default();
    let mut findings = Vec::new();
    for mut object in objects(model, &model.expand("node-0", 0)?) {
        let kind = object["kind"].as_str().and_then(Kind::from_name);
        let kind = kind.context("an object of another group")?;
        let name = object["metadata"]["name"].clone();
        defaults::default(kind, Version::V1, &mut object, jiff::Timestamp::now());
        for error in &validate::create(kind, &object, &features) {
            let name = name.as_str().unwrap_or_default();
            findings.push(format!("{} {name}: {error}", kind.name()));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_catalogue_is_valid() {
        for name in names() {
            let model = Model::named(name).expect(name);
            assert_eq!(
                findings(&model).expect(name),
                Vec::<String>::new(),
                "{name}"
            );
        }
    }

    #[test]
    fn what_the_server_would_refuse_is_found() {
        let text = source("nvme").expect("in the catalogue");
        let text = text.replace("name: nvme{drive}", "name: NVMe{drive}");
        let model = Model::parse(&text).expect("a model");
        let findings = findings(&model).expect("findings");
        assert!(findings[0].contains("spec.devices[0].name"), "{findings:?}");
    }
}
