//! Clients that are attached to a container: they are shown its output, and may type.
//!
//! Both directions use frames: a byte for the channel (as in the WebSocket protocols of the kubelet), the length as
//! four bytes, big-endian, and the data. Clients are few and are not waited for long: a client that does not read, or that reads
//! slowly, is disconnected, so that it cannot block the container.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::Winsize;
use serde::Deserialize;

use super::spec::{ATTACH, MAX_FRAME};

const STDIN: u8 = 0;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// How long all clients together may delay the container's output at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Which part of the time they may delay it in the long run.
const PART: u32 = 10;
/// Clients at the same time; further ones are disconnected. Each takes a descriptor, and the log needs some as well.
const MOST: usize = 64;

#[derive(Deserialize)]
struct Size {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

struct Client {
    /// Neither reads nor writes wait.
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
    /// The last client could not be accepted: the next one has to wait.
    resting: bool,
    clients: Vec<Client>,
    input: Option<Input>,
    patience: Patience,
}

/// How long clients may still delay the output.
struct Patience {
    left: Duration,
    /// When it was computed.
    at: Instant,
}

impl Patience {
    fn new() -> Self {
        Self {
            left: PATIENCE,
            at: Instant::now(),
        }
    }

    /// Waits until a stream takes data; false if it does not in time.
    fn wait_for(&mut self, stream: &UnixStream) -> bool {
        let begun = Instant::now();
        let gained = begun.duration_since(self.at) / PART;
        self.left = self.left.saturating_add(gained).min(PATIENCE);
        let deadline = begun + self.left;
        let ready = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut watched = [PollFd::new(stream, PollFlags::OUT)];
            match poll(&mut watched, Some(&timeout)) {
                // A signal, such as that a process of the container has ended, says nothing about the client.
                Err(Errno::INTR) => {}
                ready => break ready.is_ok_and(|ready| ready > 0),
            }
        };
        self.at = Instant::now();
        self.left = self.left.saturating_sub(self.at.duration_since(begun));
        ready && !self.left.is_zero()
    }
}

impl Attached {
    /// Listens in the container's directory. Without a socket no client can attach; the container runs nevertheless.
    pub(super) fn new(directory: &Path) -> Self {
        let listener = listen(directory)
            .inspect_err(|error| eprintln!("attach: {error}"))
            .ok();
        Self {
            listener,
            resting: false,
            clients: Vec::new(),
            input: None,
            patience: Patience::new(),
        }
    }

    /// Accepts clients again, if one could not be accepted. Not between [`Attached::watch`] and [`Attached::work`].
    pub(super) fn rested(&mut self) {
        self.resting = false;
    }

    /// The socket, unless it is of no use now: it stays ready as long as a client waits.
    fn listening(&self) -> Option<&UnixListener> {
        self.listener.as_ref().filter(|_| !self.resting)
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
        if let Some(listener) = self.listening() {
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
        let arrived = self.listening().is_some() && next();
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
        if arrived {
            self.accept();
        }
    }

    fn accept(&mut self) {
        let Some(accepted) = self.listener.as_ref().map(UnixListener::accept) else {
            return;
        };
        match accepted {
            Ok((stream, _)) => {
                if self.clients.len() < MOST && stream.set_nonblocking(true).is_ok() {
                    self.clients.push(Client {
                        stream,
                        received: Vec::new(),
                        typist: false,
                    });
                }
            }
            // Such as of a process that has no descriptor left.
            Err(error) => {
                eprintln!("attach: {error}");
                self.resting = true;
            }
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
        let patience = &mut self.patience;
        self.clients.retain_mut(|client| {
            let stays = client.take(&frame, patience);
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
            Err(error) => {
                return matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock);
            }
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

impl Client {
    /// Sends a frame; false if the client is gone or does not take it in time.
    fn take(&mut self, frame: &[u8], patience: &mut Patience) -> bool {
        let mut rest = frame;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return false,
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !patience.wait_for(&self.stream) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: a client of `kubectl attach` that reads a little whenever it would be disconnected. Each write had a time-out of its
    /// own, so that it delayed the output of the container, and what the container does, as long as it liked.
    #[test]
    fn regression_a_client_that_reads_slowly_is_disconnected() {
        let (stream, reader) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut client = Client {
            stream,
            received: Vec::new(),
            typist: false,
        };
        let reading = std::thread::spawn(move || {
            let mut reader = reader;
            let mut buffer = vec![0; 64 << 10];
            while reader.read(&mut buffer).is_ok_and(|n| n > 0) {
                std::thread::sleep(PATIENCE / 4);
            }
        });
        let mut patience = Patience::new();
        let frame = vec![0; 32 << 10];
        // More than fits into the socket, and than the client reads in this time.
        let taken = (0..1000).take_while(|_| client.take(&frame, &mut patience));
        assert!(taken.count() < 1000);
        drop(client);
        reading.join().unwrap();
    }

    /// The attack: as many clients as a process may have descriptors. The log could not be rotated, and the shim did nothing but try
    /// to accept the next one.
    #[test]
    fn regression_clients_are_few() {
        let directory = tempfile::tempdir().unwrap();
        let mut attached = Attached::new(directory.path());
        let address = directory.path().join(ATTACH);
        let all: Vec<UnixStream> = (0..MOST + 10)
            .map(|_| {
                let client = UnixStream::connect(&address).unwrap();
                let mut watched = Vec::new();
                attached.watch(&mut watched);
                poll(&mut watched, None).unwrap();
                let events: Vec<PollFlags> = watched.iter().map(PollFd::revents).collect();
                attached.work(&events);
                client
            })
            .collect();
        assert_eq!(attached.clients.len(), MOST);
        attached.show(1, b"word");
        let mut read = all.iter().map(|mut client| {
            let mut buffer = [0; 100];
            client.read(&mut buffer).unwrap()
        });
        assert!(read.by_ref().take(MOST).all(|n| n == 5 + 4));
        assert!(read.all(|n| n == 0), "disconnected");
    }
}
