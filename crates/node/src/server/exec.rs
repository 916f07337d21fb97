//! `kubectl exec` and `kubectl attach`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::StreamExt;
use http::{Request, Response};
use hyper::body::Incoming;
use rustix::termios::Winsize;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;

use super::streams::{self, Client, Wanted, channel};
use super::{Body, Query, Refusal, logs};
use crate::pods::{Node, log_path};
use crate::runtime::Exec;

/// Output that waits for the client; the program waits too when it is full.
const BACKLOG: usize = 16;

pub(super) fn exec(
    node: &Arc<Node>,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let args = query.all("command");
    if args.is_empty() {
        return Err(Refusal::bad_request(
            "you must specify at least one command",
        ));
    }
    let id = running(node, namespace, pod, container)?;
    let wanted = Wanted::parse(query)?;
    let node = Arc::clone(node);
    streams::upgrade(request, wanted, move |mut client| async move {
        let result = match node.runtime.exec(&id, args, wanted.stdin, wanted.tty) {
            Ok(exec) => run(&mut client, exec).await,
            Err(error) => Some(failure("InternalError", &error.to_string(), Value::Null)),
        };
        if let Some(result) = result {
            client.finish(&result).await;
        }
    })
}

/// Shows the output from now on. Input is not passed on: containers of this node read from `/dev/null`.
pub(super) fn attach(
    node: &Arc<Node>,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    running(node, namespace, pod, container)?;
    let missing = || {
        Refusal::not_found(format!(
            "pod \"{pod}\" not found in namespace \"{namespace}\""
        ))
    };
    let (object, entry) = node.find(namespace, pod).ok_or_else(missing)?;
    let state = entry
        .containers
        .lock()
        .get(container)
        .cloned()
        .unwrap_or_default();
    let path = log_path(&node.config.root_dir, &object, container, state.restarts);
    let exit = state.running().map(|running| running.exit.clone());
    let wanted = Wanted::parse(query)?;
    let outputs = [
        (channel::STDOUT, wanted.stdout, "stdout"),
        (channel::STDERR, wanted.stderr, "stderr"),
    ];
    let outputs = outputs.into_iter().filter(|(_, wanted, _)| *wanted);
    streams::upgrade(request, wanted, move |mut client| async move {
        let streams = outputs.map(|(channel, _, stream)| {
            let query = Query::parse(&format!("follow=1&tailLines=0&stream={stream}"));
            let options = logs::Options::parse(&query, jiff::Timestamp::now()).unwrap_or_default();
            let chunks = logs::read(path.clone(), options, exit.clone());
            Box::pin(
                chunks
                    .filter_map(|chunk| std::future::ready(chunk.ok()))
                    .map(move |chunk| (channel, chunk)),
            )
        });
        let mut streams = futures::stream::select_all(streams);
        loop {
            tokio::select! {
                chunk = streams.next() => match chunk {
                    Some((channel, chunk)) => if client.send(channel, &chunk).await.is_err() { return },
                    None => break,
                },
                message = client.receive() => if message.is_none() { return },
            }
        }
        client.finish(&success()).await;
    })
}

/// The id of a running container.
fn running(node: &Node, namespace: &str, pod: &str, container: &str) -> Result<String, Refusal> {
    let missing = || {
        Refusal::not_found(format!(
            "pod \"{pod}\" not found in namespace \"{namespace}\""
        ))
    };
    let (_, entry) = node.find(namespace, pod).ok_or_else(missing)?;
    let containers = entry.containers.lock();
    let running = containers.get(container).and_then(|state| state.running());
    let none = || Refusal::not_found(format!("container not found (\"{container}\")"));
    running.map(|running| running.id.clone()).ok_or_else(none)
}

