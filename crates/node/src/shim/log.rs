//! Container logs in the format that the CRI defines.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::OFlags;

use crate::rules::{LOG_FILES, LOG_SIZE};

/// Longer lines are split into partial ones, as by containerd.
const LONGEST: usize = 16 * 1024;

/// The log of a container. Other users of the machine cannot read it.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    full: u64,
}

impl Log {
    /// Continues a log, or begins one.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            allot_cdi::file::create_private_dir(parent, 0o750)?;
        }
        let file = Self::begin(path)?;
        Ok(Self {
            size: file.metadata()?.len(),
            path: path.to_owned(),
            file,
            full: LOG_SIZE,
        })
    }

    fn begin(path: &Path) -> io::Result<File> {
        // A pod that has this directory as a volume can put something else there: a link to any file, or a pipe that is waited for.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o640)
            .custom_flags(flags.bits().cast_signed())
            .open(path)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("not a regular file")),
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.size >= self.full {
            // A log that cannot be renamed continues.
            self.rotate()
                .unwrap_or_else(|error| eprintln!("log: {error}"));
        }
        if let Err(error) = self.file.write_all(lines) {
            // What was written of them, as on a full disk, would be the beginning of the next line.
            let _ = self.file.set_len(self.size);
            return Err(error);
        }
        self.size += lines.len() as u64;
        Ok(())
    }

    /// Puts the full file aside, begins another one, and removes the oldest ones.
    fn rotate(&mut self) -> io::Result<()> {
        put_aside(&self.path)?;
        self.file = Self::begin(&self.path)?;
        self.size = 0;
        remove_oldest(&self.path, LOG_FILES)
    }
}

/// Opens a log for reading. A pod that has the directory of logs as its volume can put something else there: a link to any file of the
/// host, which would be shown, or a pipe, which would be waited for.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("the log is not a regular file")),
    }
}

/// Renames a log to its name with the time of day, as the kubelet does. Returns the new path.
pub(crate) fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Of the same length always, so that names have the order of their times.
    let time = Timestamp::now().strftime("%Y%m%d-%H%M%S.%9f");
    let aside = path.with_file_name(format!("{name}.{time}"));
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Removes the oldest of the logs that were put aside, so that `files` stay, with the current one.
pub(crate) fn remove_oldest(path: &Path, files: usize) -> io::Result<()> {
    let prefix = format!(
        "{}.",
        path.file_name().unwrap_or_default().to_string_lossy()
    );
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    let mut old: Vec<PathBuf> = fs::read_dir(directory)?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect();
    old.sort();
    let surplus = old.len().saturating_sub(files.saturating_sub(1));
    old.iter().take(surplus).try_for_each(fs::remove_file)
}

/// One log line: time, stream, `F` for a full line or `P` for a part of one, text.
pub fn format_line(out: &mut Vec<u8>, time: Timestamp, stream: &str, full: bool, text: &[u8]) {
    let tag = if full { 'F' } else { 'P' };
    // Writing to a vector does not fail.
    let _ = write!(out, "{time:.9} {stream} {tag} ");
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// Collects the output of one stream until lines are complete.
pub(super) struct Lines {
    stream: &'static str,
    rest: Vec<u8>,
}

impl Lines {
    pub(super) fn new(stream: &'static str) -> Self {
        Self {
            stream,
            rest: Vec::new(),
        }
    }

    /// The number of the file descriptor.
    pub(super) fn channel(&self) -> u8 {
        if self.stream == "stderr" { 2 } else { 1 }
    }

    /// Writes all complete lines.
    pub(super) fn push(&mut self, log: &mut Log, bytes: &[u8]) -> io::Result<()> {
        let now = Timestamp::now();
        let mut out = Vec::with_capacity(bytes.len() + 64);
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        // split yields at least one piece; the last one has no newline yet.
        let last = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            self.rest.extend_from_slice(piece);
            self.flush_long(&mut out, now);
            format_line(&mut out, now, self.stream, true, &self.rest);
            self.rest.clear();
        }
        self.rest.extend_from_slice(last);
        self.flush_long(&mut out, now);
        log.write(&out)
    }

    fn flush_long(&mut self, out: &mut Vec<u8>, now: Timestamp) {
        while self.rest.len() > LONGEST {
            format_line(out, now, self.stream, false, &self.rest[..LONGEST]);
            self.rest.drain(..LONGEST);
        }
    }

    /// The stream ended: the rest is a line without a newline.
    pub(super) fn finish(&mut self, log: &mut Log) -> io::Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let mut out = Vec::new();
        format_line(&mut out, Timestamp::now(), self.stream, false, &self.rest);
        self.rest.clear();
        log.write(&out)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn full_logs_are_put_aside_and_the_oldest_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pod").join("0.log");
        let mut log = Log::open(&path).unwrap();
        log.full = 100;
        let mut lines = Lines::new("stdout");
        for number in 0..100 {
            lines
                .push(&mut log, format!("line {number}\n").as_bytes())
                .unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .flatten()
            .collect();
        names.sort_by_key(fs::DirEntry::file_name);
        assert_eq!(names.len(), LOG_FILES);
        let current = fs::read_to_string(names[0].path()).unwrap();
        assert!(current.ends_with("stdout F line 99\n"), "{current}");
        let all: String = names
            .iter()
            .map(|it| fs::read_to_string(it.path()).unwrap())
            .collect();
        assert!(!all.contains("line 0\n"), "the oldest is gone");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o640);
        assert_eq!(mode(path.parent().unwrap()), 0o750);
    }

    /// The attack: a pod with the directory of logs as its volume leads the log of another container to a file of the host, in
    /// which its lines were written.
    #[test]
    fn regression_a_link_in_the_place_of_a_log_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (
            directory.path().join("0.log"),
            directory.path().join("other"),
        );
        fs::write(&other, "").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(Log::open(&path).is_err());
        fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(Log::open(&path).is_err());
        assert_eq!(fs::read_to_string(&other).unwrap(), "");
    }
}
