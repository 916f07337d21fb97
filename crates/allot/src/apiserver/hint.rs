//! Remedies for an API server that cannot listen on its address.

use std::io::ErrorKind;
use std::net::SocketAddr;

use crate::clusters;

/// The error for an address that cannot be bound, with advice.
pub(super) fn cannot_listen(address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => {
            let other = clusters::registry::all().into_iter().find(|record| {
                record.server.ends_with(&format!(":{}", address.port())) && record.alive().is_some()
            });
            let other = other.map(|record| {
                let flags = clusters::flags(record.name.as_deref(), &record.data_dir);
                format!(
                    "the cluster in {} has it (`allot down{flags}` ends it); ",
                    record.data_dir.display()
                )
            });
            format!(
                "; {}choose another with --listen, such as --listen {}",
                other.unwrap_or_default(),
                SocketAddr::new(address.ip(), 0)
            )
        }
        ErrorKind::PermissionDenied => {
            "; ports below 1024 are for root: choose another with --listen".to_owned()
        }
        ErrorKind::AddrNotAvailable => "; --listen takes an address of this machine".to_owned(),
        _ => String::new(),
    };
    anyhow::Error::new(error).context(format!("cannot listen on {address}{hint}"))
}
