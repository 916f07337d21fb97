//! `allot logs`: the log of a cluster that runs in the background.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _, stdout};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use inotify::{Inotify, WatchMask};

use crate::clusters::record::Record;
use crate::clusters::{self, ClusterSelection, registry};
use crate::logging::file::files;

/// Flags of `allot logs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: ClusterSelection,
    /// Continue with new lines
    #[arg(long, short)]
    follow: bool,
    /// Only what this component logs
    #[arg(long, value_enum, value_name = "COMPONENT")]
    component: Option<Component>,
}

/// A part of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Component {
    /// API server and store
    Apiserver,
    /// Scheduler and allocator
    Scheduler,
    /// Controllers
    Controllers,
    /// Node agents
    Node,
    /// Drivers
    Driver,
}

impl Component {
    /// The crates that log for it.
    fn crates(self) -> &'static [&'static str] {
        match self {
            Self::Apiserver => &["allot_apiserver", "allot_store", "allot_cel"],
            Self::Scheduler => &["allot_scheduler", "allot_allocator"],
            Self::Controllers => &["allot_controllers"],
            Self::Node => &["allot_node", "allot_images", "allot_cdi"],
            Self::Driver => &[
                "allot_driver",
                "allot_driver_gpu",
                "allot_driver_net",
                "allot_driver_test",
            ],
        }
    }

    /// Whether a line with this target is of the component.
    fn logs(self, target: &str) -> bool {
        let name = target.split("::").next().unwrap_or_default();
        self.crates().contains(&name)
    }
}

/// Prints the log.
pub fn run(args: Args) -> anyhow::Result<()> {
    let directory = args.which.directory()?;
    let record = Record::known(&directory, &registry::all());
    let log = match &record {
        Some(record) if record.alive().is_some() && record.log.is_none() => bail!(
            "process {} runs in the foreground and logs there; `allot up --detach` and --log-file log into a file",
            record.process.pid
        ),
        Some(Record { log: Some(log), .. }) => log.clone(),
        _ => directory.join("logs/allot.log"),
    };
    let old = files(&log);
    // Files of another user are as invisible as missing ones.
    if let Err(error) = log.try_exists() {
        bail!("{}: {error}", log.display());
    }
    if old.is_empty() && !args.follow {
        let flags = clusters::flags(args.which.name.as_deref(), &directory);
        bail!(
            "{} does not exist: `allot up{flags} --detach` writes it",
            log.display()
        );
    }
    let mut filter = Filter {
        component: args.component,
        shown: args.component.is_none(),
    };
    if !args.follow {
        for file in old {
            filter.copy(&mut Tail::of(File::open(file)?))?;
        }
        return Ok(());
    }
    super::component::block_on(async move |shutdown| {
        tokio::select! {
            followed = follow(log, old, filter) => followed,
            () = shutdown.cancelled() => Ok(()),
        }
    })
}

/// Prints existing and then new lines, across rotation.
async fn follow(log: PathBuf, old: Vec<PathBuf>, mut filter: Filter) -> anyhow::Result<()> {
    let directory = log.parent().unwrap_or(Path::new("/")).to_owned();
    if !directory.is_dir() {
        bail!("{} does not exist", directory.display());
    }
    let inotify = Inotify::init()?;
    let mask = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::DELETE_SELF;
    inotify.watches().add(&directory, mask)?;
    let mut events = inotify.into_event_stream([0; 4096])?;
    for file in old.iter().filter(|file| **file != log) {
        filter.copy(&mut Tail::of(File::open(file)?))?;
    }
    let mut current = opened(&log)?;
    loop {
        if let Some(tail) = &mut current {
            filter.copy(tail)?;
        }
        // A new file has taken the place of the one that was full, which is read to its end by now.
        let place = std::fs::metadata(&log).ok().map(|it| (it.dev(), it.ino()));
        if place.is_some() && place != current.as_ref().and_then(Tail::identity) {
            if let Some(tail) = &mut current {
                filter.copy(tail)?;
            }
            current = opened(&log)?;
            continue;
        }
        match events.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.into()),
            None => return Ok(()),
        }
        if !directory.is_dir() {
            return Ok(());
        }
    }
}

