use serde_json::json;

use super::*;

fn measured() -> Vec<Pod> {
    let at: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
    let usage = Measured {
        id: "1".into(),
        pod_uid: "u".into(),
        container: "c".into(),
        at,
        cgroup: "/allot/1".into(),
        cpu_nanocores: Some(250_000_000),
        figures: Figures {
            cpu: Some(2_500_000_000),
            working_set: Some(1 << 20),
            memory: Some(2 << 20),
            processes: Some(3),
            ..Figures::default()
        },
    };
    let container = Container {
        started: "2026-01-01T00:00:00Z".parse().unwrap(),
        image: "app:1".into(),
        memory_limit: Some(4 << 20),
        usage,
    };
    let with = Pod {
        namespace: "n".into(),
        name: "p".into(),
        uid: "u".into(),
        started: "2025-12-31T23:59:59Z".parse().ok(),
        containers: vec![container],
    };
    let without = Pod {
        name: "q".into(),
        ..Pod::default()
    };
    vec![with, without]
}

const STAT: &str = "cpu  10 20 30 1000 5 1 2 3 4 4\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nbtime 1767220000\n";
const MEMORY: Memory = Memory {
    total: 100 << 10,
    available: 40 << 10,
    swap: 5 << 10,
};

fn machine() -> Machine {
    let at = "2026-01-01T00:00:10Z".parse().unwrap();
    Machine::parse(STAT, MEMORY, 100, at).unwrap()
}

/// The lines of an exposition that are samples.
fn samples(text: &str) -> Vec<&str> {
    text.lines().filter(|it| !it.starts_with('#')).collect()
}

#[test]
fn the_kernel_is_understood() {
    let machine = machine();
    assert_eq!(machine.cpu_nanoseconds, 660_000_000);
    assert_eq!((machine.memory, machine.available), (60 << 10, 40 << 10));
    assert_eq!(machine.processors, 2);
    assert_eq!(machine.booted, "2025-12-31T22:26:40Z".parse().ok());
    assert_eq!(Machine::parse("", MEMORY, 100, machine.at), None);
    assert!(Machine::read().is_some_and(|it| it.cpu_nanoseconds > 0 && it.memory > 0));
}

#[test]
fn a_metrics_server_is_told_what_a_kubelet_tells() {
    let text = resource::text(Some(machine()), &measured(), false);
    assert_eq!(
        samples(&text),
        [
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} 2.5 1767225610000",
            "container_memory_working_set_bytes{container=\"c\",namespace=\"n\",pod=\"p\"} 1048576 1767225610000",
            "container_start_time_seconds{container=\"c\",namespace=\"n\",pod=\"p\"} 1767225600",
            "node_cpu_usage_seconds_total 0.66 1767225610000",
            "node_memory_working_set_bytes 61440 1767225610000",
            "node_swap_usage_bytes 5120 1767225610000",
            "pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} 2.5 1767225610000",
            "pod_memory_working_set_bytes{namespace=\"n\",pod=\"p\"} 1048576 1767225610000",
            "resource_scrape_error 0",
        ]
    );
    let failed = resource::text(None, &[], true);
    assert!(failed.ends_with("\nresource_scrape_error 1\n"), "{failed}");
}

#[test]
fn containers_have_the_names_and_labels_of_cadvisor() {
    let text = cadvisor::text(Some(machine()), &measured(), false);
    let root = "id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"";
    let own = "id=\"/allot/1\",image=\"app:1\",name=\"1\",namespace=\"n\",pod=\"p\"";
    let at = "1767225610000";
    let expected = [
        "container_scrape_error 0".to_owned(),
        format!(
            "container_cpu_usage_seconds_total{{container=\"\",cpu=\"total\",{root}}} 0.66 {at}"
        ),
        format!(
            "container_cpu_usage_seconds_total{{container=\"c\",cpu=\"total\",{own}}} 2.5 {at}"
        ),
        format!("container_memory_usage_bytes{{container=\"\",{root}}} 61440 {at}"),
        format!("container_memory_usage_bytes{{container=\"c\",{own}}} 2097152 {at}"),
        format!("container_memory_working_set_bytes{{container=\"\",{root}}} 61440 {at}"),
        format!("container_memory_working_set_bytes{{container=\"c\",{own}}} 1048576 {at}"),
        format!("container_processes{{container=\"c\",{own}}} 3 {at}"),
        format!("container_last_seen{{container=\"c\",{own}}} 1767225610 {at}"),
        format!("container_spec_memory_limit_bytes{{container=\"c\",{own}}} 4194304 {at}"),
        format!("container_start_time_seconds{{container=\"c\",{own}}} 1767225600 {at}"),
        "machine_cpu_cores 2".to_owned(),
        "machine_memory_bytes 102400".to_owned(),
    ];
    assert_eq!(samples(&text), expected);
    // Each family is declared once, before its samples.
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert_eq!(
        samples(&cadvisor::text(None, &[], true)),
        ["container_scrape_error 1"]
    );
}

#[test]
fn the_summary_has_the_kubelets_form() {
    let disk = summary::Disk::of(std::path::Path::new("/"));
    let summary = summary::of("n1", Some(machine()), disk, &measured());
    let node = &summary["node"];
    assert_eq!(node["memory"]["workingSetBytes"], 60 << 10);
    assert_eq!(node["startTime"], "2025-12-31T22:26:40Z");
    assert!(node["fs"]["capacityBytes"].as_u64() > Some(0), "{node}");
    assert!(node["runtime"]["imageFs"]["availableBytes"].is_u64());
    let pod = &summary["pods"][0];
    assert_eq!(
        pod["podRef"],
        json!({"name": "p", "namespace": "n", "uid": "u"})
    );
    assert_eq!(pod["startTime"], "2025-12-31T23:59:59Z");
    assert_eq!(pod["memory"]["workingSetBytes"], 1 << 20);
    assert_eq!(pod["process_stats"]["process_count"], 3);
    assert_eq!(
        pod["containers"],
        json!([{"name": "c", "startTime": "2026-01-01T00:00:00Z",
            "cpu": {"time": "2026-01-01T00:00:10Z", "usageCoreNanoSeconds": 2_500_000_000_u64, "usageNanoCores": 250_000_000},
            "memory": {"time": "2026-01-01T00:00:10Z", "workingSetBytes": 1 << 20, "usageBytes": 2 << 20,
                "availableBytes": 3 << 20}}])
    );
    // As Go encodes them, lists are there also without members.
    assert_eq!(summary["pods"][1]["containers"], json!([]));
}
