//! The format of Debian's packages: an `ar` archive of two compressed ones.

use anyhow::Result;

use super::tree::{Tree, gzip};

/// The control file of a package.
pub(super) struct Control<'a> {
    pub version: &'a str,
    pub architecture: &'a str,
    /// The oldest glibc that the program runs with; `None` for a static one.
    pub glibc: Option<String>,
    /// Files that an administrator changes, and an upgrade does not.
    pub configuration: &'a [&'a str],
    pub time: u64,
    pub files: &'a Tree,
}

/// Units are registered, and nothing is enabled or started: the administrator decides what runs on a machine.
const INSTALLED: &str = "#!/bin/sh
set -e
if [ \"$1\" = configure ] && [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
";

/// Stops the services of a package that is removed.
const REMOVED: &str = "#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then
  systemctl stop allot.service allot-node.service allot-scheduler.service allot-controllers.service || true
fi
";

/// The package.
pub(super) fn package(control: &Control<'_>) -> Result<Vec<u8>> {
    let kilobytes: usize = control
        .files
        .files()
        .map(|(_, it)| it.len().div_ceil(1024))
        .sum();
    let depends = match &control.glibc {
        Some(version) => format!("Depends: libc6 (>= {version})\n"),
        None => String::new(),
    };
    let text = format!(
        "Package: allot\nVersion: {}\nArchitecture: {}\nMaintainer: The allot authors <{}>\nInstalled-Size: {kilobytes}\n\
         {depends}Recommends: ca-certificates\nSection: admin\nPriority: optional\nHomepage: {}\n\
         Description: Kubernetes Dynamic Resource Allocation in one binary\n \
         API server, scheduler, controllers, node agent and example drivers for devices in\n \
         Kubernetes; a whole cluster on one machine, or single components for any cluster.\n",
        control.version,
        control.architecture,
        env!("CARGO_PKG_REPOSITORY"),
        env!("CARGO_PKG_REPOSITORY"),
    );
    let mut about = Tree::default();
    about.file("control", 0o644, text);
    let configuration = control.configuration.iter().map(|file| format!("{file}\n"));
    about.file("conffiles", 0o644, configuration.collect::<String>());
    about.file("postinst", 0o755, INSTALLED);
    about.file("prerm", 0o755, REMOVED);
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&about.tar("./", control.time)?)?),
        (
            "data.tar.gz",
            gzip(&control.files.tar("./", control.time)?)?,
        ),
    ] {
        let head = format!(
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
            control.time,
            0,
            0,
            "100644",
            content.len()
        );
        archive.extend(head.as_bytes());
        archive.extend(&content);
        if content.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    Ok(archive)
}
