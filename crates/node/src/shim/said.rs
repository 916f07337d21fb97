//! What a hook prints before it fails: hooks that run outside of the container write to this process's standard error, a file
//! that the agent has opened. Those that run inside (`createContainer`, `startContainer`) have the streams of the container.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{FileType, fstat};

/// Bytes of the output that the error contains, at most. The message of an event has 1024 bytes, with the text around it.
const MOST: u64 = 512;

/// The output to standard error after [`Said::from_here`].
pub(super) struct Said {
    file: Option<File>,
    start: u64,
}

impl Said {
    /// The output from now on; it cannot be read if standard error is not a file.
    pub(super) fn from_here() -> Self {
        let stat = fstat(rustix::stdio::stderr()).ok();
        let stat = stat.filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        Self {
            start: stat
                .as_ref()
                .map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0)),
            file: stat.and_then(|_| File::open("/proc/self/fd/2").ok()),
        }
    }

    /// The end of the output, in one line.
    pub(super) fn last(&self) -> String {
        let Some(file) = &self.file else {
            return String::new();
        };
        let length = file.metadata().map_or(0, |it| it.len());
        let start = self.start.max(length.saturating_sub(MOST));
        let mut bytes = vec![0; length.saturating_sub(start).min(MOST) as usize];
        if file.read_exact_at(&mut bytes, start).is_err() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines.collect::<Vec<_>>().join("; ");
        line.replace(|c: char| c.is_control(), " ")
    }
}
