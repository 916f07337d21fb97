//! `allot up --detach`: the cluster in a separate process, which reports when it is ready.

use std::io::{Write as _, stdout};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

/// The report of a process that fails to become ready.
const FAILED: &str = "failed: ";

/// Limit of the process's report.
const LONGEST: u64 = 64 << 10;

/// Starts this program again with the same arguments in the background, and waits until it is ready.
pub(super) fn run(what: &str) -> anyhow::Result<()> {
    super::super::component::block_on(async |shutdown| {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = tokio::process::Command::new(program)
            .args(std::env::args_os().skip(1))
            .arg("--detached")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the cluster's process")?;
        let output = child.stdout.take().context("no output")?;
        let mut output = BufReader::new(output.take(LONGEST));
        let mut lines = Vec::new();
        let said = async {
            let mut line = String::new();
            while matches!(output.read_line(&mut line).await, Ok(1..)) {
                lines.push(line.trim_end().to_owned());
                line.clear();
            }
        };
        tokio::select! {
            // The end of the output: it has said everything, or has ended.
            () = said => {}
            () = shutdown.cancelled() => {
                let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
                if let Some(pid) = pid {
                    // It was not waited for, so its PID is still its own.
                    let _ = rustix::process::kill_process(pid, Signal::TERM);
                }
                child.wait().await?;
                bail!("interrupted: the {what} was ended again");
            }
        }
        if let Some(reason) = lines.iter().find_map(|line| line.strip_prefix(FAILED)) {
            bail!("{reason}");
        }
        if lines.first().is_some_and(|line| line.starts_with("ready:")) {
            for line in lines {
                writeln!(stdout(), "{line}")?;
            }
            return Ok(());
        }
        let status = child.wait().await?;
        bail!("the {what} ended before it was ready: {status}")
    })
}

/// Detaches this process from the terminal: its signals are no longer received, and it can be closed.
pub(super) fn leave_terminal() {
    // Fails for the leader of a process group, which a child is not.
    let _ = rustix::process::setsid();
}

/// Ends what the process in the foreground waits for.
pub(super) fn leave_output() {
    let _ = stdout().flush();
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Reports to the process in the foreground why there is no cluster. After it was ready there is no reader.
pub(super) fn tell_failure(error: &anyhow::Error) {
    let _ = writeln!(stdout(), "{FAILED}{}", crate::describe(error));
}
