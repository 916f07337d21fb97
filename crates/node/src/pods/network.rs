//! Network namespaces of pods. A pod is in the network of the node, unless the node has a network for pods, or a device of its
//! claims needs a namespace: the CDI device says so by an annotation, and a hook of it then moves the interface there.
//!
//! A namespace is held by a mount on a file in the pod's directory: it is there before the first container, for all of
//! them, and outlives the agent. It goes before the claims are given back, so that interfaces are out of it by then.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpStream;

use crate::interfaces::{self, MoveError, Socket};
use crate::spec::ContainerSpec;

/// Annotation of a CDI device: its pod needs a network namespace of its own.
pub(super) const ANNOTATION: (&str, &str) = ("allot.dev/network-namespace", "pod");
/// Name of the file in the pod's directory.
const FILE: &str = "netns";
/// Name of the file beside it with the interfaces that were moved there.
const MOVED: &str = "interfaces.json";
/// How long a connection within a machine may take.
const CONNECT: Duration = Duration::from_secs(10);

/// A network namespace that cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("network namespace of the pod: {0}")]
pub(crate) struct NamespaceError(#[from] io::Error);

/// The namespace of a pod, if it has one.
pub(crate) fn of(directory: &Path) -> Option<PathBuf> {
    let file = directory.join(FILE);
    super::volumes::is_mounted(&file).then_some(file)
}

/// The namespace of a pod, made unless it is there. `directory` is the pod's.
///
/// # Errors
/// The kernel does not permit it.
pub(super) fn ensure(directory: &Path) -> Result<PathBuf, NamespaceError> {
    if let Some(file) = of(directory) {
        return Ok(file);
    }
    let file = directory.join(FILE);
    let made = std::fs::create_dir_all(directory)
        .and_then(|()| match std::fs::remove_file(directory.join(MOVED)) {
            // Of a namespace that ended with the machine.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => std::fs::File::create(&file),
        })
        .and_then(|_| {
            let file = file.clone();
            // A thread of its own leaves the network of the others, and ends.
            let made = std::thread::spawn(move || make(&file)).join();
            made.map_err(|_| io::Error::other("the thread ended"))?
        });
    made?;
    Ok(file)
}

fn make(file: &Path) -> io::Result<()> {
    // SAFETY: takes an integer; the flag concerns this thread alone, and no memory or descriptors.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Programs expect that they reach themselves.
    Socket::open()?.set_up("lo")?;
    mount_bind("/proc/thread-self/ns/net", file)?;
    Ok(())
}

/// Takes the namespace of a pod away, whose containers have ended. `directory` is the pod's.
pub(crate) fn remove(directory: &Path) {
    let Some(file) = of(directory) else {
        return;
    };
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    if let Err(error) = unmount(&file, flags) {
        tracing::warn!(file = %file.display(), %error, "the network namespace was not removed");
    } else {
        let _ = std::fs::remove_file(&file);
    }
}

/// Moves the interfaces that a container needs into its network, as far as they are not there. `directory` is the pod's.
///
/// # Errors
/// An interface that cannot be moved.
pub(super) async fn move_interfaces(
    directory: &Path,
    spec: &ContainerSpec,
) -> Result<(), MoveError> {
    let wanted = spec.net_devices.clone();
    let Some(namespace) = spec.network.clone().filter(|_| !wanted.is_empty()) else {
        return Ok(());
    };
    let record = directory.join(MOVED);
    let moved =
        tokio::task::spawn_blocking(move || interfaces::move_into(&namespace, &record, &wanted));
    moved.await.map_err(io::Error::other)?
}

fn connect_to(address: IpAddr, port: u16) -> io::Result<std::net::TcpStream> {
    std::net::TcpStream::connect_timeout(&(address, port).into(), CONNECT)
}

/// Connects to a port in the namespace of a pod, over its loopback interface: by IPv4, or if that fails by IPv6.
///
/// # Errors
/// The namespace is gone, or nothing listens there.
pub(crate) async fn connect(namespace: PathBuf, port: u16) -> io::Result<TcpStream> {
    let connected = std::thread::spawn(move || {
        let file = std::fs::File::open(&namespace)?;
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&file),
            Some(LinkNameSpaceType::Network),
        )?;
        let stream = connect_to(Ipv4Addr::LOCALHOST.into(), port)
            .or_else(|error| connect_to(Ipv6Addr::LOCALHOST.into(), port).map_err(|_| error))?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    });
    let joined = tokio::task::spawn_blocking(move || connected.join()).await;
    let stream: io::Result<std::net::TcpStream> = joined
        .map_err(io::Error::other)?
        .map_err(|_| io::Error::other("the thread in the namespace ended"))?;
    TcpStream::from_std(stream?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn regression_one_connection_is_opened() {
        // Any namespace will do, also that of the test; joining it needs a right.
        let own = PathBuf::from("/proc/self/ns/net");
        let four = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = four.local_addr().expect("an address").port();
        let six = TcpListener::bind((Ipv6Addr::LOCALHOST, port));
        match connect(own, port).await {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: joining a namespace is not permitted here");
                return;
            }
            connected => drop(connected.expect("connected")),
        }
        four.accept().expect("a connection by IPv4");
        let Ok(six) = six else {
            eprintln!("skipped in part: there is no IPv6 here, or its port is taken");
            return;
        };
        six.set_nonblocking(true).expect("set");
        let second = six.accept().expect_err("no connection by IPv6");
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    }
}
