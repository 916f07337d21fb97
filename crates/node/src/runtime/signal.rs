//! Signals by the names that images use for them.

/// The first real-time signal that programs may use; the C library reserves two.
const REALTIME: (i32, i32) = (34, 64);

/// Sends a signal. A process that has ended is no error.
pub(super) fn send(pid: i32, signal: i32) {
    // SAFETY: kill(2) takes two integers and touches no memory of this process.
    unsafe { libc::kill(pid, signal) };
}

/// The number of a signal that is written as in a Dockerfile: `SIGINT`, `INT`, `2` or `SIGRTMIN+3`.
pub(super) fn number(text: &str) -> Option<i32> {
    let text = text.trim().to_ascii_uppercase();
    let valid = |number: &i32| (1..=REALTIME.1).contains(number);
    if let Ok(number) = text.parse::<i32>() {
        return Some(number).filter(valid);
    }
    let name = text.strip_prefix("SIG").unwrap_or(&text);
    if let Some(rest) = name.strip_prefix("RTMIN") {
        let more = if rest.is_empty() {
            0
        } else {
            rest.strip_prefix('+')?.parse().ok()?
        };
        return REALTIME
            .0
            .checked_add(more)
            .filter(|it| (REALTIME.0..=REALTIME.1).contains(it));
    }
    if let Some(rest) = name.strip_prefix("RTMAX") {
        let less = if rest.is_empty() {
            0
        } else {
            rest.strip_prefix('-')?.parse().ok()?
        };
        return REALTIME
            .1
            .checked_sub(less)
            .filter(|it| (REALTIME.0..=REALTIME.1).contains(it));
    }
    Some(match name {
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        "QUIT" => libc::SIGQUIT,
        "ABRT" => libc::SIGABRT,
        "KILL" => libc::SIGKILL,
        "USR1" => libc::SIGUSR1,
        "USR2" => libc::SIGUSR2,
        "PIPE" => libc::SIGPIPE,
        "ALRM" => libc::SIGALRM,
        "TERM" => libc::SIGTERM,
        "CONT" => libc::SIGCONT,
        "STOP" => libc::SIGSTOP,
        "TSTP" => libc::SIGTSTP,
        "TTIN" => libc::SIGTTIN,
        "TTOU" => libc::SIGTTOU,
        "URG" => libc::SIGURG,
        "WINCH" => libc::SIGWINCH,
        "IO" | "POLL" => libc::SIGIO,
        "PWR" => libc::SIGPWR,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, expected) in [
            ("SIGINT", Some(2)),
            ("quit", Some(3)),
            ("15", Some(15)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-14", Some(50)),
            ("SIGRTMIN+31", None),
            ("RTMIN+-1", None),
            ("0", None),
            ("65", None),
            ("SIGNAL", None),
            ("", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
