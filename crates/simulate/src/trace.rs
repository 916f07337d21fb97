//! Traces: which pods arrived when, how long they ran, and what they requested.
//!
//! The format of this crate is a table, as CSV with a header or as JSON (a list of objects, or one object a line), with
//! these columns; all but `at` may be left out, a column that is none of them is an error:
//!
//! | column | meaning | default |
//! |---|---|---|
//! | `at` | when the pod arrives, counted from the start: seconds, or such as `1h30m` | |
//! | `duration` | how long it runs once it is on a node | as long as the simulation lasts |
//! | `name`, `namespace` | its name; `trace-N` by the number of the row | `default` |
//! | `count` | how many such pods arrive | 1 |
//! | `priority` | a number | that of the workload, or 0 |
//! | `like` | a pod or workload of the manifests that it is a copy of; then it asks for nothing else | |
//! | `cpu`, `memory` | what it requests | nothing |
//! | `class` | the device class that it wants devices of | none |
//! | `devices` | how many | 1 |
//! | `selector` | a CEL expression that its devices have to satisfy | |
//! | `capacity` | what it takes of each device: `memory=10Gi;cores=2` | |
//!
//! [`openb`] reads the traces of `cluster-trace-gpu-v2023` of Alibaba, and [`generate`] makes such traces.

use std::time::Duration;

use allot_model::features::Features;
use anyhow::Context as _;
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use crate::prepare;
use crate::show::parsed;
use crate::time::duration;
use crate::workload::{Arrival, Draft, MOST_PODS, Workload};

pub mod csv;
pub mod generate;
pub mod openb;

const COLUMNS: [&str; 13] = [
    "at",
    "duration",
    "name",
    "namespace",
    "count",
    "priority",
    "like",
    "cpu",
    "memory",
    "class",
    "devices",
    "selector",
    "capacity",
];

/// What a pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Demand {
    /// The namespace that the pod is created in.
    pub namespace: String,
    /// A quantity of processors; empty for none.
    pub cpu: String,
    /// A quantity of memory; empty for none.
    pub memory: String,
    /// The class of its devices; empty for none.
    pub class: String,
    /// The number of devices of the class.
    pub devices: u64,
    /// A CEL expression, or empty.
    pub selector: String,
    /// What it takes of each device.
    pub capacity: Vec<(String, String)>,
}

/// Makes pods of demands; equal demands have one draft and one template.
#[derive(Debug)]
pub struct Demands<'a> {
    known: FxHashMap<Demand, u32>,
    features: &'a Features,
    now: Timestamp,
}

impl<'a> Demands<'a> {
    /// No demands yet; objects are judged by these features.
    #[must_use]
    pub fn new(features: &'a Features, now: Timestamp) -> Self {
        Self {
            known: FxHashMap::default(),
            features,
            now,
        }
    }

    /// The number of the draft for a demand.
    ///
    /// # Errors
    /// An API server would refuse the pod or its claim.
    pub fn draft(&mut self, workload: &mut Workload, demand: &Demand) -> anyhow::Result<u32> {
        if let Some(known) = self.known.get(demand) {
            return Ok(*known);
        }
        let number = u32::try_from(workload.drafts.len()).context("too many kinds of pods")?;
        let name = format!("demand-{number}");
        let namespace = &demand.namespace;
        let mut spec = json!({
            "containers": [{"name": "main", "image": "trace"}],
            "restartPolicy": "Never",
        });
        let mut requests = Map::new();
        for (resource, amount) in [("cpu", &demand.cpu), ("memory", &demand.memory)] {
            if !amount.is_empty() {
                amount
                    .parse::<allot_apimachinery::Quantity>()
                    .map_err(|error| anyhow::anyhow!("{resource} {amount:?}: {error}"))?;
                requests.insert(resource.to_owned(), json!(amount));
            }
        }
        spec["containers"][0]["resources"] = json!({"requests": requests});
        if !demand.class.is_empty() && demand.devices > 0 {
            spec["resourceClaims"] =
                json!([{"name": "devices", "resourceClaimTemplateName": name}]);
            spec["containers"][0]["resources"]["claims"] = json!([{"name": "devices"}]);
            let mut exactly = json!({
                "deviceClassName": demand.class,
                "allocationMode": "ExactCount",
                "count": demand.devices,
            });
            if !demand.selector.is_empty() {
                exactly["selectors"] = json!([{"cel": {"expression": demand.selector}}]);
            }
            if !demand.capacity.is_empty() {
                let amounts = demand.capacity.iter();
                let amounts: Map<String, Value> = amounts
                    .map(|(name, amount)| (name.clone(), json!(amount)))
                    .collect();
                exactly["capacity"] = json!({"requests": amounts});
            }
            let template = json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"spec": {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}}},
            });
            let template = prepare::stored(template, namespace, self.features, self.now)?;
            workload.objects.push(template);
        }
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        });
        let pod = parsed(prepare::stored(pod, namespace, self.features, self.now)?)?;
        workload.drafts.push(Draft {
            name,
            pod,
            duration: None,
        });
        self.known.insert(demand.clone(), number);
        Ok(number)
    }
}

/// A table: the names of its columns, and rows of texts.
pub type Table = (Vec<String>, Vec<Vec<String>>);

/// Adds the pods of a trace in the format of this module to a workload; `text` is CSV or JSON.
///
/// # Errors
/// Something in it cannot be read; the message names the row.
pub fn add(
    workload: &mut Workload,
    text: &str,
    namespace: &str,
    features: &Features,
    now: Timestamp,
) -> anyhow::Result<()> {
    add_table(workload, table(text)?, namespace, features, now)
}

