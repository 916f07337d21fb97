//! The traces `openb` of Alibaba's `cluster-trace-gpu-v2023` (github.com/alibaba/clusterdata): 8 152 tasks and 1 523 nodes
//! of a cluster whose GPUs are shared.
//!
//! Pods: `name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time,
//! scheduled_time`; the derived lists have the first five columns alone. `gpu_milli` is the part of a GPU that a task
//! takes, in thousandths, where it takes one; `gpu_spec` the models that will do, with `|` between them. Nodes: `sn,
//! cpu_milli, memory_mib, gpu, model`.

use std::time::Duration;

use allot_model::features::Features;
use anyhow::Context as _;
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::{Demand, Demands, Table};
use crate::workload::{Arrival, Workload};

/// The driver of the devices.
pub const DRIVER: &str = "gpu.openb.example";
/// The class of the devices.
pub const CLASS: &str = "openb-gpu";
/// Most GPUs of a node.
const MOST_GPUS: u64 = 64;
/// GPUs in one slice where each has partitions: a slice may have 64 devices that consume counters.
const GPUS_IN_SLICE: u64 = 4;

/// How GPUs are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// By consumable capacity: any number of thousandths.
    #[default]
    Capacity,
    /// By partitions: eighths, quarters and halves of a GPU, at fixed places. What a task takes is rounded up.
    Partitions,
}

/// Whether a table has pods of such a trace.
#[must_use]
pub fn is_pods((columns, _): &Table) -> bool {
    let has = |name: &str| columns.iter().any(|column| column == name);
    has("num_gpu") && has("gpu_milli")
}

/// The cells of a row by their columns.
struct Rows<'a> {
    columns: FxHashMap<&'a str, usize>,
    rows: &'a [Vec<String>],
}

impl<'a> Rows<'a> {
    fn new((columns, rows): &'a Table, needed: &[&str]) -> anyhow::Result<Self> {
        let columns: FxHashMap<&str, usize> = columns
            .iter()
            .enumerate()
            .map(|(at, name)| (name.as_str(), at))
            .collect();
        if let Some(missing) = needed.iter().find(|name| !columns.contains_key(*name)) {
            anyhow::bail!("the table has no column {missing:?}");
        }
        Ok(Self { columns, rows })
    }

    fn text(&self, row: usize, column: &str) -> &'a str {
        let cell = self
            .columns
            .get(column)
            .and_then(|at| self.rows[row].get(*at));
        cell.map_or("", |cell| cell.trim())
    }

    fn number(&self, row: usize, column: &str) -> anyhow::Result<u64> {
        let text = self.text(row, column);
        let number = text.parse::<u64>();
        number.with_context(|| format!("row {}: {column} is no number: {text:?}", row + 1))
    }

    /// A time, which some rows do not have.
    fn seconds(&self, row: usize, column: &str) -> anyhow::Result<Option<u64>> {
        match self.text(row, column) {
            "" | "nan" => Ok(None),
            text => {
                let number = text.parse::<f64>().ok();
                let number = number.filter(|n| n.is_finite() && (0.0..1e12).contains(n));
                let context = || format!("row {}: {column} is no time: {text:?}", row + 1);
                Ok(Some(number.with_context(context)? as u64))
            }
        }
    }
}

/// The nodes of a list, with the class and the slices of their GPUs.
///
/// # Errors
/// Something in it cannot be read; the message names the row.
pub fn nodes(table: &Table, sharing: Sharing) -> anyhow::Result<Vec<Value>> {
    let rows = Rows::new(table, &["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
    let mut objects = vec![json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]},
    })];
    for row in 0..rows.rows.len() {
        let name = rows.text(row, "sn");
        anyhow::ensure!(!name.is_empty(), "row {}: the node has no name", row + 1);
        let allocatable = json!({
            "cpu": format!("{}m", rows.number(row, "cpu_milli")?),
            "memory": format!("{}Mi", rows.number(row, "memory_mib")?),
            "pods": "1000",
        });
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }));
        let gpus = rows.number(row, "gpu")?;
        anyhow::ensure!(
            gpus <= MOST_GPUS,
            "row {}: more than {MOST_GPUS} GPUs",
            row + 1
        );
        if gpus > 0 {
            let model = rows.text(row, "model");
            match sharing {
                Sharing::Capacity => objects.push(shared(name, gpus, model)),
                Sharing::Partitions => objects.extend(partitions(name, gpus, model)),
            }
        }
    }
    Ok(objects)
}

fn slice(node: &str, name: &str, slices: u64, more: (&str, Value)) -> Value {
    let mut slice = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": slices},
        },
    });
    slice["spec"][more.0] = more.1;
    slice
}

