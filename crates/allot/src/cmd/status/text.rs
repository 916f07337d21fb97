//! The status of clusters as text: for one cluster a line for each fact, for several a line for each cluster.

use std::path::Path;

use super::{Content, Pods, Status};
use crate::clusters;
use crate::cmd::some;

/// One cluster, a fact a line.
pub(super) fn text(status: &Status, name: Option<&str>) -> String {
    let mut lines = Vec::new();
    let mut add = |what: &'static str, value: Option<String>| {
        lines.extend(value.map(|value| format!("{what:<11} {value}\n")));
    };
    let flags = clusters::flags(name, Path::new(&status.data_dir));
    let age = status.age_seconds.map(age).unwrap_or_default();
    let state = match (status.running, status.ready, status.pid) {
        (true, ready, Some(pid)) => {
            let state = if ready { "running" } else { "starting" };
            format!("{state}, process {pid}, for {age}")
        }
        _ => "not running".to_owned(),
    };
    add("cluster", Some(called(status)));
    add("state", Some(state));
    add("version", status.version.clone());
    add("server", status.server.clone());
    if let Some(Content {
        nodes,
        pods,
        drivers,
    }) = &status.content
    {
        add(
            "nodes",
            Some(format!("{} of {} ready", nodes.ready, nodes.total)),
        );
        let Pods {
            running,
            pending,
            succeeded,
            failed,
            ..
        } = pods;
        add(
            "pods",
            Some(format!(
                "{running} running, {pending} pending, {succeeded} succeeded, {failed} failed"
            )),
        );
        let drivers: Vec<&str> = drivers.iter().map(String::as_str).collect();
        let none = || "none".to_owned();
        add(
            "drivers",
            Some(if drivers.is_empty() {
                none()
            } else {
                drivers.join(", ")
            }),
        );
    }
    let containers = match (status.containers.len(), status.running) {
        (0, _) => None,
        (count, true) => Some(count.to_string()),
        (_, false) => Some(format!(
            "still running: {}; `allot down{flags}` ends them",
            some(&status.containers)
        )),
    };
    add("containers", containers);
    add("directory", Some(status.data_dir.clone()));
    add("kubeconfig", status.kubeconfig.clone());
    add("dashboard", status.dashboard.clone());
    add("log", status.log.clone());
    add("problem", status.problem.clone());
    lines.concat()
}

/// The name of a cluster, or a text for the default cluster.
fn called(status: &Status) -> String {
    let unnamed = match clusters::default_directory() {
        Ok(default) if default == Path::new(&status.data_dir) => clusters::UNNAMED,
        _ => "(no name)",
    };
    status.name.clone().unwrap_or_else(|| unnamed.to_owned())
}

/// Several clusters, one a line, below the headings.
pub(super) fn rows(all: &[Status]) -> Vec<Vec<String>> {
    let titles = ["NAME", "STATE", "PID", "NODES", "PODS", "AGE", "DIRECTORY"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|status| {
        let state = match (status.running, status.ready) {
            (true, true) => "running",
            (true, false) => "starting",
            (false, _) => "containers",
        };
        let content = status.content.as_ref();
        vec![
            called(status),
            state.to_owned(),
            status.pid.map_or_else(|| "-".into(), |pid| pid.to_string()),
            content.map_or_else(
                || "-".into(),
                |it| format!("{}/{}", it.nodes.ready, it.nodes.total),
            ),
            content.map_or_else(|| "-".into(), |it| it.pods.total.to_string()),
            status.age_seconds.map_or_else(|| "-".into(), age),
            status.data_dir.clone(),
        ]
    }));
    rows
}

/// A time in its largest unit, with the second one below ten minutes.
fn age(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => format!("{minutes}m{}s", seconds % 60),
        600..10_800 => format!("{minutes}m"),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (3_600, "60m"),
            (10_800, "3h"),
            (200_000, "2d"),
        ] {
            assert_eq!(age(seconds), expected);
        }
    }

    #[test]
    fn a_cluster_that_ended_names_its_running_containers() {
        let status = Status {
            data_dir: "/tmp/a b".into(),
            containers: vec!["default/pod/main".into()],
            ..Status::default()
        };
        let text = text(&status, None);
        assert!(text.contains("state       not running\n"), "{text}");
        let expected =
            "still running: default/pod/main; `allot down --data-dir '/tmp/a b'` ends them";
        assert!(text.contains(expected), "{text}");
    }
}
