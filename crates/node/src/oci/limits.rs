//! Changes the CPU and memory limits of a running container, in both versions of cgroups.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::cgroup::{
    CPU_PERIOD, INNER, LimitFile, MEMORY, PERIOD, PIDS, QUOTA, ROOT, SHARES, is_second_version,
};
use crate::error::{AtPath as _, PathError};
use crate::spec::Limits;

/// Changes the CPU and memory limits of a running container. Memory comes first: if the kernel refuses the memory limit, nothing
/// has changed.
///
/// # Errors
/// The file that cannot be written. The container may have ended.
pub(crate) fn change(container: &Path, limits: &Limits) -> Result<(), PathError> {
    change_below(Path::new(ROOT), container, limits)
}

fn change_below(root: &Path, container: &Path, limits: &Limits) -> Result<(), PathError> {
    let relative = container.strip_prefix("/").unwrap_or(container);
    if is_second_version(root) {
        return change_second(&root.join(relative), limits);
    }
    let first = First { root, relative };
    first.write(MEMORY, limits.memory)?;
    let shares = limits.cpu_shares.and_then(|it| i64::try_from(it).ok());
    first.write(SHARES, shares)?;
    let period = limits.cpu_quota.map(|_| CPU_PERIOD);
    let period = limits.cpu_period.or(period);
    let period = period.and_then(|it| i64::try_from(it).ok());
    first.write(PERIOD, period)?;
    first.write(QUOTA, limits.cpu_quota)?;
    first.write(PIDS, limits.pids)?;
    for (file, value) in [("cpuset.cpus", &limits.cpus), ("cpuset.mems", &limits.mems)] {
        if let Some(value) = value {
            write(&first.inner("cpuset").join(file), value)?;
        }
    }
    Ok(())
}

/// [`change`] with the second version of cgroups.
fn change_second(directory: &Path, limits: &Limits) -> Result<(), PathError> {
    let text = |value: i64| match value {
        ..0 => "max".to_owned(),
        value => value.to_string(),
    };
    if let Some(memory) = limits.memory {
        write(&directory.join(MEMORY.second), &text(memory))?;
    }
    if let Some(shares) = limits.cpu_shares {
        write(&directory.join(SHARES.second), &weight(shares).to_string())?;
    }
    let cpu = match (limits.cpu_quota, limits.cpu_period) {
        (None, None) => None,
        (Some(quota), period) => Some((text(quota), period.unwrap_or(CPU_PERIOD))),
        (None, Some(period)) => {
            let now = fs::read_to_string(directory.join(QUOTA.second));
            let quota = now
                .ok()
                .and_then(|now| now.split(' ').next().map(str::to_owned));
            Some((quota.unwrap_or_else(|| "max".to_owned()), period))
        }
    };
    if let Some((quota, period)) = cpu {
        write(&directory.join(QUOTA.second), &format!("{quota} {period}"))?;
    }
    if let Some(pids) = limits.pids {
        write(&directory.join(PIDS.second), &text(pids))?;
    }
    for (file, value) in [("cpuset.cpus", &limits.cpus), ("cpuset.mems", &limits.mems)] {
        if let Some(value) = value {
            write(&directory.join(file), value)?;
        }
    }
    for (file, value) in &limits.unified {
        write(&directory.join(file), value)?;
    }
    Ok(())
}

/// The first version of cgroups: the processes of a container are in a cgroup below that of the container.
struct First<'a> {
    root: &'a Path,
    relative: &'a Path,
}

