//! The file of the audit log, written by a thread.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime};

use super::event::Event;

/// Limit of queued events.
const WAITING: usize = 10_000;
/// Limit of their bytes.
const WAITING_BYTES: usize = 64 << 20;

/// When a new file is started, and how old files are removed. 0 is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rotation {
    /// Bytes of a file.
    pub size: u64,
    /// Number of old files that are kept.
    pub backups: usize,
    /// Age to which they are kept.
    pub age: Duration,
}

/// The destination of events. Clones share it.
#[derive(Debug, Clone)]
pub struct Log {
    queue: SyncSender<Message>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: AtomicUsize,
    lost: AtomicU64,
}

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

impl Log {
    /// Appends to a file; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let output = match path == Path::new("-") {
            true => Output::Stdout,
            false => Output::File(Rotated::open(path, rotation)?),
        };
        let (queue, messages) = sync_channel(WAITING);
        let state = Arc::<State>::default();
        let shared = state.clone();
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || run(&messages, output, &shared))?;
        Ok(Log { queue, state })
    }

    /// Queues an event. If writes to the file are too slow, events are dropped and counted: the log must not block
    /// requests.
    pub(super) fn write(&self, event: &Event) {
        let Ok(mut line) = serde_json::to_vec(event) else {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        line.push(b'\n');
        let size = line.len();
        let waiting = self.state.waiting.fetch_add(size, Ordering::Relaxed);
        let fits = waiting == 0 || waiting + size <= WAITING_BYTES;
        let sent = match fits {
            true => self.queue.try_send(Message::Line(line)),
            false => Err(TrySendError::Full(Message::Line(line))),
        };
        if sent.is_err() {
            self.state.waiting.fetch_sub(size, Ordering::Relaxed);
            let before = self.state.lost.fetch_add(1, Ordering::Relaxed);
            if before.is_power_of_two() || before == 0 {
                tracing::error!(lost = before + 1, "the audit log can not keep up");
            }
        }
    }

    /// Waits until all earlier events are written.
    pub(super) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.send(Message::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }
}

fn run(messages: &Receiver<Message>, mut output: Output, state: &State) {
    let mut failed = false;
    while let Ok(message) = messages.recv() {
        match message {
            Message::Line(line) => {
                state.waiting.fetch_sub(line.len(), Ordering::Relaxed);
                let result = output.write(&line);
                if let Err(error) = &result {
                    state.lost.fetch_add(1, Ordering::Relaxed);
                    if !failed {
                        tracing::error!(%error, "can not write the audit log");
                    }
                }
                failed = result.is_err();
            }
            Message::Flush(done) => drop(done.send(())),
        }
    }
}

enum Output {
    Stdout,
    File(Rotated),
}

impl Output {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Output::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(line)?;
                stdout.flush()
            }
            Output::File(file) => file.write(line),
        }
    }
}

/// A file that is renamed when it is full.
struct Rotated {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    {
        // Depending on the policy, the log may contain secrets.
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

impl Rotated {
    fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory)?;
        }
        let file = open(path)?;
        let size = file.metadata()?.len();
        Ok(Rotated {
            path: path.to_owned(),
            rotation,
            file,
            size,
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let size = line.len() as u64;
        let full = self.rotation.size > 0 && self.size + size > self.rotation.size;
        if full && self.size > 0 {
            self.rotate()?;
        }
        self.size += size;
        self.file.write_all(line)
    }

    fn rotate(&mut self) -> io::Result<()> {
        let old = self.free_name();
        std::fs::rename(&self.path, old)?;
        self.file = open(&self.path)?;
        self.size = 0;
        // The removal of remaining files is retried with the next rotation.
        let _ = self.remove_old();
        Ok(())
    }

    /// `audit.log` becomes `audit-2026-01-02T15-04-05.000.log`; of two in the same millisecond the second gets the next.
    fn free_name(&self) -> PathBuf {
        let mut time = jiff::Timestamp::now();
        loop {
            let (stem, extension) = self.parts();
            let text = time.strftime("%Y-%m-%dT%H-%M-%S%.3f");
            let path = self
                .path
                .with_file_name(format!("{stem}-{text}{extension}"));
            if !path.exists() {
                return path;
            }
            time += jiff::SignedDuration::from_millis(1);
        }
    }

    fn parts(&self) -> (String, String) {
        let text =
            |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let extension = text(self.path.extension()).map(|it| format!(".{it}"));
        (
            text(self.path.file_stem()).unwrap_or_default(),
            extension.unwrap_or_default(),
        )
    }

    fn remove_old(&self) -> io::Result<()> {
        let directory = match self.path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let (stem, extension) = self.parts();
        let prefix = format!("{stem}-2");
        let mut old: Vec<PathBuf> = std::fs::read_dir(directory)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().map(|it| it.to_string_lossy().into_owned());
                name.is_some_and(|name| name.starts_with(&prefix) && name.ends_with(&extension))
            })
            .collect();
        // The names sort by time.
        old.sort_unstable();
        let surplus = match self.rotation.backups {
            0 => 0,
            backups => old.len().saturating_sub(backups),
        };
        for (index, path) in old.iter().enumerate() {
            let aged = || {
                let written = std::fs::metadata(path).and_then(|it| it.modified());
                let age =
                    written.map(|it| SystemTime::now().duration_since(it).unwrap_or_default());
                !self.rotation.age.is_zero() && age.is_ok_and(|age| age > self.rotation.age)
            };
            if index < surplus || aged() {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}
