//! Which run of the machine this is.

use std::sync::OnceLock;

/// The kernel's ID of this run of the machine; empty where it cannot be read. No process, network namespace or number of an interface
/// outlives it.
pub(crate) fn id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        text.unwrap_or_default().trim().to_owned()
    })
}