impl First<'_> {
    /// The cgroup of the processes of the container.
    fn inner(&self, controller: &str) -> PathBuf {
        let outer = self.root.join(controller).join(self.relative);
        let inner = outer.join(INNER);
        match inner.is_dir() {
            true => inner,
            false => outer,
        }
    }

    /// Writes a limit to both cgroups, in an order in which the lower one never has more than the one above.
    fn write(&self, file: LimitFile, value: Option<i64>) -> Result<(), PathError> {
        let (controller, file) = (self.root.join(file.controller), file.first);
        // Where the kernel has no such controller, the container has no such limit either.
        let (Some(value), true) = (value, controller.is_dir()) else {
            return Ok(());
        };
        let outer = controller.join(self.relative);
        let inner = outer.join(INNER);
        let mut both: Vec<PathBuf> = vec![outer.join(file)];
        // A container that was started by an earlier release has no lower cgroup.
        if inner.is_dir() {
            both.push(inner.join(file));
        }
        let before = fs::read_to_string(&both[0]).ok();
        let before = before.and_then(|text| text.trim().parse::<i64>().ok());
        let grows = before.is_some_and(|before| before >= 0 && before < value);
        if !grows {
            both.reverse();
        }
        let value = value.to_string();
        both.iter().try_for_each(|file| write(file, &value))
    }
}

/// Writes to an existing file. It is not created: the cgroup of a container that has ended must stay away.
pub(super) fn write(file: &Path, value: &str) -> Result<(), PathError> {
    let opened = fs::OpenOptions::new().write(true).truncate(true).open(file);
    opened
        .and_then(|mut opened| opened.write_all(value.as_bytes()))
        .at(file)
}