/// The current log; `None` if it does not exist yet.
fn opened(log: &Path) -> anyhow::Result<Option<Tail>> {
    match File::open(log) {
        Ok(file) => Ok(Some(Tail::of(file))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", log.display())),
    }
}

/// A file that is read while it is written.
struct Tail {
    reader: BufReader<File>,
    /// The beginning of a line whose end was not written yet.
    started: Vec<u8>,
}

impl Tail {
    fn of(file: File) -> Self {
        Self {
            reader: BufReader::new(file),
            started: Vec::new(),
        }
    }

    fn identity(&self) -> Option<(u64, u64)> {
        let file = self.reader.get_ref().metadata().ok()?;
        Some((file.dev(), file.ino()))
    }
}

/// Longest incomplete line that is buffered.
const LONGEST: u64 = 1 << 20;

/// Which lines are printed.
struct Filter {
    component: Option<Component>,
    /// The last line with a target was printed: lines without one belong to it.
    shown: bool,
}

impl Filter {
    /// Prints new lines of a file.
    fn copy(&mut self, tail: &mut Tail) -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(stdout().lock());
        // Reset the end-of-file state of the reader.
        tail.reader.stream_position()?;
        loop {
            let left = LONGEST.saturating_sub(tail.started.len() as u64);
            let read = (&mut tail.reader)
                .take(left)
                .read_until(b'\n', &mut tail.started)?;
            let whole =
                tail.started.ends_with(b"\n") || (read > 0 && tail.started.len() as u64 >= LONGEST);
            if !whole {
                return out.flush();
            }
            if self.shows(&String::from_utf8_lossy(&tail.started)) {
                out.write_all(&tail.started)?;
            }
            tail.started.clear();
        }
    }

    fn shows(&mut self, line: &str) -> bool {
        let Some(component) = self.component else {
            return true;
        };
        if let Some(target) = target(line) {
            self.shown = component.logs(target);
        }
        self.shown
    }
}

/// What part of the program logged a line: `TIME LEVEL TARGET: …`, or a field in JSON.
fn target(line: &str) -> Option<&str> {
    if let Some(json) = line.strip_prefix('{') {
        let (_, rest) = json.split_once("\"target\":\"")?;
        return rest.split('"').next();
    }
    let mut words = line.split_whitespace();
    let (time, level) = (words.next()?, words.next()?);
    let known = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level);
    if !known || !time.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    // Spans precede the target, and end with a colon each.
    let targets = words.filter_map(|word| word.strip_suffix(':'));
    targets.into_iter().find(|word| word.starts_with("allot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_to_components() {
        let mut filter = Filter {
            component: Some(Component::Scheduler),
            shown: false,
        };
        for (line, shown) in [
            (
                "2026-01-01T00:00:00Z  WARN allot_scheduler::run: slow\n",
                true,
            ),
            ("  its second line\n", true),
            ("2026-01-01T00:00:00Z  INFO allot_node: here\n", false),
            ("  its second line\n", false),
            (
                "{\"level\":\"WARN\",\"target\":\"allot_allocator\",\"fields\":{}}\n",
                true,
            ),
            (
                "{\"level\":\"WARN\",\"target\":\"allot_store::disk\"}\n",
                false,
            ),
            (
                "2026-01-01T00:00:00Z ERROR allot_schedulers: another\n",
                false,
            ),
            (
                "2026-01-01T00:00:00Z ERROR span{a=1}: allot_scheduler: in a span\n",
                true,
            ),
        ] {
            assert_eq!(filter.shows(line), shown, "{line}");
        }
    }

    #[test]
    fn half_a_line_waits_for_its_other_half() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut tail = Tail::of(File::open(file.path()).expect("opened"));
        let mut filter = Filter {
            component: None,
            shown: true,
        };
        std::fs::write(file.path(), "whole\nha").expect("written");
        filter.copy(&mut tail).expect("read");
        assert_eq!(tail.started, b"ha");
        let mut more = std::fs::OpenOptions::new()
            .append(true)
            .open(file.path())
            .expect("opened");
        more.write_all(b"lf\n").expect("written");
        filter.copy(&mut tail).expect("read");
        assert_eq!(tail.started, b"");
    }
}
