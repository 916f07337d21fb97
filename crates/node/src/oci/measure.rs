//! What the kernel measures of a container: the figures of its cgroup, in both versions of cgroups.

use std::path::{Path, PathBuf};

use super::cgroup;

/// Figures of a cgroup, as far as the kernel has them. Times are in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Processor time since the start.
    pub cpu: Option<u64>,
    /// Processor time in programs.
    pub cpu_user: Option<u64>,
    /// Processor time in the kernel.
    pub cpu_system: Option<u64>,
    /// Periods in which the limit of processor time counted.
    pub periods: Option<u64>,
    /// Those of them in which the limit was reached.
    pub throttled_periods: Option<u64>,
    /// How long programs did not run because of it.
    pub throttled: Option<u64>,
    /// Memory with caches.
    pub memory: Option<u64>,
    /// Memory that cannot be reclaimed easily: without files that were not used lately.
    pub working_set: Option<u64>,
    /// Anonymous memory.
    pub rss: Option<u64>,
    /// Memory of files.
    pub cache: Option<u64>,
    /// Memory of files that are mapped.
    pub mapped: Option<u64>,
    /// Memory that was moved to swap space.
    pub swap: Option<u64>,
    /// The most memory so far.
    pub most_memory: Option<u64>,
    /// How often the limit of memory was reached.
    pub limit_reached: Option<u64>,
    /// Page faults.
    pub page_faults: Option<u64>,
    /// Page faults that read from a disk.
    pub major_page_faults: Option<u64>,
    /// Processes that were killed because the limit of memory was reached.
    pub oom_kills: Option<u64>,
    /// Processes.
    pub processes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
}

/// Reads the figures of a cgroup; all are missing if it does not exist.
pub(crate) fn measure(path: &Path) -> Figures {
    of(&cgroup::directories(path))
}

fn of(directories: &[PathBuf]) -> Figures {
    let text = |name: &str| {
        let mut files = directories.iter().map(|directory| directory.join(name));
        files.find_map(|file| std::fs::read_to_string(file).ok())
    };
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let cpu = Table(text("cpu.stat"));
    let times = Table(text("cpuacct.stat"));
    let memory = Table(text("memory.stat"));
    let micro = |value: Option<u64>| value.map(|value| value.saturating_mul(1_000));
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let ticks = |value: Option<u64>| value.map(|value| value.saturating_mul(tick));
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"));
    // Of the first version: with those of cgroups below it.
    let of_memory = |new: &str, old: &str| memory.get(old).or_else(|| memory.get(new));
    let inactive = of_memory("inactive_file", "total_inactive_file");
    let events = Table(text("memory.events"));
    let oom = Table(text("memory.oom_control"));
    Figures {
        cpu: micro(cpu.get("usage_usec")).or_else(|| number("cpuacct.usage")),
        cpu_user: micro(cpu.get("user_usec")).or_else(|| ticks(times.get("user"))),
        cpu_system: micro(cpu.get("system_usec")).or_else(|| ticks(times.get("system"))),
        periods: cpu.get("nr_periods"),
        throttled_periods: cpu.get("nr_throttled"),
        throttled: micro(cpu.get("throttled_usec")).or_else(|| cpu.get("throttled_time")),
        memory: used,
        working_set: used.map(|used| used.saturating_sub(inactive.unwrap_or(0))),
        rss: of_memory("anon", "total_rss"),
        cache: of_memory("file", "total_cache"),
        mapped: of_memory("file_mapped", "total_mapped_file"),
        swap: number("memory.swap.current").or_else(|| memory.get("total_swap")),
        most_memory: number("memory.peak").or_else(|| number("memory.max_usage_in_bytes")),
        limit_reached: events.get("max").or_else(|| number("memory.failcnt")),
        page_faults: of_memory("pgfault", "total_pgfault"),
        major_page_faults: of_memory("pgmajfault", "total_pgmajfault"),
        oom_kills: events.get("oom_kill").or_else(|| oom.get("oom_kill")),
        processes: text("cgroup.procs").map(|text| text.lines().count() as u64),
        threads: number("pids.current"),
    }
}

/// The content of a cgroup's file in which each line has a name and a number; `None` if there is no such file.
pub(super) struct Table(pub(super) Option<String>);

impl Table {
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        let mut lines = self.0.as_ref()?.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: Figures) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
        let mut all = vec![directory.path().to_owned()];
        all.extend(["cpu", "memory"].map(|name| directory.path().join(name)));
        assert_eq!(of(&all), expected);
    }

    #[test]
    fn both_versions_of_cgroups_are_read() {
        check(&[], Figures::default());
        let of_cpu = "usage_usec 2000\nuser_usec 1500\nsystem_usec 500\nnr_periods 4\nnr_throttled 1\nthrottled_usec 7\n";
        let of_memory =
            "anon 100\nfile 300\nfile_mapped 10\ninactive_file 200\npgfault 5\npgmajfault 1\n";
        let two = [
            ("cpu.stat", of_cpu),
            ("memory.stat", of_memory),
            ("memory.current", "450\n"),
            ("memory.peak", "900\n"),
            ("memory.swap.current", "0\n"),
            ("memory.events", "low 0\nmax 3\noom 0\noom_kill 2\n"),
            ("cgroup.procs", "1\n2\n"),
            ("pids.current", "5\n"),
        ];
        let expected = Figures {
            cpu: Some(2_000_000),
            cpu_user: Some(1_500_000),
            cpu_system: Some(500_000),
            periods: Some(4),
            throttled_periods: Some(1),
            throttled: Some(7_000),
            memory: Some(450),
            working_set: Some(250),
            rss: Some(100),
            cache: Some(300),
            mapped: Some(10),
            swap: Some(0),
            most_memory: Some(900),
            limit_reached: Some(3),
            page_faults: Some(5),
            major_page_faults: Some(1),
            oom_kills: Some(2),
            processes: Some(2),
            threads: Some(5),
        };
        check(&two, expected);
        let of_memory = "cache 1\nrss 2\ninactive_file 3\ntotal_cache 300\ntotal_rss 100\ntotal_inactive_file 500\n";
        let one = [
            ("cpu/cpuacct.usage", "2000000\n"),
            (
                "cpu/cpu.stat",
                "nr_periods 0\nnr_throttled 0\nthrottled_time 9\n",
            ),
            ("memory/memory.stat", of_memory),
            ("memory/memory.usage_in_bytes", "450\n"),
            ("memory/memory.failcnt", "0\n"),
            (
                "memory/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            ),
        ];
        let expected = Figures {
            cpu: Some(2_000_000),
            periods: Some(0),
            throttled_periods: Some(0),
            throttled: Some(9),
            memory: Some(450),
            working_set: Some(0),
            rss: Some(100),
            cache: Some(300),
            limit_reached: Some(0),
            oom_kills: Some(1),
            ..Figures::default()
        };
        check(&one, expected);
    }
}