/// The weight that stands for a number of shares, as libcontainer computes it when it creates the container: 1 for 2, 100 for
/// 1024 and 10 000 for 262 144 shares.
pub(super) fn weight(shares: u64) -> u64 {
    const WEIGHTS: (u64, u64) = (1, 10_000);
    const SHARES: (u64, u64) = (2, 262_144);
    if shares <= SHARES.0 {
        return WEIGHTS.0;
    }
    if shares >= SHARES.1 {
        return WEIGHTS.1;
    }
    let doublings = (shares as f64).log2();
    let exponent = (doublings * doublings + 125.0 * doublings) / 612.0 - 7.0 / 34.0;
    let weight = 10_f64.powf(exponent).ceil() as u64;
    weight.clamp(WEIGHTS.0, WEIGHTS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cgroup file system of a test: these files, with these contents.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        root
    }

    fn read(root: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(root.path().join(name)).expect("a file")
    }

    fn limits() -> Limits {
        Limits {
            cpu_shares: Some(512),
            cpu_quota: Some(50_000),
            memory: Some(1 << 20),
            ..Limits::default()
        }
    }

    #[test]
    fn weights_are_those_of_shares() {
        let check = |shares: u64, expected: u64| assert_eq!(weight(shares), expected);
        check(0, 1);
        check(2, 1);
        check(1024, 100);
        check(262_144, 10_000);
        check(u64::MAX, 10_000);
        assert!(weight(512) < weight(1024) && weight(1024) < weight(2048));
    }

    #[test]
    fn limits_of_the_second_version_are_changed() {
        let root = tree(&[
            ("cgroup.controllers", "cpu memory"),
            ("allot/c/memory.max", "max"),
            ("allot/c/cpu.weight", "100"),
            ("allot/c/cpu.max", "max 100000"),
        ]);
        let container = Path::new("/allot/c");
        change_below(root.path(), container, &limits()).expect("changed");
        assert_eq!(read(&root, "allot/c/memory.max"), "1048576");
        assert_eq!(read(&root, "allot/c/cpu.weight"), weight(512).to_string());
        assert_eq!(read(&root, "allot/c/cpu.max"), "50000 100000");
        // Those of a container without limits stay.
        change_below(root.path(), container, &Limits::default()).expect("nothing");
        assert_eq!(read(&root, "allot/c/memory.max"), "1048576");
    }

    #[test]
    fn processors_and_processes_are_changed() {
        let wanted = Limits {
            cpus: Some("1-2".to_owned()),
            mems: Some("0".to_owned()),
            pids: Some(9),
            cpu_quota: Some(-1),
            cpu_period: Some(50_000),
            unified: [("memory.high".to_owned(), "7".to_owned())].into(),
            ..Limits::default()
        };
        let files = [
            "cpuset.cpus",
            "cpuset.mems",
            "pids.max",
            "cpu.max",
            "memory.high",
        ];
        let files = files.map(|name| format!("allot/c/{name}"));
        let mut all = vec![("cgroup.controllers", "cpuset")];
        all.extend(files.iter().map(|name| (name.as_str(), "")));
        let second = tree(&all);
        let container = Path::new("/allot/c");
        change_below(second.path(), container, &wanted).expect("changed");
        let found = files.each_ref().map(|name| read(&second, name));
        assert_eq!(found, ["1-2", "0", "9", "max 50000", "7"]);
        let first = tree(&[
            ("cpuset/allot/c/cpuset.cpus", "0-3"),
            ("cpuset/allot/c/processes/cpuset.cpus", "0-3"),
            ("cpuset/allot/c/processes/cpuset.mems", "0-1"),
        ]);
        change_below(first.path(), container, &wanted).expect("changed");
        assert_eq!(read(&first, "cpuset/allot/c/processes/cpuset.cpus"), "1-2");
        assert_eq!(read(&first, "cpuset/allot/c/processes/cpuset.mems"), "0");
        assert_eq!(read(&first, "cpuset/allot/c/cpuset.cpus"), "0-3");
    }

    #[test]
    fn both_cgroups_of_the_first_version_are_changed() {
        let files = [
            (
                "memory/allot/c/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("memory/allot/c/processes/memory.limit_in_bytes", "5\n"),
            ("cpu/allot/c/cpu.shares", "2\n"),
            ("cpu/allot/c/processes/cpu.shares", "2\n"),
            ("cpu/allot/c/cpu.cfs_period_us", "100000\n"),
            ("cpu/allot/c/processes/cpu.cfs_period_us", "100000\n"),
            ("cpu/allot/c/cpu.cfs_quota_us", "-1\n"),
            ("cpu/allot/c/processes/cpu.cfs_quota_us", "-1\n"),
        ];
        let root = tree(&files);
        change_below(root.path(), Path::new("/allot/c"), &limits()).expect("changed");
        for (name, _) in files {
            let expected = match name.rsplit('/').next() {
                Some("memory.limit_in_bytes") => "1048576",
                Some("cpu.shares") => "512",
                Some("cpu.cfs_quota_us") => "50000",
                _ => "100000",
            };
            assert_eq!(read(&root, name), expected, "{name}");
        }
    }

    /// If the first of the two files cannot be written, the second one is not: otherwise the lower cgroup would have more than
    /// the upper one, which the kernel refuses for CPU quotas.
    #[test]
    fn a_failed_write_to_the_lower_cgroup_leaves_the_upper_one() {
        let file = "cpu/allot/c/cpu.cfs_quota_us";
        let check = |before: &str, expected: &str| {
            let root = tree(&[
                (file, before),
                ("cpu/allot/c/cpu.shares", "2"),
                ("cpu/allot/c/cpu.cfs_period_us", "100000"),
            ]);
            // The lower one has no files: it cannot be written.
            fs::create_dir(root.path().join("cpu/allot/c").join(INNER)).expect("a directory");
            let first = First {
                root: root.path(),
                relative: Path::new("allot/c"),
            };
            let written = first.write(QUOTA, Some(50_000));
            assert!(written.is_err());
            assert_eq!(read(&root, file), expected);
        };
        check("60000", "60000");
        check("-1", "-1");
        check("40000", "50000");
    }

    #[test]
    fn the_cgroup_of_a_container_that_has_ended_is_not_made_again() {
        let root = tree(&[("memory/other", "")]);
        let changed = change_below(root.path(), Path::new("/allot/c"), &limits());
        let error = changed.expect_err("an error");
        assert!(error.path.ends_with("memory.limit_in_bytes"), "{error}");
        assert!(!root.path().join("memory/allot").exists());
    }
}