#[derive(Deserialize)]
struct Size {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

/// Moves data between the client and the program until the program ends; returns the final status, or nothing if the
/// client is gone.
async fn run(client: &mut Client, exec: Exec) -> Option<Value> {
    let Exec {
        mut child,
        terminal,
    } = exec;
    let (sender, mut output) = mpsc::channel::<(u8, Vec<u8>)>(BACKLOG);
    // Input has a task of its own: a program that waits for its output to be read may not read at all.
    let (typed, input) = mpsc::channel::<Vec<u8>>(BACKLOG);
    let mut copies = tokio::task::JoinSet::new();
    let mut screen = None;
    match terminal {
        Some(fd) => match Terminal::new(fd) {
            Ok(terminal) => {
                let terminal = Arc::new(terminal);
                screen = Some(Arc::clone(&terminal));
                let keyboard = Arc::clone(&terminal);
                copies.spawn(async move { terminal.copy(sender).await });
                copies.spawn(async move { keyboard.type_in(input).await });
            }
            Err(error) => return Some(failure("InternalError", &error.to_string(), Value::Null)),
        },
        None => {
            if let Some(out) = child.stdout.take() {
                copies.spawn(copy(out, channel::STDOUT, sender.clone()));
            }
            if let Some(err) = child.stderr.take() {
                copies.spawn(copy(err, channel::STDERR, sender));
            }
            if let Some(stdin) = child.stdin.take() {
                copies.spawn(feed(stdin, input));
            }
        }
    }
    let mut typed = Some(typed);
    let mut waiting: Option<Vec<u8>> = None;
    let mut done = None;
    loop {
        let keyboard = typed.clone();
        let room = async {
            match keyboard {
                Some(keyboard) => keyboard.reserve_owned().await.ok(),
                None => None,
            }
        };
        tokio::select! {
            // All output comes before the status.
            chunk = output.recv() => match chunk {
                Some((channel, data)) => if client.send(channel, &data).await.is_err() { return None },
                None => break,
            },
            status = child.wait(), if done.is_none() => {
                done = Some(status);
                // A terminal stays open on our side; its output has been read when nothing comes any more.
                if screen.is_some() {
                    while let Ok(Some((channel, data))) =
                        tokio::time::timeout(std::time::Duration::from_millis(50), output.recv()).await
                    {
                        if client.send(channel, &data).await.is_err() { return None }
                    }
                    break;
                }
            }
            permit = room, if waiting.is_some() => {
                // Without a permit the program does not read any more, which does not end the session.
                if let (Some(permit), Some(data)) = (permit, waiting.take()) {
                    permit.send(data);
                }
            }
            message = client.receive(), if waiting.is_none() => {
                let (channel, data) = message?;
                match channel {
                    channel::STDIN => waiting = Some(data),
                    channel::CLOSE if data.first() == Some(&channel::STDIN) => typed = None,
                    channel::RESIZE => {
                        if let (Some(terminal), Ok(size)) = (&screen, serde_json::from_slice::<Size>(&data)) {
                            terminal.resize(&size);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    let status = match done {
        Some(status) => status,
        None => child.wait().await,
    };
    Some(match status {
        Ok(status) if status.success() => success(),
        Ok(status) => {
            let code = status.code().unwrap_or(137);
            let causes = json!({"causes": [{"reason": "ExitCode", "message": code.to_string()}]});
            let text = format!(
                "command terminated with non-zero exit code: error executing command, exit code {code}"
            );
            failure("NonZeroExitCode", &text, causes)
        }
        Err(error) => failure("InternalError", &error.to_string(), Value::Null),
    })
}

fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

fn failure(reason: &str, message: &str, details: Value) -> Value {
    let mut status =
        json!({"metadata": {}, "status": "Failure", "message": message, "reason": reason});
    if !details.is_null() {
        status["details"] = details;
    }
    status
}

/// Writes what was typed until that ends or nobody reads it.
async fn feed(mut stdin: ChildStdin, mut input: mpsc::Receiver<Vec<u8>>) {
    while let Some(data) = input.recv().await {
        if stdin.write_all(&data).await.is_err() {
            return;
        }
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, channel: u8, sender: mpsc::Sender<(u8, Vec<u8>)>) {
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(n) = from.read(&mut buffer).await {
        if n == 0 || sender.send((channel, buffer[..n].to_vec())).await.is_err() {
            return;
        }
    }
}

/// Our side of a pseudo-terminal.
struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    fn new(fd: OwnedFd) -> std::io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // SAFETY: an OwnedFd always yields the same descriptor and keeps it open until it is dropped.
        Ok(Self(
            unsafe { AsyncFd::register(fd) }.map_err(std::io::Error::other)?,
        ))
    }

    async fn copy(&self, sender: mpsc::Sender<(u8, Vec<u8>)>) {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let Ok(mut ready) = self.0.readable().await else {
                return;
            };
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut buffer[..])?)) {
                // EIO: the last program with the terminal has ended.
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(n)) => {
                    if sender
                        .send((channel::STDOUT, buffer[..n].to_vec()))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
                Err(_) => {}
            }
        }
    }

    async fn type_in(&self, mut input: mpsc::Receiver<Vec<u8>>) {
        while let Some(data) = input.recv().await {
            if self.write(&data).await.is_err() {
                return;
            }
        }
    }

    async fn write(&self, mut data: &[u8]) -> std::io::Result<()> {
        while !data.is_empty() {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), data)?)) {
                Ok(written) => data = &data[written?..],
                Err(_) => continue,
            }
        }
        Ok(())
    }

    fn resize(&self, size: &Size) {
        let size = Winsize {
            ws_row: size.height,
            ws_col: size.width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // A terminal that is gone has no size.
        let _ = rustix::termios::tcsetwinsize(self.0.get_ref(), size);
    }
}
