//! A full disk below the driver's own directory.

use std::ffi::CString;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::case::{Case, Observed, Stop, case, ensure, fail, skip};
use crate::fixture::{Fixture, size};
use allot_kubelet::ClaimRef;

pub(crate) const CASES: &[Case] = &[case!(full, "state-disk-full", process: true, devices: 2,
    rule: "While no space is left for its state, the driver refuses what it cannot record, and forgets nothing; it goes on by itself when there is space.",
    source: "KEP-4381: NodePrepareResources must be idempotent, also over restarts",
    hint: "answer with the error of the write; write to a temporary file and rename it, so that the last state stays")];

/// What is left beside the files of a driver that has started: enough for its state, and little to fill.
const ROOM: u64 = 4 << 20;
/// The largest file system, which is in memory.
const LARGEST: u64 = 1 << 30;
const FILLER: &str = "conformance-filler";

/// A small file system over a directory, until it is dropped.
struct Disk {
    path: PathBuf,
    guard: Child,
}

impl Disk {
    /// Mounts a file system with space for the files that are there: a driver writes those of its start again, such as
    /// programs that it installs, and may write the new one beside the old one.
    fn mount(path: &Path) -> Result<Self, Stop> {
        let room = size(path).saturating_mul(2).saturating_add(ROOM);
        if room > LARGEST {
            return skip(format!("the driver's files have more than {LARGEST} bytes"));
        }
        let Ok(data) = CString::new(format!("size={room},mode=0755")) else {
            return fail("the options of the file system have a NUL");
        };
        // Unmounts when its input ends, as it does when this process is killed.
        let guard = Command::new("sh")
            .args(["-c", "read -r line; umount -l \"$1\"", "sh"])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let mut guard = guard.or_else(|error| skip(format!("sh: {error}")))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        match rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(data.as_c_str())) {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                guard,
            }),
            Err(error) => {
                end(&mut guard);
                skip(format!(
                    "a small file system cannot be mounted here ({error}): run as root"
                ))
            }
        }
    }

    /// Writes until there is no space.
    fn fill(&self) -> Result<(), Stop> {
        let write = || {
            let mut file = std::fs::File::create(self.path.join(FILLER))?;
            loop {
                file.write_all(&[0; 4096])?;
            }
        };
        let result: std::io::Result<()> = write();
        match result {
            Err(error) if error.kind() == ErrorKind::StorageFull => Ok(()),
            Err(error) => fail(format!("{}: {error}", self.path.display())),
            Ok(()) => Ok(()),
        }
    }

    fn free(&self) {
        // It is there, and nothing else removes it.
        let _ = std::fs::remove_file(self.path.join(FILLER));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The driver may still run, with open files.
        let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
        end(&mut self.guard);
    }
}

fn end(guard: &mut Child) {
    // It may have ended already.
    let _ = guard.kill();
    let _ = guard.wait();
}

async fn full(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    w.kill().await;
    let disks = [&w.places.plugins, &w.places.scratch].map(|path| Disk::mount(path));
    let disks = disks.into_iter().collect::<Result<Vec<_>, _>>()?;
    w.start_again().await?;
    let first = w.claim(0).await?;
    let devices = w.prepare(&first).await?;
    if w.state_files().is_empty() {
        return skip("the driver keeps no files");
    }
    // Only then it can be seen what it remembers.
    let exclusive = !w.devices()[0].shared && !w.devices()[1].shared && w.refuses(0).await?;
    for disk in &disks {
        disk.fill()?;
    }
    let second = w.claim(1).await?;
    let answer = w.try_prepare(&second).await?;
    let free = || disks.iter().for_each(Disk::free);
    if answer.is_ok() {
        w.kill().await;
        free();
        w.start_again().await?;
        ensure!(
            !exclusive || w.refuses(1).await?,
            "what it answered while the disk was full is forgotten after a restart: the device goes to another claim"
        );
    } else {
        free();
    }
    goes_on(w)?;
    let now = w.prepare(&second).await?;
    w.resolves(&now)?;
    for disk in &disks {
        disk.fill()?;
    }
    // It may fail.
    try_unprepare(w, &second).await?;
    w.kill().await;
    free();
    w.start_again().await?;
    ensure!(
        !exclusive || w.refuses(0).await?,
        "a claim that was prepared before the disk was full is forgotten: its device goes to another claim"
    );
    let again = w.prepare(&first).await?;
    ensure!(
        again == devices,
        "before the disk was full {devices:?}, after it {again:?}"
    );
    w.resolves(&again)?;
    w.unprepare(&first).await?;
    w.unprepare(&second).await?;
    w.is_clean(&first, &before)?;
    w.is_clean(&second, &before)?;
    Ok(match answer {
        Ok(_) => "it prepares without space, and remembers that".to_owned(),
        Err(error) => format!("refused: {error}"),
    })
}

async fn try_unprepare(w: &Fixture, claim: &ClaimRef) -> Result<(), Stop> {
    let plugin = w.plugin()?;
    let claims = std::slice::from_ref(claim);
    let _ = plugin.unprepare(plugin.version(), claims, w.limit()).await;
    Ok(())
}

/// Fails if the process has ended.
fn goes_on(w: &mut Fixture) -> Result<(), Stop> {
    match w.process().and_then(|process| process.exited()) {
        Some(status) => fail(format!("the driver ended when the disk was full: {status}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// A kit that was killed left the file system mounted.
    #[test]
    fn regression_the_file_system_is_unmounted_when_the_kit_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
        let mut disk = match Disk::mount(&inner) {
            Ok(disk) => disk,
            Err(Stop::Skip(reason) | Stop::Fail(reason)) => return eprintln!("skipped: {reason}"),
        };
        assert_ne!(device(&inner), device(directory.path()));
        // The kernel closes it when the process ends.
        drop(disk.guard.stdin.take());
        assert!(disk.guard.wait().unwrap().success());
        assert_eq!(device(&inner), device(directory.path()));
    }
}
