//! `kubectl exec`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use rustix::termios::Winsize;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::attach::{self, Outcome};
use super::streams::{self, Client, Message, RequestedStreams, channel};
use super::{Body, Query, Refusal};
use crate::pods::Node;
use crate::runtime::{Exec, Running};

/// Output that waits for the client; the program waits too when it is full.
pub(super) const BACKLOG: usize = 16;
/// How long a terminal must be silent after its program has ended.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(50);

/// How a program ended.
type End = Option<Result<std::process::ExitStatus, String>>;

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
    let id = running(node, namespace, pod, container)?.id;
    let wanted = RequestedStreams::parse(query)?;
    let node = Arc::clone(node);
    streams::upgrade(request, wanted, move |mut client| async move {
        let exec = node.runtime.exec(&id, args, wanted.stdin, wanted.tty);
        let result = match exec.await {
            Ok(Exec::Child { child, terminal }) => run(&mut client, child, terminal).await,
            Ok(Exec::Stream(stream)) => match attach::follow(&mut client, stream, wanted).await {
                Outcome::Gone => None,
                Outcome::Told(result) => Some(result),
                Outcome::Broken => Some(attach::broken()),
            },
            Err(error) => Some(failure("InternalError", &error.to_string(), Value::Null)),
        };
        if let Some(result) = result {
            client.finish(&result).await;
        }
    })
}

/// A running container.
pub(super) fn running(
    node: &Node,
    namespace: &str,
    pod: &str,
    container: &str,
) -> Result<Running, Refusal> {
    let missing = || {
        Refusal::not_found(format!(
            "pod \"{pod}\" not found in namespace \"{namespace}\""
        ))
    };
    let (_, entry) = node.find(namespace, pod).ok_or_else(missing)?;
    let containers = entry.containers.lock();
    let running = containers.get(container).and_then(|state| state.running());
    let none = || Refusal::not_found(format!("container not found (\"{container}\")"));
    running.cloned().ok_or_else(none)
}

#[derive(Deserialize)]
struct Size {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

/// Moves data between the client and the program until the program ends; returns the final status, or `None` if the
/// client disconnected.
async fn run(client: &mut Client, mut child: Child, terminal: Option<OwnedFd>) -> Option<Value> {
    let (sender, output) = mpsc::channel::<Message>(BACKLOG);
    let (typed, input) = mpsc::channel::<Message>(BACKLOG);
    // Dropped with the session: the shim and with it the program end when the client disconnects.
    let mut copies = JoinSet::new();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (ended, mut end) = watch::channel(None);
    copies.spawn(async move {
        let status = child.wait().await;
        ended.send_replace(Some(status.map_err(|error| error.to_string())));
    });
    match terminal {
        Some(fd) => match Terminal::new(fd) {
            Ok(terminal) => {
                let terminal = Arc::new(terminal);
                let keyboard = Arc::clone(&terminal);
                let end = end.clone();
                copies.spawn(async move { terminal.copy(sender, end).await });
                copies.spawn(async move { keyboard.type_in(input).await });
            }
            Err(error) => return Some(failure("InternalError", &error.to_string(), Value::Null)),
        },
        None => {
            if let Some(out) = stdout {
                copies.spawn(copy(out, channel::STDOUT, sender.clone()));
            }
            if let Some(err) = stderr {
                copies.spawn(copy(err, channel::STDERR, sender));
            }
            copies.spawn(feed(stdin, input));
        }
    }
    if !client.converse(output, typed).await {
        return None;
    }
    let status = match end.wait_for(Option::is_some).await {
        Ok(status) => status.clone()?,
        Err(_) => return None,
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
        Err(error) => failure("InternalError", &error, Value::Null),
    })
}

pub(super) fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

pub(super) fn failure(reason: &str, message: &str, details: Value) -> Value {
    let mut status =
        json!({"metadata": {}, "status": "Failure", "message": message, "reason": reason});
    if !details.is_null() {
        status["details"] = details;
    }
    status
}

/// Writes the input until it ends or the reader closes.
async fn feed(mut stdin: Option<ChildStdin>, mut input: mpsc::Receiver<Message>) {
    while let Some((channel, data)) = input.recv().await {
        match (channel, &mut stdin) {
            (channel::STDIN, Some(pipe)) => {
                let written = pipe.write_all(&data).await;
                // A program that does not read any longer does not end the session.
                stdin = stdin.filter(|_| written.is_ok());
            }
            (channel::CLOSE, _) => stdin = None,
            _ => {}
        }
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, channel: u8, sender: mpsc::Sender<Message>) {
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

    async fn copy(&self, sender: mpsc::Sender<Message>, mut end: watch::Receiver<End>) {
        let mut buffer = vec![0; 16 * 1024];
        let mut over = false;
        loop {
            // A background process may keep the terminal open: when the program has ended, its output is complete as
            // soon as no more data is ready.
            let ready = tokio::select! {
                ready = self.0.readable() => ready,
                _ = end.wait_for(Option::is_some), if !over => {
                    over = true;
                    continue;
                }
                () = tokio::time::sleep(LAST_WORDS), if over => return,
            };
            let Ok(mut ready) = ready else { return };
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut buffer[..])?)) {
                // EIO: the last program with the terminal has ended.
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(n)) => {
                    let data = buffer[..n].to_vec();
                    if sender.send((channel::STDOUT, data)).await.is_err() {
                        return;
                    }
                }
                Err(_) => {}
            }
        }
    }

    async fn type_in(&self, mut input: mpsc::Receiver<Message>) {
        while let Some((channel, data)) = input.recv().await {
            match channel {
                channel::STDIN if self.write(&data).await.is_err() => return,
                channel::RESIZE => {
                    if let Ok(size) = serde_json::from_slice::<Size>(&data) {
                        self.resize(&size);
                    }
                }
                _ => {}
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
        // A closed terminal has no size.
        let _ = rustix::termios::tcsetwinsize(self.0.get_ref(), size);
    }
}
