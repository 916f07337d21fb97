//! A log file with rotation: a full one gets a number, and the oldest is removed.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use parking_lot::Mutex;

/// A file is full at this many bytes.
const FULL: u64 = 10 << 20;

/// Number of full files that are kept.
const KEPT: usize = 4;

/// The log file of this process.
static CURRENT: Mutex<Option<Rotating>> = Mutex::new(None);

struct Rotating {
    path: PathBuf,
    file: File,
    size: u64,
    full: u64,
}

/// From now on the log is written to this file, and so is everything else on standard error.
///
/// # Errors
/// The file cannot be created or written.
pub fn start(path: &Path) -> anyhow::Result<()> {
    let file = Rotating::open(path, FULL)
        .with_context(|| format!("cannot write the log file {}", path.display()))?;
    file.redirect();
    *CURRENT.lock() = Some(file);
    Ok(())
}

/// Whether the log is written to a file.
#[must_use]
pub fn is_used() -> bool {
    CURRENT.lock().is_some()
}

/// Writes a line if the log is written to a file.
pub fn write(line: &[u8]) -> Option<std::io::Result<()>> {
    CURRENT.lock().as_mut().map(|file| file.write(line))
}

/// The files of a log that exist, the oldest first.
#[must_use]
pub fn files(path: &Path) -> Vec<PathBuf> {
    let numbered = (1..=KEPT).rev().map(|number| old(path, number));
    let all = numbered.chain([path.to_owned()]);
    all.filter(|file| file.is_file()).collect()
}

fn old(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)
}

impl Rotating {
    fn open(path: &Path, full: u64) -> std::io::Result<Self> {
        if let Some(directory) = path.parent() {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(directory)?;
        }
        let file = open(path)?;
        Ok(Self {
            path: path.to_owned(),
            size: file.metadata()?.len(),
            file,
            full,
        })
    }

    /// Redirects standard error to this file: panics are printed there, and the output of children.
    fn redirect(&self) {
        let _ = rustix::stdio::dup2_stderr(&self.file);
    }

    fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        if self.size > 0 && self.size + line.len() as u64 > self.full {
            // If files cannot be renamed, one that is too long is better than none.
            self.rotate().unwrap_or_default();
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> std::io::Result<()> {
        for number in (1..KEPT).rev() {
            let _ = std::fs::rename(old(&self.path, number), old(&self.path, number + 1));
        }
        match std::fs::rename(&self.path, old(&self.path, 1)) {
            // It was removed meanwhile: a new one is created.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let redirected = is_standard_error(&self.file);
        self.file = open(&self.path)?;
        self.size = 0;
        if redirected {
            self.redirect();
        }
        Ok(())
    }
}

fn is_standard_error(file: &File) -> bool {
    let same =
        |a: rustix::fs::Stat, b: rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    let both =
        rustix::fs::fstat(file).and_then(|a| Ok((a, rustix::fs::fstat(rustix::stdio::stderr())?)));
    both.is_ok_and(|(a, b)| same(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_numbered_and_the_oldest_removed() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("logs/allot.log");
        let mut log = Rotating::open(&path, 10).expect("opened");
        for number in 0..20 {
            log.write(format!("line {number:02}\n").as_bytes())
                .expect("written");
        }
        let files = files(&path);
        assert_eq!(files.len(), KEPT + 1, "{files:?}");
        let text: String = files
            .iter()
            .map(|file| std::fs::read_to_string(file).expect("read"))
            .collect();
        assert_eq!(text, "line 15\nline 16\nline 17\nline 18\nline 19\n");
        drop(log);
        let mut log = Rotating::open(&path, 100).expect("opened again");
        log.write(b"more\n").expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, "line 19\nmore\n");
    }
}
