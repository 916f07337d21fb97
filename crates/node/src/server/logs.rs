//! `kubectl logs`.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use inotify::WatchMask;
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::sync::watch;

use super::{Body, Query, Refusal};
use crate::config::RuntimeKind;
use crate::pods::{ContainerState, Node, log_path};
use crate::shim::log::open_log;
use crate::shim::spec::Exit;
use crate::watching;

/// Options of a request, as in the API's PodLogOptions.
#[derive(Debug, Default, Clone)]
pub(super) struct Options {
    follow: bool,
    timestamps: bool,
    tail: Option<u64>,
    since: Option<Timestamp>,
    limit: Option<u64>,
    /// `stdout`, `stderr`, or both.
    stream: Option<String>,
}

impl Options {
    pub(super) fn parse(query: &Query, now: Timestamp) -> Result<Self, String> {
        let positive = |name: &str| -> Result<Option<u64>, String> {
            match query.number(name)? {
                Some(number) => u64::try_from(number)
                    .map(Some)
                    .map_err(|_| format!("{name} must not be negative")),
                None => Ok(None),
            }
        };
        let since = match (
            positive("sinceSeconds")?,
            query.get("sinceTime").filter(|text| !text.is_empty()),
        ) {
            (Some(seconds), _) => Some(
                now - jiff::SignedDuration::from_secs(
                    i64::try_from(seconds)
                        .unwrap_or(i64::MAX / 4)
                        .min(10_000_000_000),
                ),
            ),
            (None, Some(text)) => Some(
                text.parse()
                    .map_err(|_| format!("invalid sinceTime: {text:?}"))?,
            ),
            (None, None) => None,
        };
        Ok(Self {
            follow: query.flag("follow"),
            timestamps: query.flag("timestamps"),
            tail: positive("tailLines")?,
            since,
            limit: positive("limitBytes")?,
            stream: query
                .get("stream")
                .map(str::to_lowercase)
                .filter(|stream| stream == "stdout" || stream == "stderr"),
        })
    }
}

pub(super) async fn serve(
    node: &Node,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
) -> Result<Response<Body>, Refusal> {
    let options = Options::parse(query, Timestamp::now()).map_err(Refusal::bad_request)?;
    let (path, exit) = find(node, namespace, pod, container, query.flag("previous"))?;
    let chunks = read(path, options, exit).map(|chunk| chunk.map(Frame::data));
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(chunks)));
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}

type ExitWatch = Option<watch::Receiver<Option<Exit>>>;

/// The log of the current or previous run, and the event that ends the run.
fn find(
    node: &Node,
    namespace: &str,
    name: &str,
    container: &str,
    previous: bool,
) -> Result<(PathBuf, ExitWatch), Refusal> {
    let missing = || {
        Refusal::not_found(format!(
            "pod \"{name}\" not found in namespace \"{namespace}\""
        ))
    };
    let (pod, entry) = node.find(namespace, name).ok_or_else(missing)?;
    let spec = pod.spec.clone().unwrap_or_default();
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    let known = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .any(|c| c.name == container)
        || ephemeral.any(|c| c.name == container);
    if !known {
        return Err(Refusal::not_found(format!(
            "container \"{container}\" not found in pod \"{name}\""
        )));
    }
    if node.config.runtime == RuntimeKind::Simulated {
        return Err(Refusal::bad_request(format!(
            "container \"{container}\" in pod \"{name}\" is simulated: no program runs in it, and it has no logs"
        )));
    }
    let state: ContainerState = entry
        .containers
        .lock()
        .get(container)
        .cloned()
        .unwrap_or_default();
    if previous {
        let none = || {
            let text = format!(
                "previous terminated container \"{container}\" in pod \"{}\" not found",
                pod.name_any()
            );
            Refusal::bad_request(text)
        };
        // While it waits for a restart, the run that ended last is the current one.
        let attempt = if state.running().is_some() {
            state.restarts.checked_sub(1)
        } else {
            Some(state.restarts)
        };
        let path = log_path(
            &node.config.root_dir,
            &pod,
            container,
            attempt.filter(|_| state.last.is_some()).ok_or_else(none)?,
        );
        return if path.exists() {
            Ok((path, None))
        } else {
            Err(none())
        };
    }
    if !state.started_once() {
        let reason = state
            .waiting_reason()
            .unwrap_or("ContainerCreating")
            .to_owned();
        let text =
            format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}");
        return Err(Refusal::bad_request(text));
    }
    let path = log_path(&node.config.root_dir, &pod, container, state.restarts);
    Ok((path, state.running().map(|running| running.exit.clone())))
}