/// A trace as a table.
///
/// # Errors
/// The text is neither JSON nor CSV with a header.
pub fn table(text: &str) -> anyhow::Result<Table> {
    match text.trim_start().chars().next() {
        Some('{' | '[') => of_json(text),
        _ => csv::read(text),
    }
}

fn of_json(text: &str) -> anyhow::Result<Table> {
    let mut rows = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match value.context("the trace is no JSON")? {
            Value::Array(list) => rows.extend(list),
            other => rows.push(other),
        }
    }
    let mut table = Vec::with_capacity(rows.len());
    for (number, row) in rows.into_iter().enumerate() {
        let number = number + 1;
        let Value::Object(mut fields) = row else {
            anyhow::bail!("row {number} of the trace is no object");
        };
        let mut texts = Vec::with_capacity(COLUMNS.len());
        for column in COLUMNS {
            texts.push(match fields.remove(column) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text,
                Some(Value::Number(number)) => number.to_string(),
                Some(other) => {
                    anyhow::bail!(
                        "row {number} of the trace: {column} is no text or number: {other}"
                    )
                }
            });
        }
        if let Some(unknown) = fields.keys().next() {
            anyhow::bail!("row {number} of the trace: there is no column {unknown:?}");
        }
        table.push(texts);
    }
    Ok((COLUMNS.map(str::to_owned).to_vec(), table))
}

/// Adds the rows of a table.
///
/// # Errors
/// As [`add`].
pub fn add_table(
    workload: &mut Workload,
    (columns, rows): Table,
    namespace: &str,
    features: &Features,
    now: Timestamp,
) -> anyhow::Result<()> {
    if let Some(unknown) = columns.iter().find(|c| !COLUMNS.contains(&c.as_str())) {
        anyhow::bail!(
            "the trace has a column {unknown:?}, which is none of {}",
            COLUMNS.join(", ")
        );
    }
    anyhow::ensure!(
        columns.iter().any(|column| column == "at"),
        "the trace has no column \"at\""
    );
    let place = |name: &str| columns.iter().position(|column| column == name);
    let places = COLUMNS
        .iter()
        .filter_map(|name| Some((*name, place(name)?)));
    let places: FxHashMap<&str, usize> = places.collect();
    let mut demands = Demands::new(features, now);
    for (number, row) in rows.iter().enumerate() {
        let text = |column: &str| {
            let cell = row.get(*places.get(column)?)?;
            Some(cell.as_str()).filter(|text| !text.is_empty())
        };
        add_row(workload, &mut demands, text, number, namespace)
            .with_context(|| format!("row {} of the trace", number + 1))?;
    }
    Ok(())
}

fn add_row<'t>(
    workload: &mut Workload,
    demands: &mut Demands<'_>,
    text: impl Fn(&str) -> Option<&'t str>,
    number: usize,
    namespace: &str,
) -> anyhow::Result<()> {
    let at = duration(text("at").context("at is empty")?).context("at")?;
    let runs = text("duration")
        .map(duration)
        .transpose()
        .context("duration")?;
    let whole = |column: &str| -> anyhow::Result<Option<u64>> {
        let number = text(column).map(|text| text.parse::<u64>());
        let number = number
            .transpose()
            .with_context(|| format!("{column} is no number"))?;
        anyhow::ensure!(
            number.is_none_or(|n| n <= MOST_PODS as u64),
            "{column} is too large"
        );
        Ok(number)
    };
    let priority = text("priority")
        .map(str::parse::<i32>)
        .transpose()
        .context("priority")?;
    let count = whole("count")?.unwrap_or(1);
    let total = workload.arrivals.len() as u64 + count;
    anyhow::ensure!(total <= MOST_PODS as u64, "more than {MOST_PODS} pods");
    let demand = Demand {
        namespace: text("namespace").unwrap_or(namespace).to_owned(),
        cpu: text("cpu").unwrap_or_default().to_owned(),
        memory: text("memory").unwrap_or_default().to_owned(),
        class: text("class").unwrap_or_default().to_owned(),
        devices: whole("devices")?.unwrap_or(1),
        selector: text("selector").unwrap_or_default().to_owned(),
        capacity: capacity(text("capacity").unwrap_or_default())?,
    };
    let draft = match text("like") {
        Some(name) => {
            let asks = [
                "cpu",
                "memory",
                "class",
                "devices",
                "selector",
                "capacity",
                "namespace",
            ];
            let other = asks.iter().find(|column| text(column).is_some());
            if let Some(other) = other {
                anyhow::bail!("a row with \"like\" has no {other}: the pod is as {name} says");
            }
            let found = workload.draft_named(name);
            found
                .with_context(|| format!("no pod or workload of the manifests is named {name:?}"))?
        }
        None => demands.draft(workload, &demand)?,
    };
    let base = match text("name") {
        Some(name) => name.to_owned(),
        None => format!("trace-{}", number + 1),
    };
    let runs: Option<Duration> = runs.or(workload.drafts[draft as usize].duration);
    for copy in 0..count {
        let name = match count {
            1 => base.clone(),
            _ => format!("{base}-{copy}"),
        };
        workload.arrivals.push(Arrival {
            at,
            name: name.into(),
            draft,
            duration: runs,
            priority,
            job: None,
        });
    }
    Ok(())
}

fn capacity(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let parts = text.split(';').filter(|part| !part.trim().is_empty());
    let read = |part: &str| {
        let pair = part.split_once('=');
        let (name, amount) =
            pair.with_context(|| format!("capacity {part:?} is not name=amount"))?;
        Ok((name.trim().to_owned(), amount.trim().to_owned()))
    };
    parts.map(read).collect()
}

#[cfg(test)]
mod tests;
