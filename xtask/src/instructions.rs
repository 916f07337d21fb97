//! `cargo xtask instructions`: how many instructions one operation of each hot path needs, beside the numbers that were
//! recorded with the last change that meant to alter them.
//!
//! Times depend on the machine and on its load; instructions depend on the program and the compiler alone. The paths are
//! those of `allot bench paths`. Each runs twice under valgrind, once with twice as many operations: the difference is what
//! the operations need, without start and preparation. The debug build is counted, because every other check of `.ci/run`
//! has built it; a path that needs 5 % more there needs more in a release as well.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{root, test};

/// What a path may need more than is recorded, in percent.
const TOLERANCE: f64 = 5.0;

/// Counts, then compares or, with `--record`, writes the numbers down. Returns whether no path needs more.
pub fn run(arguments: &[String]) -> Result<bool> {
    let record = match arguments {
        [] => false,
        [one] if one == "--record" => true,
        _ => bail!("usage: cargo xtask instructions [--record]"),
    };
    let program = build()?;
    let tools = tools()?;
    let file = root().join("tests/paths/instructions.txt");
    let recorded = match record {
        true => Recorded::default(),
        false => {
            Recorded::parse(&fs::read_to_string(&file).context("tests/paths/instructions.txt")?)?
        }
    };
    let is_comparable = tools == recorded.tools;
    let mut counted = BTreeMap::new();
    let mut more = Vec::new();
    println!(
        "{:<28} {:>14} {:>14} {:>8}",
        "path", "recorded", "instructions", "change"
    );
    for (name, count) in list(&program)? {
        let mut needed = each(&program, &name, count)?;
        let before = recorded.counts.get(&name).copied();
        if is_comparable && before.is_some_and(|before| change(before, needed) > TOLERANCE) {
            // Background tasks of the runtime may have run in one of the two measurements.
            needed = needed.min(each(&program, &name, count)?);
        }
        let shown = before.map_or("new".to_owned(), |before| {
            format!("{:+.1} %", change(before, needed))
        });
        println!(
            "{name:<28} {:>14} {needed:>14} {shown:>8}",
            before.unwrap_or_default()
        );
        if before.is_none_or(|before| change(before, needed) > TOLERANCE) {
            more.push(name.clone());
        }
        counted.insert(name, needed);
    }
    let now = Recorded {
        tools,
        counts: counted,
    };
    if record {
        fs::write(&file, now.to_string())?;
        println!("recorded in tests/paths/instructions.txt");
        return Ok(true);
    }
    let gone = recorded
        .counts
        .keys()
        .filter(|name| !now.counts.contains_key(*name));
    for name in gone {
        println!("{name}: recorded, and no path any more");
        more.push(name.clone());
    }
    if !is_comparable {
        println!(
            "Not compared: recorded with {}, counted with {}. `cargo xtask instructions --record` records anew.",
            recorded.tools, now.tools
        );
        return Ok(true);
    }
    if !more.is_empty() {
        println!(
            "These paths need more than {TOLERANCE} % more instructions than recorded, or are not recorded: {}.\n\
             If that is meant, `cargo xtask instructions --record` records it, and the commit says why.",
            more.join(", ")
        );
    }
    Ok(more.is_empty())
}

/// The change in percent.
fn change(before: u64, now: u64) -> f64 {
    (now as f64 / before.max(1) as f64 - 1.0) * 100.0
}

/// The debug build of the program, as the tests use it: with other options cargo would build much of it again.
fn build() -> Result<PathBuf> {
    let built = test::executables(&[])?;
    let program = built.iter().rev().find(|message| {
        message["target"]["name"] == "allot" && message["profile"]["test"] == false
    });
    let path = program.and_then(|message| message["executable"].as_str());
    path.map(PathBuf::from).context("cargo made no program")
}

