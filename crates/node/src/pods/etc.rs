//! Files of `/etc` that depend on pod and node: the name of the host, and name resolution.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;

use super::Node;
use crate::disk::{self, Used};
use crate::error::{AtPath as _, PathError};
use crate::shim::spec::Mount;

/// The files, which are `etc-NAME` in the directory of the pod.
const NAMES: [&str; 3] = ["hostname", "hosts", "resolv.conf"];

/// Larger ones of the host are not configuration.
const LARGEST: usize = 1 << 20;

/// Names that every network has: those that a kubelet writes.
const LOOPBACK: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

/// Creates `hostname`, `hosts` and `resolv.conf` for a pod whose containers run from images or in a network of their own, and mounts them
/// unless the pod mounts something there itself, as kubelets and container runtimes do.
pub(super) fn add(
    node: &Node,
    pod: &Pod,
    hostname: &str,
    mounts: &mut Vec<Mount>,
) -> Result<(), PathError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let addresses = node.addresses(pod);
    let known = match node.has_own_network(pod) {
        true => format!("# Kubernetes-managed hosts file.\n{LOOPBACK}"),
        false => format!(
            "# Kubernetes-managed hosts file (host network).\n{}",
            host("/etc/hosts")
        ),
    };
    let contents = [
        format!("{hostname}\n"),
        hosts(&known, &spec, &addresses, hostname),
        resolv_conf(&servers(node, pod), &spec),
    ];
    let directory = node.pod_dir(&pod.uid().unwrap_or_default());
    for (name, content) in NAMES.into_iter().zip(contents) {
        let target = Path::new("/etc").join(name);
        if mounts.iter().any(|mount| mount.target == target) {
            continue;
        }
        let path = path(&directory, name);
        let make = || -> std::io::Result<_> {
            fs::create_dir_all(&directory)?;
            // In place: containers that run have it mounted.
            fs::write(&path, content)?;
            path.canonicalize()
        };
        let source = make().at(&path)?;
        mounts.push(Mount {
            source,
            target,
            ..Mount::default()
        });
    }
    Ok(())
}

fn path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("etc-{name}"))
}

/// What these files use of the disk: root of a container can write to them. `directory` is the pod's.
pub(super) fn on_disk(directory: &Path) -> Used {
    let files = NAMES.into_iter().map(|name| path(directory, name));
    files.map(|path| disk::of_file(&path)).sum()
}

/// The configuration of name resolution that a pod starts from: that of its network if it has one, else the host's.
fn servers(node: &Node, pod: &Pod) -> String {
    let host_file = host("/etc/resolv.conf");
    if !node.has_own_network(pod) {
        return host_file;
    }
    let own = node.sandboxes.servers(pod);
    if !own.is_empty() {
        let lines = own.iter().map(|server| format!("nameserver {server}\n"));
        return lines.collect();
    }
    match is_local(&host_file) {
        // The servers behind the one on the host's loopback interface, which the pod does not reach.
        true => host("/run/systemd/resolve/resolv.conf"),
        false => host_file,
    }
}

/// Whether all servers are on the loopback interface.
fn is_local(text: &str) -> bool {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next())?
    });
    let mut parsed = named
        .filter_map(|name| name.parse::<IpAddr>().ok())
        .peekable();
    parsed.peek().is_some() && parsed.all(|ip| ip.is_loopback())
}

/// A file of the host; empty if it cannot be used.
fn host(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    if text.len() > LARGEST {
        return String::new();
    }
    text
}

/// With the network of the host its names are known, too; the pod's own and its aliases are added.
fn hosts(known: &str, spec: &PodSpec, addresses: &[String], hostname: &str) -> String {
    let mut text = known.to_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    for address in addresses {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{address}\t{hostname}");
    }
    let aliases = spec.host_aliases.iter().flatten();
    let aliases: Vec<String> = aliases
        .map(|alias| {
            let names = alias.hostnames.clone().unwrap_or_default();
            format!("{}\t{}", alias.ip, names.join("\t"))
        })
        .collect();
    if !aliases.is_empty() {
        let _ = writeln!(
            text,
            "\n# Entries added by HostAliases.\n{}",
            aliases.join("\n")
        );
    }
    text
}

/// The host's servers and the pod's; the pod's alone with the policy `None`.
fn resolv_conf(host: &str, spec: &PodSpec) -> String {
    let own = spec.dns_policy.as_deref() == Some("None");
    let mut text = if own { String::new() } else { host.to_owned() };
    let Some(config) = &spec.dns_config else {
        return text;
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for server in config.nameservers.iter().flatten() {
        let _ = writeln!(text, "nameserver {server}");
    }
    let searches: Vec<&str> = config
        .searches
        .iter()
        .flatten()
        .map(String::as_str)
        .collect();
    if !searches.is_empty() {
        let _ = writeln!(text, "search {}", searches.join(" "));
    }
    let options = config.options.iter().flatten().filter_map(|option| {
        let name = option.name.as_deref()?;
        Some(match &option.value {
            Some(value) => format!("{name}:{value}"),
            None => name.to_owned(),
        })
    });
    let options: Vec<String> = options.collect();
    if !options.is_empty() {
        let _ = writeln!(text, "options {}", options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(more: serde_json::Value) -> PodSpec {
        let mut spec = json!({"containers": []});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn aliases_follow_the_names_of_the_host() {
        let aliases = json!({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}]});
        let addresses = ["127.0.0.1", "fd00::7"].map(str::to_owned);
        let text = hosts("127.0.0.1 localhost", &spec(aliases), &addresses, "pod");
        assert_eq!(
            text,
            "127.0.0.1 localhost\n127.0.0.1\tpod\nfd00::7\tpod\n\n\
             # Entries added by HostAliases.\n10.0.0.1\ta\tb\n"
        );
    }

    #[test]
    fn servers_of_the_loopback_interface_are_told_apart() {
        assert!(is_local("# stub\nnameserver 127.0.0.53\nsearch x\n"));
        assert!(!is_local("nameserver 127.0.0.53\nnameserver 10.0.0.2\n"));
        assert!(!is_local("search x\n"));
    }

    #[test]
    fn servers_are_the_hosts_unless_the_pod_wants_its_own() {
        let host = "nameserver 10.0.0.2\n";
        assert_eq!(resolv_conf(host, &spec(json!({}))), host);
        let config = json!({"nameservers": ["10.0.0.3"], "searches": ["x", "y"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]});
        let own = "nameserver 10.0.0.3\nsearch x y\noptions ndots:2 edns0\n";
        let more = spec(json!({"dnsConfig": config}));
        assert_eq!(resolv_conf(host, &more), format!("{host}{own}"));
        let only = spec(json!({"dnsConfig": config, "dnsPolicy": "None"}));
        assert_eq!(resolv_conf(host, &only), own);
    }
}
