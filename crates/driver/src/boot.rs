//! Which boot of the machine this is.

use std::path::Path;
use std::sync::OnceLock;

/// Environment variable with an ID that replaces the one of the kernel, for tests of what a driver does after a reboot. The
/// conformance kit sets it.
pub const BOOT_ID_VARIABLE: &str = "ALLOT_DRIVER_BOOT_ID";

/// The ID of the current boot, which Linux generates at random, or the value of [`BOOT_ID_VARIABLE`]; `None` if there is neither.
/// What was recorded in a boot without one is not known to be of the current boot.
pub fn boot_id() -> Option<&'static str> {
    static ID: OnceLock<Option<String>> = OnceLock::new();
    let id = ID.get_or_init(|| {
        let given = std::env::var(BOOT_ID_VARIABLE).ok();
        let given = given.filter(|id| !id.trim().is_empty());
        let text =
            given.or_else(|| std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok())?;
        Some(text.trim().to_owned()).filter(|id| !id.is_empty())
    });
    id.as_deref()
}

/// The boot for a driver with files at `path`: that of the machine, or of the test's node to which the path belongs.
pub(crate) fn boot_id_of(path: Option<&Path>) -> Option<String> {
    #[cfg(feature = "testing")]
    if let Some(id) = path.and_then(simulated::of) {
        return Some(id);
    }
    let _ = path;
    boot_id().map(str::to_owned)
}

/// Nodes of tests that were rebooted. All of them are in one process, which has one environment.
#[cfg(feature = "testing")]
pub(crate) mod simulated {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use parking_lot::Mutex;

    /// The boots by the root directory of the node.
    static BOOTS: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());

    /// Sets the boot of everything below a directory.
    pub(crate) fn set(root: &Path, id: String) {
        BOOTS.lock().insert(root.to_owned(), id);
    }

    /// From now on it is that of the machine again.
    pub(crate) fn forget(root: &Path) {
        BOOTS.lock().remove(root);
    }

    pub(super) fn of(path: &Path) -> Option<String> {
        let boots = BOOTS.lock();
        path.ancestors().find_map(|root| boots.get(root).cloned())
    }
}