/// The tools on which the numbers depend.
fn tools() -> Result<String> {
    let rustc = first_line(Command::new("rustc").arg("--version").current_dir(root()))?;
    let valgrind = first_line(Command::new("valgrind").arg("--version"))
        .context("valgrind is needed (apt-get install valgrind)")?;
    // The C library counts, too.
    let libc = first_line(Command::new("ldd").arg("--version"))?;
    // Libraries choose their code by what the processor can do.
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let vectors = if cpu.contains(" avx2 ") {
        "avx2"
    } else {
        "no avx2"
    };
    Ok(format!(
        "{rustc}, {valgrind}, {libc}, {} with {vectors}",
        std::env::consts::ARCH
    ))
}

fn first_line(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?} failed");
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// The paths and how many operations a measurement has.
fn list(program: &Path) -> Result<Vec<(String, u64)>> {
    let output = Command::new(program)
        .args(["bench", "paths", "--list"])
        .output()?;
    ensure!(output.status.success(), "allot bench paths --list failed");
    String::from_utf8(output.stdout)?
        .lines()
        .map(|line| {
            let (name, count) = line.rsplit_once(' ').context("a name and a number")?;
            Ok((name.to_owned(), count.parse()?))
        })
        .collect()
}

/// Instructions of one operation.
fn each(program: &Path, name: &str, count: u64) -> Result<u64> {
    let start = |operations: u64| {
        Command::new("valgrind")
            .args([
                "--tool=cachegrind",
                "--cache-sim=no",
                "--cachegrind-out-file=/dev/null",
            ])
            .arg(program)
            .args([
                "bench",
                "paths",
                "--path",
                name,
                "--operations",
                &operations.to_string(),
            ])
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("valgrind")
    };
    // At the same time: the counts do not depend on each other.
    let (one, two) = (start(count)?, start(2 * count)?);
    let total = |child: std::process::Child| {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{name}: {text}");
        total(&text).with_context(|| format!("{name}: valgrind counted nothing: {text}"))
    };
    let (one, two) = (total(one)?, total(two)?);
    Ok(two.saturating_sub(one) / count)
}

/// The count in what cachegrind prints at the end: `==1== I refs:  1,234`.
fn total(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.contains("refs:") && line.contains(" I "))?;
    let (_, number) = line.rsplit_once(':')?;
    number.trim().replace(',', "").parse().ok()
}

/// The content of the file.
#[derive(Debug, Default, PartialEq)]
struct Recorded {
    tools: String,
    counts: BTreeMap<String, u64>,
}

impl Recorded {
    fn parse(text: &str) -> Result<Self> {
        let mut recorded = Recorded::default();
        for line in text.lines() {
            if let Some(tools) = line.strip_prefix("# with ") {
                recorded.tools = tools.to_owned();
            } else if !line.starts_with('#') && !line.is_empty() {
                let (name, count) = line.rsplit_once(' ').context("a name and a number")?;
                let count = count
                    .parse()
                    .with_context(|| format!("tests/paths/instructions.txt: {line}"))?;
                recorded.counts.insert(name.trim_end().to_owned(), count);
            }
        }
        Ok(recorded)
    }
}

impl std::fmt::Display for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "# Instructions of one operation in the debug build: cargo xtask instructions --record"
        )?;
        writeln!(f, "# with {}", self.tools)?;
        for (name, count) in &self.counts {
            writeln!(f, "{name:<28} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_cachegrind_is_read() {
        let printed = "==7== Command: allot\n==7== \n==7== I refs:        1,234,567\n";
        assert_eq!(total(printed), Some(1_234_567));
        assert_eq!(total("==7== I   refs:      12\n"), Some(12));
        assert_eq!(total("==7== killed\n"), None);
    }

    #[test]
    fn what_is_recorded_is_read_again() {
        let counts = [("create a pod", 7), ("get", 12_345_678)];
        let recorded = Recorded {
            tools: "rustc 1.0.0, valgrind-3, x86_64 with avx2".to_owned(),
            counts: counts.map(|(name, count)| (name.to_owned(), count)).into(),
        };
        assert_eq!(Recorded::parse(&recorded.to_string()).unwrap(), recorded);
    }

    #[test]
    fn only_what_needs_more_than_the_tolerance_counts() {
        assert!(change(100, 104) <= TOLERANCE);
        assert!(change(100, 106) > TOLERANCE);
        assert!(change(100, 50) < 0.0);
    }
}
