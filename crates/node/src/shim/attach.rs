//! Clients that are attached to a container: they are shown its output, and may type.
//!
//! Both directions use frames: a byte for the channel (as in the WebSocket protocols of the kubelet), the length as
//! four bytes, big-endian, and the data. A client that does not read is disconnected, so that it cannot block the
//! container.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::termios::Winsize;
use serde::Deserialize;

use super::spec::{ATTACH, MAX_FRAME};

const STDIN: u8 = 0;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// How long a client may hold up the container's output.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
struct Size {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

struct Client {
    stream: UnixStream,
    /// The beginning of a frame.
    received: Vec<u8>,
    /// It sent input: its end may be that of the input.
    typist: bool,
}

/// The writing end of the program's input.
struct Input {
    fd: OwnedFd,
    /// The program's terminal, whose size can change.
    terminal: bool,
    /// The first client's end is the end of the input.
    once: bool,
    /// It is closed as soon as its queue is empty.
    ending: bool,
    /// Typed, and not taken by the program yet.
    waiting: Vec<u8>,
}

/// All attached clients.
pub(super) struct Attached {
    listener: Option<UnixListener>,
    clients: Vec<Client>,
    input: Option<Input>,
}

impl Attached {
    /// Listens in the container's directory. Without a socket no client can attach; the container runs nevertheless.
    pub(super) fn new(directory: &Path) -> Self {
        let listener = listen(directory)
            .inspect_err(|error| eprintln!("attach: {error}"))
            .ok();
        Self {
            listener,
            clients: Vec::new(),
            input: None,
        }
    }

    /// Lets clients send input to the program.
    pub(super) fn with_input(mut self, fd: OwnedFd, terminal: bool, once: bool) -> Self {
        if let Err(error) = rustix::io::ioctl_fionbio(&fd, true) {
            eprintln!("attach: {error}");
            return self;
        }
        self.input = Some(Input {
            fd,
            terminal,
            once,
            ending: false,
            waiting: Vec::new(),
        });
        self
    }

    /// The descriptors to poll; [`Attached::work`] takes the results in the same order.
    pub(super) fn watch<'a>(&'a self, into: &mut Vec<PollFd<'a>>) {
        if let Some(listener) = &self.listener {
            into.push(PollFd::new(listener, PollFlags::IN));
        }
        let typed = self.waiting();
        for client in &self.clients {
            // Not listened to while the program does not read.
            let events = if typed {
                PollFlags::empty()
            } else {
                PollFlags::IN
            };
            into.push(PollFd::new(&client.stream, events));
        }
        if let Some(input) = self.input.as_ref().filter(|_| typed) {
            into.push(PollFd::new(&input.fd, PollFlags::OUT));
        }
    }

    fn waiting(&self) -> bool {
        self.input
            .as_ref()
            .is_some_and(|input| !input.waiting.is_empty())
    }

    /// Does what has become possible.
    pub(super) fn work(&mut self, events: &[PollFlags]) {
        let mut events = events.iter();
        let mut next = || events.next().is_some_and(|event| !event.is_empty());
        let arrived = self.listener.is_some() && next();
        let ready: Vec<bool> = self.clients.iter().map(|_| next()).collect();
        let mut ready = ready.into_iter();
        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|client| {
            let listen = ready.next().unwrap_or(false);
            let stays = !listen || self.listen_to(client);
            if !stays && client.typist {
                self.end_of_input();
            }
            stays
        });
        self.clients = clients;
        self.pass_on();
        if arrived
            && let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept)
            && stream.set_write_timeout(Some(PATIENCE)).is_ok()
        {
            self.clients.push(Client {
                stream,
                received: Vec::new(),
                typist: false,
            });
        }
    }

    /// Sends output to all clients.
    pub(super) fn show(&mut self, channel: u8, data: &[u8]) {
        if self.clients.is_empty() {
            return;
        }
        let mut frame = vec![channel];
        frame.extend_from_slice(&(data.len() as u32).to_be_bytes());
        frame.extend_from_slice(data);
        let mut typist_left = false;
        self.clients.retain_mut(|client| {
            let stays = client.stream.write_all(&frame).is_ok();
            typist_left |= !stays && client.typist;
            stays
        });
        if typist_left {
            self.end_of_input();
            self.pass_on();
        }
    }

    /// Reads once; false if the client disconnected or violates the protocol.
    fn listen_to(&mut self, client: &mut Client) -> bool {
        let mut buffer = [0; 16 * 1024];
        match client.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(n) => client.received.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(_) => return false,
        }
        while let Some((head, rest)) = client.received.split_first_chunk::<5>() {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            if length > MAX_FRAME {
                return false;
            }
            let Some(data) = rest.get(..length as usize) else {
                return true;
            };
            client.typist |= head[0] == STDIN;
            if let Some(input) = &mut self.input {
                match head[0] {
                    STDIN => input.waiting.extend_from_slice(data),
                    RESIZE => input.resize(data),
                    CLOSE => input.ending |= input.once,
                    _ => {}
                }
            }
            client.received.drain(..5 + length as usize);
        }
        true
    }

    /// Closes the program's input after the queued data, if the container has `stdinOnce`.
    fn end_of_input(&mut self) {
        if let Some(input) = self.input.as_mut().filter(|input| input.once) {
            input.ending = true;
        }
    }

    /// Writes what the program takes without waiting.
    fn pass_on(&mut self) {
        let Some(input) = &mut self.input else { return };
        while !input.waiting.is_empty() {
            match rustix::io::write(&input.fd, &input.waiting) {
                Ok(n) => drop(input.waiting.drain(..n)),
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                // The program does not read any longer.
                Err(_) => input.waiting.clear(),
            }
        }
        if input.ending {
            self.input = None;
        }
    }
}

impl Input {
    fn resize(&self, data: &[u8]) {
        let Ok(size) = serde_json::from_slice::<Size>(data) else {
            return;
        };
        if self.terminal {
            let size = Winsize {
                ws_row: size.height,
                ws_col: size.width,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            // A closed terminal has no size.
            let _ = rustix::termios::tcsetwinsize(&self.fd, size);
        }
    }
}

/// A socket by its directory: paths of containers are longer than the path of a socket may be.
fn listen(directory: &Path) -> std::io::Result<UnixListener> {
    let directory = std::fs::File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{ATTACH}", directory.as_raw_fd());
    UnixListener::bind(path)
}