/// The text of a log; with `follow` until the run ends.
pub(super) fn read(
    path: PathBuf,
    options: Options,
    exit: ExitWatch,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + Sync {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    tokio::spawn(async move {
        if let Err(error) = copy(&path, &options, exit, &sender).await {
            // The reader sees a broken body and not a log that seems complete.
            let _ = sender.send(Err(error)).await;
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}

type Sender = tokio::sync::mpsc::Sender<std::io::Result<Bytes>>;

async fn copy(
    path: &Path,
    options: &Options,
    mut exit: ExitWatch,
    sender: &Sender,
) -> std::io::Result<()> {
    let mut file = open_log(path)?;
    if let Some(lines) = options.tail {
        let at = tail(&mut file, lines)?;
        file.seek(SeekFrom::Start(at))?;
    }
    let mut changes = options.follow.then(|| changes(path)).flatten();
    let mut filter = Filter {
        options,
        rest: Vec::new(),
        left: options.limit,
        line_start: true,
    };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // Checked before reading: output from before the end is read after it.
        let over = exit.as_ref().is_none_or(|exit| exit.borrow().is_some());
        // So is this: what is written until the next log begins is in this one.
        let next = match options.follow {
            true => successor(path, &file)?,
            false => Next::Same,
        };
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            let out = filter.push(&buffer[..n]);
            if !out.is_empty() && sender.send(Ok(out.into())).await.is_err() {
                return Ok(());
            }
            if filter.left == Some(0) {
                return Ok(());
            }
        }
        if !options.follow {
            return Ok(());
        }
        if let Next::Other(next) = next {
            file = next;
            changes = self::changes(path);
            continue;
        }
        if over {
            return Ok(());
        }
        let ended = async {
            match &mut exit {
                Some(exit) => drop(exit.wait_for(Option::is_some).await.map(drop)),
                None => std::future::pending().await,
            }
        };
        let changed = async {
            match &mut changes {
                // The next log may begin without a change of this one.
                Some(changes) if !matches!(next, Next::None) => drop(changes.next().await),
                _ => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        };
        tokio::select! {
            () = ended => {}
            () = changed => {}
            () = sender.closed() => return Ok(()),
        }
    }
}

/// What is where a log is followed.
enum Next {
    /// The same file.
    Same,
    /// Nothing: the log was put aside, and the next one has not begun.
    None,
    /// The next log, which continues where the other ends.
    Other(std::fs::File),
}

fn successor(path: &Path, file: &std::fs::File) -> std::io::Result<Next> {
    use std::os::unix::fs::MetadataExt;
    let next = match open_log(path) {
        Ok(next) => next,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Next::None),
        Err(error) => return Err(error),
    };
    let same = next.metadata()?.ino() == file.metadata()?.ino();
    Ok(if same { Next::Same } else { Next::Other(next) })
}

/// Ticks when the file grows or is rotated; `None` if the kernel grants no more watches.
fn changes(path: &Path) -> Option<impl Stream<Item = ()> + Unpin + use<>> {
    watching::changes(path, WatchMask::MODIFY | WatchMask::MOVE_SELF).ok()
}

/// Offset of the last `lines` lines.
fn tail(file: &mut std::fs::File, lines: u64) -> std::io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let end = file.seek(SeekFrom::End(0))?;
    // The newline of the last line starts no new line.
    let mut wanted = lines + 1;
    let mut at = end;
    let mut buffer = vec![0; STEP as usize];
    while at > 0 {
        let from = at.saturating_sub(STEP);
        let chunk = &mut buffer[..(at - from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(chunk)?;
        for (i, byte) in chunk.iter().enumerate().rev() {
            if *byte == b'\n' {
                wanted -= 1;
                if wanted == 0 {
                    return Ok(from + i as u64 + 1);
                }
            }
        }
        at = from;
    }
    Ok(0)
}

/// Converts lines of the log file to the output for the user.
struct Filter<'a> {
    options: &'a Options,
    rest: Vec<u8>,
    left: Option<u64>,
    line_start: bool,
}

impl Filter<'_> {
    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let tail = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, tail);
        let mut out = Vec::with_capacity(lines.len());
        for line in lines[..end].split(|byte| *byte == b'\n') {
            self.line(line, &mut out);
        }
        if let Some(left) = &mut self.left {
            out.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= out.len() as u64;
        }
        out
    }

    /// `time stream F|P text`; other lines are skipped.
    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (Some(time), Some(stream), Some(tag)) = (parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        let text = parts.next().unwrap_or_default();
        if self
            .options
            .stream
            .as_ref()
            .is_some_and(|wanted| wanted.as_bytes() != stream)
        {
            return;
        }
        if let Some(since) = self.options.since {
            let time: Option<Timestamp> = std::str::from_utf8(time)
                .ok()
                .and_then(|time| time.parse().ok());
            if time.is_none_or(|time| time < since) {
                return;
            }
        }
        if self.options.timestamps && self.line_start {
            out.extend_from_slice(time);
            out.push(b' ');
        }
        out.extend_from_slice(text);
        self.line_start = tag == b"F";
        if self.line_start {
            out.push(b'\n');
        }
    }
}
