//! The base of an image for a program that is not static: its loader and libraries, as they are on this machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The shared libraries of a program and their paths; none for one that is static.
pub(super) fn of(binary: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let program = std::fs::read(binary).with_context(|| binary.display().to_string())?;
    if !program.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    let output = Command::new("ldd").arg(binary).output().context("ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if [&text, &errors]
        .iter()
        .any(|it| it.contains("statically linked") || it.contains("not a dynamic executable"))
    {
        return Ok(Vec::new());
    }
    if !output.status.success() {
        bail!("ldd {}: {}", binary.display(), errors.trim());
    }
    let mut all = Vec::new();
    for path in paths(&text)? {
        let content = std::fs::read(&path).with_context(|| path.clone())?;
        all.push((path.trim_start_matches('/').to_owned(), content));
    }
    Ok(all)
}

/// The paths in what ldd prints: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
fn paths(text: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for line in text.lines().map(str::trim) {
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        if path.starts_with("not found") {
            bail!("{line}");
        }
        let path = path.split(" (").next().unwrap_or_default();
        // linux-vdso comes from the kernel and has no path.
        if path.starts_with('/') {
            all.push(path.to_owned());
        }
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// The newest symbol version of glibc that a program requires, such as `2.34`: the dependency of a package.
pub(super) fn glibc(program: &[u8]) -> Option<String> {
    let marker = b"GLIBC_2.";
    let mut newest = None;
    for start in memory(program, marker) {
        let digits = program[start + marker.len()..]
            .iter()
            .take_while(|it| it.is_ascii_digit());
        let minor: String = digits.take(3).map(|it| char::from(*it)).collect();
        newest = newest.max(minor.parse::<u32>().ok());
    }
    newest.map(|minor| format!("2.{minor}"))
}

/// Positions of a text.
fn memory<'a>(bytes: &'a [u8], text: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let windows = bytes.windows(text.len()).enumerate();
    windows
        .filter(move |(_, window)| *window == text)
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\t/lib64/ld.so.2 (0x7f)\n";
        assert_eq!(
            paths(text).expect("paths"),
            ["/lib/x/libc.so.6", "/lib64/ld.so.2"]
        );
        assert!(paths("\tlibx.so => not found\n").is_err());
        assert_eq!(
            glibc(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0"),
            Some("2.34".to_owned())
        );
        assert_eq!(glibc(b"static"), None);
    }
}
