//! Limits of numbers on the command line: a number that is far too large is rejected at once, instead of exhausting
//! memory.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Nodes of one cluster, as Kubernetes supports them.
pub const NODES: RangeInclusive<usize> = 0..=5000;
/// Concurrent work.
pub const PARALLEL: RangeInclusive<usize> = 1..=1000;
/// Devices of one node: more than slices of one pool can show.
pub const DEVICES: RangeInclusive<usize> = 0..=100_000;
/// Objects of a measurement.
pub const OBJECTS: RangeInclusive<usize> = 0..=10_000_000;
/// Seconds: up to a year.
pub const SECONDS: RangeInclusive<u64> = 0..=31_536_000;

/// Reads numbers within a range.
pub fn within<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let (least, most) = (range.start(), range.end());
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<T>() {
            Ok(number) if range.contains(&number) => Ok(number),
            // Too many digits for the type are too many, too.
            _ if is_whole => Err(format!("it must be between {least} and {most}")),
            _ => Err(format!("it must be a number between {least} and {most}")),
        }
    }
}

/// Parses an address to listen on.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "it must be ADDRESS:PORT, such as 127.0.0.1:6443, or port 0 for a free one".to_owned()
    })
}

/// Parses the address of a node: one that others can connect to, or that of this machine alone.
pub fn node_ip(text: &str) -> Result<IpAddr, String> {
    let ip: Ipv4Addr = text.parse().map_err(|_| "it must be an IPv4 address")?;
    match ip {
        _ if ip.is_unspecified() => Err("it must be one address, not all of the machine".into()),
        _ if ip.is_multicast() || ip.is_broadcast() => Err("it must be that of a machine".into()),
        _ if ip.is_link_local() => Err("it must not be link-local".into()),
        _ => Ok(ip.into()),
    }
}

/// Parses a duration in Go's format (`1m30s`), longer than zero and at most a day.
pub fn duration(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(86_400);
    let nanoseconds = allot_apiserver::request::parse_duration(text);
    let nanoseconds = nanoseconds.map_err(|error| error.to_string())?;
    let duration = u64::try_from(nanoseconds).map(Duration::from_nanos);
    match duration {
        Ok(duration) if !duration.is_zero() && duration <= DAY => Ok(duration),
        _ => Err("it must be longer than 0s and at most 24h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory, Parser};

    #[test]
    fn a_node_has_an_address_of_a_machine() {
        for good in ["127.0.0.1", "10.1.2.3", "192.0.2.7"] {
            assert_eq!(
                super::node_ip(good).map(|it| it.to_string()),
                Ok(good.to_owned())
            );
        }
        for bad in [
            "",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "169.254.1.1",
            "::1",
            "10.1.2.3:80",
            "node",
        ] {
            assert!(super::node_ip(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        let nodes = super::within(super::NODES);
        assert_eq!(nodes("5000"), Ok(5000));
        for large in ["5001", "100000000", "99999999999999999999999999"] {
            assert_eq!(
                nodes(large),
                Err("it must be between 0 and 5000".to_owned())
            );
        }
        assert_eq!(nodes("-1"), Err("it must be between 0 and 5000".to_owned()));
        for other in ["", "-", "many", "1.5"] {
            assert_eq!(
                nodes(other),
                Err("it must be a number between 0 and 5000".to_owned())
            );
        }
        assert_eq!(super::duration("1m30s"), Ok(Duration::from_secs(90)));
        for bad in ["0", "-1s", "25h", "1", "soon", "9999999999h"] {
            assert!(super::duration(bad).is_err(), "{bad}");
        }
    }

    /// Every flag of every command that takes a number refuses one that is far too large.
    #[test]
    fn no_number_is_without_a_bound() {
        // These values cost no memory: steps of a search, and positions in an order. Seeds are no quantities.
        const FREE: [&str; 3] = ["budget", "chaos", "seed"];
        const HUGE: &str = "18446744073709551615";
        let mut root = crate::Cli::command();
        root.build();
        let mut open = vec![(Vec::<String>::new(), root)];
        let mut seen = 0;
        while let Some((path, command)) = open.pop() {
            for argument in command.get_arguments() {
                let Some(long) = argument.get_long().filter(|long| !FREE.contains(long)) else {
                    continue;
                };
                if !argument.get_action().takes_values() {
                    continue;
                }
                // Only numeric flags accept this and reject other text.
                let parses = |value: &str| {
                    let mut line = vec!["allot".to_owned()];
                    line.extend(path.iter().cloned());
                    line.push(format!("--{long}={value}"));
                    match crate::Cli::try_parse_from(line) {
                        Ok(_) => true,
                        Err(error) => {
                            use clap::error::ErrorKind::{InvalidValue, ValueValidation};
                            !matches!(error.kind(), ValueValidation | InvalidValue)
                        }
                    }
                };
                if parses("no-number") || !parses("1") {
                    continue;
                }
                seen += 1;
                assert!(!parses(HUGE), "{} --{long} takes {HUGE}", path.join(" "));
            }
            for sub in command.get_subcommands() {
                let mut path = path.clone();
                path.push(sub.get_name().to_owned());
                open.push((path, sub.clone()));
            }
        }
        assert!(seen > 15, "{seen}");
    }
}
