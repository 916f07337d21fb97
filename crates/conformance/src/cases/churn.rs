//! Many claims in a row: what a driver uses does not grow with them.

use tokio::time::Instant;

use crate::case::{Case, Observed, Stop, case, ensure, fail};
use crate::fixture::{Fixture, POLL_INTERVAL};
use crate::process::Usage;

pub(crate) const CASES: &[Case] = &[case!(churn, "churn", process: true, devices: 1,
    rule: "Preparing and unpreparing hundreds of claims, or as many as --churn-minutes has time for, leaks no file descriptors, memory, processes or files.",
    source: "kubelet DRA gRPC API: a driver runs for months",
    hint: "close what each claim opens; remove state and files of unprepared claims")];

/// More memory than this is a leak, not a cache that fills up.
const MEMORY: u64 = 48 << 20;
/// A connection pool or a log file may be opened meanwhile.
const DESCRIPTORS: usize = 12;
/// A database may add a log or a lock.
const FILES: usize = 2;
/// It may also grow before it is compacted.
const STATE: u64 = 16 << 20;

/// What the driver uses outside of its processes.
struct Files {
    cdi: usize,
    state: usize,
    directories: usize,
    /// Of the files of state, together.
    bytes: u64,
}

impl Files {
    fn of(w: &Fixture) -> Self {
        let state = w.state_files();
        let sizes = state.iter().filter_map(|path| std::fs::metadata(path).ok());
        Self {
            cdi: w.cdi_files().len(),
            state: state.len(),
            directories: w.state_directories(),
            bytes: sizes.map(|file| file.len()).fold(0, u64::saturating_add),
        }
    }
}

async fn churn(w: &mut Fixture) -> Observed {
    let (cycles, lasts) = (w.options().cycles, w.options().churn);
    let begun = Instant::now();
    let (mut claims, mut before) = (0, None);
    while claims < cycles || begun.elapsed() < lasts {
        // In the first quarter, caches fill up.
        if before.is_none() && claims >= cycles / 4 && begun.elapsed() >= lasts / 4 {
            before = Some((claims, w.usage(), Files::of(w)));
        }
        let claim = w.claim(0).await?;
        w.prepare(&claim).await?;
        w.unprepare(&claim).await?;
        w.delete_claim(&claim).await?;
        w.forget(&claim);
        claims += 1;
    }
    let Some((first, used, files)) = before else {
        return fail("there was no time for claims");
    };
    let measured = claims - first;
    // Work under way, such as a scan for devices, holds descriptors for a while, and a garbage collector closes some
    // later; a leak stays.
    let deadline = Instant::now() + w.options().quiet * 5;
    let after = loop {
        let after = w.usage();
        match leaks(used, after, measured) {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(POLL_INTERVAL).await,
            leaks => break leaks.map(|()| after)?,
        }
    };
    let now = Files::of(w);
    ensure!(
        now.cdi <= files.cdi,
        "{} CDI files after {measured} claims, {} before",
        now.cdi,
        files.cdi
    );
    ensure!(
        now.state <= files.state + FILES,
        "{} files of state after {measured} claims, {} before",
        now.state,
        files.state
    );
    ensure!(
        now.directories <= files.directories + FILES,
        "{} directories of state after {measured} claims, {} before",
        now.directories,
        files.directories
    );
    let bytes = now.bytes.saturating_sub(files.bytes);
    ensure!(
        bytes <= STATE,
        "{} MiB more state after {measured} claims",
        bytes >> 20
    );
    Ok(format!(
        "{claims} claims in {:.0?}; before and after the last {measured}: descriptors {} and {}, memory {} and {} KiB, CDI files {} and {}, files of state {} and {} with {} and {} KiB",
        begun.elapsed(),
        used.descriptors,
        after.descriptors,
        used.memory >> 10,
        after.memory >> 10,
        files.cdi,
        now.cdi,
        files.state,
        now.state,
        files.bytes >> 10,
        now.bytes >> 10
    ))
}

/// Fails if the driver's processes use more than before, and the growth is a leak.
fn leaks(before: Usage, now: Usage, claims: u32) -> Result<(), Stop> {
    let descriptors = now.descriptors.saturating_sub(before.descriptors);
    ensure!(
        descriptors <= DESCRIPTORS,
        "{descriptors} more open descriptors after {claims} claims"
    );
    let memory = now.memory.saturating_sub(before.memory);
    ensure!(
        memory <= MEMORY,
        "{} MiB more memory after {claims} claims",
        memory >> 20
    );
    ensure!(
        now.processes <= before.processes,
        "{} processes, {} before",
        now.processes,
        before.processes
    );
    Ok(())
}