fn shared(node: &str, gpus: u64, model: &str) -> Value {
    let policy = json!({
        "default": "1000",
        "validRange": {"min": "1", "max": "1000", "step": "1"},
    });
    let devices = (0..gpus).map(|gpu| {
        json!({
            "name": format!("gpu-{gpu}"),
            "attributes": {"model": {"string": model}},
            "allowMultipleAllocations": true,
            "capacity": {"milli": {"value": "1000", "requestPolicy": policy}},
        })
    });
    let devices: Value = devices.collect();
    slice(node, &format!("{node}-gpus"), 1, ("devices", devices))
}

/// The GPUs with all partitions that are a power of two of eighths, each at a multiple of its size.
fn partitions(node: &str, gpus: u64, model: &str) -> Vec<Value> {
    let eighth = |number: u64| format!("eighth-{number}");
    let one = json!({"value": "1"});
    let counters: Map<String, Value> = (0..8).map(|n| (eighth(n), one.clone())).collect();
    let groups: Vec<u64> = (0..gpus).step_by(GPUS_IN_SLICE as usize).collect();
    // A slice has counters or devices, and at most eight sets of counters.
    let sets: Vec<u64> = (0..gpus).step_by(8).collect();
    let slices = (groups.len() + sets.len()) as u64;
    let mut objects = Vec::new();
    for first in sets {
        let sets: Value = (first..gpus.min(first + 8))
            .map(|gpu| json!({"name": format!("gpu-{gpu}"), "counters": counters}))
            .collect();
        let name = format!("{node}-counters-{first}");
        objects.push(slice(node, &name, slices, ("sharedCounters", sets)));
    }
    for first in groups {
        let mut devices = Vec::new();
        for gpu in first..gpus.min(first + GPUS_IN_SLICE) {
            for size in [8, 4, 2, 1] {
                for at in (0..8).step_by(size as usize) {
                    let taken: Map<String, Value> =
                        (at..at + size).map(|n| (eighth(n), one.clone())).collect();
                    devices.push(json!({
                        "name": format!("gpu-{gpu}-{size}-at-{at}"),
                        "attributes": {"model": {"string": model}, "eighths": {"int": size}},
                        "consumesCounters": [
                            {"counterSet": format!("gpu-{gpu}"), "counters": taken},
                        ],
                    }));
                }
            }
        }
        let name = format!("{node}-gpus-{first}");
        objects.push(slice(node, &name, slices, ("devices", devices.into())));
    }
    objects
}

/// Adds the pods of a list to a workload.
///
/// # Errors
/// Something in it cannot be read; the message names the row.
pub fn add_pods(
    workload: &mut Workload,
    table: &Table,
    sharing: Sharing,
    namespace: &str,
    features: &Features,
    now: Timestamp,
) -> anyhow::Result<()> {
    let needed = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
    let rows = Rows::new(table, &needed)?;
    let mut demands = Demands::new(features, now);
    let mut first = None;
    for row in 0..rows.rows.len() {
        let created = rows.seconds(row, "creation_time")?;
        first = [first, created].into_iter().flatten().min();
    }
    let first = first.unwrap_or_default();
    for row in 0..rows.rows.len() {
        let created = rows.seconds(row, "creation_time")?;
        let scheduled = rows.seconds(row, "scheduled_time")?.or(created);
        let deleted = rows.seconds(row, "deletion_time")?;
        let duration = match (scheduled, deleted) {
            (Some(from), Some(to)) => Some(Duration::from_secs(to.saturating_sub(from))),
            _ => None,
        };
        let demand = demand(&rows, row, sharing, namespace)?;
        let draft = demands
            .draft(workload, &demand)
            .with_context(|| format!("row {}", row + 1))?;
        workload.arrivals.push(Arrival {
            at: Duration::from_secs(created.unwrap_or(first) - first),
            name: rows.text(row, "name").into(),
            draft,
            duration,
            priority: None,
            job: None,
        });
    }
    Ok(())
}

