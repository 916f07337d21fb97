//! A simulated reboot: the processes of the driver see another boot ID from then on.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::Filled;

/// A driver's processes have this variable after a reboot. The SDK reads it (`allot_driver::BOOT_ID_VARIABLE`); a driver without
/// the SDK sees another ID where the kit may mount.
pub const BOOT_ID_VARIABLE: &str = "ALLOT_DRIVER_BOOT_ID";
/// What drivers read.
const KERNEL: &str = "/proc/sys/kernel/random/boot_id";
/// In a mount namespace of its own, whose mounts are not seen outside: $0 is the file, all others are the command.
const MOUNT: &str = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";

/// The boot that a driver sees.
#[derive(Debug, Clone)]
pub(crate) struct Boot {
    id: String,
    file: PathBuf,
    /// Why the ID of the kernel stays as it is.
    blocked: Option<String>,
}

impl Boot {
    /// A boot with an ID of its own, which is written to a file in `directory`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn new(directory: &Path) -> std::io::Result<Self> {
        let id = uuid::Uuid::new_v4().to_string();
        let file = directory.join(format!("boot-{id}"));
        writeln!(std::fs::File::create_new(&file)?, "{id}")?;
        let mut boot = Self {
            id,
            file,
            blocked: None,
        };
        boot.blocked = boot.check().err();
        Ok(boot)
    }

    /// Tries whether the ID of the kernel can be covered.
    fn check(&self) -> Result<(), String> {
        let read = self.mounted(["cat", KERNEL].map(str::to_owned).to_vec());
        let (program, arguments) = read.split_first().ok_or("no command")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        let output = command
            .output()
            .map_err(|error| format!("{program}: {error}"))?;
        if String::from_utf8_lossy(&output.stdout).trim() == self.id {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().next().unwrap_or("it is not seen");
        Err(line.trim().chars().take(200).collect())
    }

    /// The words of a command that sees the ID in the place of the kernel's.
    fn mounted(&self, words: Vec<String>) -> Vec<String> {
        // Mounts that are made outside later are seen inside, too.
        let before = [
            "unshare",
            "--mount",
            "--propagation",
            "slave",
            "sh",
            "-c",
            MOUNT,
        ];
        let file = self.file.display().to_string();
        let before = before.map(str::to_owned).into_iter();
        before.chain([file]).chain(words).collect()
    }

    /// A command that sees this boot.
    pub(crate) fn show(&self, mut command: Filled) -> Filled {
        let variable = (BOOT_ID_VARIABLE.to_owned(), self.id.clone());
        command.env.push(variable);
        if self.blocked.is_none() {
            command.words = self.mounted(command.words);
        }
        command
    }

    /// What the driver could see of it, for the score card.
    pub(crate) fn told(&self) -> String {
        match &self.blocked {
            None => "the boot had another ID".to_owned(),
            Some(reason) => format!(
                "only {BOOT_ID_VARIABLE} had another boot ID: that of the kernel could not be covered here ({reason})"
            ),
        }
    }
}
