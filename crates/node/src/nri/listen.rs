//! The socket to which plugins connect.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allot_protos::nri::{Empty, RegisterPluginRequest, UpdateContainersResponse};
use allot_protos::ttrpc::{Request, Status};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::connection::{
    CallError, Connection, EXHAUSTED, INVALID, UNIMPLEMENTED, UNKNOWN, refuse,
};
use super::frames::{FrameError, Message, PLUGIN, REQUEST, Reader};
use super::plugin::{Plugin, PluginError, check_name};
use super::{Nri, REGISTRATION, RUNTIME_SERVICE};
use crate::error::Error;

/// Calls of one plugin at the same time.
const MOST_CALLS: usize = 16;
/// Pause after a connection could not be accepted: for lack of descriptors, about which nothing is notified.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket, which is removed at the end.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Listener {
    /// Listens at a path, in a directory that is created for root alone if it is not there.
    ///
    /// # Errors
    /// Another program listens there, or the file cannot be created.
    pub(crate) async fn bind(path: &Path) -> Result<Self, Error> {
        bind(path).await.map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })
    }
}

async fn bind(path: &Path) -> io::Result<Listener> {
    if let Some(directory) = path.parent() {
        allot_cdi::file::create_private_dir(directory, 0o700)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            // One that does not accept connections at the moment is there as well.
            let connected = UnixStream::connect(path).await;
            if !connected.is_err_and(|it| it.kind() == io::ErrorKind::ConnectionRefused) {
                let text = "another program listens there; it may be the NRI socket of a container runtime";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            std::fs::remove_file(path)?;
        }
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "not a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = Listener {
        socket: UnixListener::bind(path)?,
        path: path.to_owned(),
    };
    // Those that connect before this are refused by their user.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Plugin(#[from] PluginError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("it did not register within {} seconds", REGISTRATION.as_secs())]
    NotRegistered,
    #[error("it makes more than {MOST_CALLS} calls at the same time, or something else than calls")]
    Calls,
}

impl Nri {
    /// Serves the socket until dropped. Plugins that connect earlier are notified of the containers of the earlier agent when these
    /// are known.
    pub(crate) async fn serve(self: Arc<Self>, listener: Listener) {
        self.adopted.wait().await;
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let stream = match listener.socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "an NRI plugin cannot connect");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if !is_permitted(&stream) {
                tracing::warn!("an NRI plugin of another user was refused");
                continue;
            }
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                tracing::warn!("an NRI plugin was refused: there are too many connections");
                continue;
            };
            let nri = Arc::clone(&self);
            connections.spawn(async move {
                nri.connected(stream).await;
                drop(place);
            });
        }
    }

    async fn connected(self: &Arc<Self>, stream: UnixStream) {
        let (read, write) = stream.into_split();
        let connection = Arc::new(Connection::new(write));
        let (sender, registration) = oneshot::channel();
        let calls = Calls {
            nri: Arc::clone(self),
            connection: Arc::clone(&connection),
            registration: Arc::new(Mutex::new(Some(sender))),
        };
        let name = Mutex::new("an unknown plugin".to_owned());
        let living = async {
            let registered = tokio::time::timeout(REGISTRATION, registration).await;
            let Ok(Ok(request)) = registered else {
                return Err(Ended::NotRegistered);
            };
            let plugin = Plugin::configure(Arc::clone(&connection), request).await?;
            name.lock().clone_from(&plugin.name);
            self.join(plugin).await?;
            connection.closed().await;
            Ok(())
        };
        let ended = tokio::select! {
            ended = calls.read(Reader::new(read)) => ended,
            ended = living => ended,
        };
        connection.end().await;
        let plugin = name.into_inner();
        match ended {
            Ok(()) => tracing::info!(plugin, "an NRI plugin has left"),
            Err(error) => tracing::warn!(plugin, %error, "an NRI plugin is closed"),
        }
    }
}

/// Whether the process at the other end may do what root of the node may.
fn is_permitted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let user = stream.peer_cred().map(|peer| peer.uid());
    user.is_ok_and(|user| user == 0 || user == own)
}

/// What a plugin calls.
#[derive(Clone)]
struct Calls {
    nri: Arc<Nri>,
    connection: Arc<Connection>,
    registration: Arc<Mutex<Option<oneshot::Sender<RegisterPluginRequest>>>>,
}

impl Calls {
    /// Reads what the plugin says until it ends.
    async fn read(&self, mut reader: Reader<tokio::net::unix::OwnedReadHalf>) -> Result<(), Ended> {
        let mut answers = JoinSet::new();
        while let Some((conversation, message)) = reader.next().await? {
            if conversation == PLUGIN {
                self.connection.answered(&message)?;
                // One frame can have many of them, which are read without waiting for anything.
                tokio::task::coop::consume_budget().await;
                continue;
            }
            while answers.try_join_next().is_some() {}
            if message.kind != REQUEST || answers.len() >= MOST_CALLS {
                return Err(Ended::Calls);
            }
            let calls = self.clone();
            answers.spawn(async move {
                let answer = calls.call(&message).await;
                let connection = &calls.connection;
                connection
                    .answer(message.call, answer, super::REQUEST)
                    .await;
            });
        }
        Ok(())
    }

    async fn call(&self, message: &Message) -> Result<Vec<u8>, Status> {
        let unreadable = |error: prost::DecodeError| refuse(INVALID, error.to_string());
        let request = Request::decode(&*message.content).map_err(unreadable)?;
        match (request.service.as_str(), request.method.as_str()) {
            (RUNTIME_SERVICE, "RegisterPlugin") => {
                let wanted = RegisterPluginRequest::decode(&*request.payload);
                let wanted = wanted.map_err(unreadable)?;
                check_name(&wanted).map_err(|text| refuse(UNKNOWN, text))?;
                let sender = self.registration.lock().take();
                let sender = sender.ok_or_else(|| refuse(INVALID, "already registered"))?;
                // The connection may end at this moment.
                let _ = sender.send(wanted);
                Ok(Empty::default().encode_to_vec())
            }
            (RUNTIME_SERVICE, "UpdateContainers") => {
                if self.registration.lock().is_some() {
                    return Err(refuse(INVALID, "not registered"));
                }
                let failed = self.nri.update_unasked(&request.payload).await;
                let failed = failed.map_err(|error| refuse(INVALID, error.to_string()))?;
                let answer = UpdateContainersResponse { failed };
                match answer.encoded_len() < super::frames::LONGEST {
                    true => Ok(answer.encode_to_vec()),
                    false => Err(refuse(EXHAUSTED, "too many updates")),
                }
            }
            (service, method) => {
                // It is a text of the plugin, in an answer to it.
                let text = format!("/{service}/{method} is not implemented");
                Err(refuse(UNIMPLEMENTED, crate::events::shorten(text)))
            }
        }
    }
}