fn demand(
    rows: &Rows<'_>,
    row: usize,
    sharing: Sharing,
    namespace: &str,
) -> anyhow::Result<Demand> {
    let gpus = rows.number(row, "num_gpu")?;
    let milli = match gpus {
        0 => 0,
        1 => rows.number(row, "gpu_milli")?.min(1000),
        _ => 1000,
    };
    let attribute = |name: &str| format!("device.attributes[{DRIVER:?}].{name}");
    let mut selectors = Vec::new();
    let models = rows.text(row, "gpu_spec");
    let models: Vec<&str> = models
        .split('|')
        .filter(|m| !matches!(*m, "" | "nan"))
        .collect();
    if !models.is_empty() && gpus > 0 {
        let list: Vec<String> = models.iter().map(|model| format!("{model:?}")).collect();
        selectors.push(format!("{} in [{}]", attribute("model"), list.join(", ")));
    }
    let mut capacity = Vec::new();
    match sharing {
        _ if gpus == 0 => {}
        // The whole is what is taken where nothing is said.
        Sharing::Capacity if milli == 1000 => {}
        Sharing::Capacity => capacity.push(("milli".to_owned(), milli.max(1).to_string())),
        Sharing::Partitions => {
            let eighths = (milli * 8).div_ceil(1000).max(1).next_power_of_two();
            selectors.push(format!("{} == {eighths}", attribute("eighths")));
        }
    }
    Ok(Demand {
        namespace: namespace.to_owned(),
        cpu: format!("{}m", rows.number(row, "cpu_milli")?),
        memory: format!("{}Mi", rows.number(row, "memory_mib")?),
        class: match gpus {
            0 => String::new(),
            _ => CLASS.to_owned(),
        },
        devices: gpus,
        selector: selectors.join(" && "),
        capacity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare;
    use crate::trace::csv;

    const NODES: &str =
        "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,96000,786432,8,V100\n";
    const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
        a,4000,8192,0,0,,LS,Running,100,200,110\n\
        b,4000,8192,1,220,V100|T4,LS,Running,150,,\n\
        c,4000,8192,8,1000,,LS,Pending,160,170,\n";

    fn table(text: &str) -> Table {
        csv::read(text).expect("a table")
    }

    #[test]
    fn nodes_are_what_an_api_server_takes() {
        for (sharing, slices, devices) in [(Sharing::Capacity, 1, 8), (Sharing::Partitions, 3, 120)]
        {
            let objects = nodes(&table(NODES), sharing).expect("nodes");
            let count = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).count();
            assert_eq!((count("Node"), count("ResourceSlice")), (2, slices));
            let of = |o: &Value| o["spec"]["devices"].as_array().map_or(0, Vec::len);
            assert_eq!(objects.iter().map(of).sum::<usize>(), devices);
            for object in objects {
                let (features, now) = (Features::default(), Timestamp::UNIX_EPOCH);
                prepare::stored(object, "default", &features, now).expect("valid");
            }
        }
    }

    #[test]
    fn pods_have_their_times_and_demands() {
        let pods = |sharing| {
            let mut workload = Workload::default();
            let (features, now) = (Features::default(), Timestamp::UNIX_EPOCH);
            add_pods(
                &mut workload,
                &table(PODS),
                sharing,
                "default",
                &features,
                now,
            )
            .expect("pods");
            workload
        };
        let workload = pods(Sharing::Capacity);
        let times: Vec<_> = workload
            .arrivals
            .iter()
            .map(|a| (a.at.as_secs(), a.duration.map(|d| d.as_secs())))
            .collect();
        assert_eq!(times, [(0, Some(90)), (50, None), (60, Some(10))]);
        let requests = |workload: &Workload, at: usize| {
            workload.objects[at]["spec"]["spec"]["devices"]["requests"][0]["exactly"].clone()
        };
        let part = requests(&workload, 0);
        assert_eq!(part["capacity"]["requests"], json!({"milli": "220"}));
        let expression = "device.attributes[\"gpu.openb.example\"].model in [\"V100\", \"T4\"]";
        assert_eq!(part["selectors"][0]["cel"]["expression"], expression);
        assert_eq!(requests(&workload, 1)["count"], 8);
        let part = requests(&pods(Sharing::Partitions), 0);
        let expression =
            format!("{expression} && device.attributes[\"gpu.openb.example\"].eighths == 2");
        assert_eq!(
            part["selectors"][0]["cel"]["expression"],
            expression.as_str()
        );
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let mut workload = Workload::default();
        let mut add = |text: &str| {
            let (features, now) = (Features::default(), Timestamp::UNIX_EPOCH);
            let sharing = Sharing::Capacity;
            let added = add_pods(
                &mut workload,
                &table(text),
                sharing,
                "default",
                &features,
                now,
            );
            added.expect_err(text).to_string()
        };
        assert_eq!(add("name\na\n"), "the table has no column \"cpu_milli\"");
        let text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,many,0\n";
        assert_eq!(add(text), "row 1: num_gpu is no number: \"many\"");
        let text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time\na,1,1,1,0,-5\n";
        assert_eq!(add(text), "row 1: creation_time is no time: \"-5\"");
        let text = "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,1000,\n";
        assert!(nodes(&table(text), Sharing::Capacity).is_err());
    }
}
