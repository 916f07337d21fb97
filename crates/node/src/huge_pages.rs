//! Huge pages: the agent goes without them, and what it starts does not.
//!
//! The allocator asks for memory in huge pages, of which an agent with many small objects uses a part of each: three times
//! as much memory is resident as it needs. The kernel's switch for a process is inherited by what the process starts, and
//! containers must not notice how the agent manages its memory.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};
use tokio::process::Command;

/// Tells a shim that its agent goes without huge pages, and has not been started so.
const SWITCHED_OFF: &str = "ALLOT_NODE_SHIM_HUGE_PAGES_OFF";

/// This process has switched them off.
static OFF: AtomicBool = AtomicBool::new(false);

/// From now on the memory of this process comes in small pages. A kernel without the switch is left as it is.
pub fn go_without() {
    let inherited = transparent_huge_pages_are_disabled();
    if matches!(inherited, Ok(false)) && disable_transparent_huge_pages(true).is_ok() {
        OFF.store(true, Ordering::Relaxed);
    }
}

/// Tells a shim about it.
pub(crate) fn tell(shim: &mut Command) {
    if OFF.load(Ordering::Relaxed) {
        shim.env(SWITCHED_OFF, "1");
    }
}

/// In a shim: huge pages are again as they were for the agent when it was started.
pub(crate) fn restore() {
    restore_if(std::env::var_os(SWITCHED_OFF).is_some());
}

fn restore_if(switched_off: bool) {
    if switched_off {
        // A container without huge pages is slower, and nothing else.
        let _refused = disable_transparent_huge_pages(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_starts_has_huge_pages_again() {
        if transparent_huge_pages_are_disabled() != Ok(false) {
            return;
        }
        go_without();
        assert_eq!(transparent_huge_pages_are_disabled(), Ok(true));
        let mut shim = Command::new("shim");
        tell(&mut shim);
        let told = shim
            .as_std()
            .get_envs()
            .any(|(name, _)| name == SWITCHED_OFF);
        assert!(told);
        restore_if(told);
        assert_eq!(transparent_huge_pages_are_disabled(), Ok(false));
    }
}
