use super::*;

fn parse(text: &str) -> Result<ServiceAddresses, String> {
    text.parse()
}

#[test]
fn the_flag_names_one_network_or_one_of_each_family() {
    for (text, first, both) in [
        ("10.96.0.0/16", "10.96.0.1", false),
        ("10.96.3.9/29", "10.96.3.9", false),
        ("2001:db8::/64", "2001:db8::1", false),
        ("10.0.0.0/8,fd00:1::/112", "10.0.0.1", true),
        ("FD00:1::/112,10.0.0.0/24", "fd00:1::1", true),
        ("2001:db8::/125,10.0.0.0/32", "2001:db8::1", true),
    ] {
        let parsed = parse(text).unwrap();
        assert_eq!(parsed.first().to_string(), first, "{text}");
        assert_eq!(parsed.is_dual_stack(), both, "{text}");
        assert_eq!(parse(&parsed.to_string()), Ok(parsed), "{text}");
    }
    assert_eq!(parse("10.96.3.9/29").unwrap().to_string(), "10.96.3.8/29");
}

#[test]
fn mistakes_are_named_as_by_kube_apiserver() {
    const NONE: &str = "service-cluster-ip-range[0] is not a valid cidr";
    const SECOND: &str = "service-cluster-ip-range[1] is not an ip net";
    const SMALL: &str = "error determining service IP ranges for primary service cidr: the service cluster IP range must be at least 8 IP addresses";
    const FAMILY: &str = "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family";
    const LARGE: &str = "service-cluster-ip-range[0]: shortest allowed prefix length for service CIDR is 64, got 63";
    const MAPPED: &str = "service-cluster-ip-range[0]: must not have IPv4-mapped IPv6 addresses";
    for (text, why) in [
        ("", NONE),
        ("10.0.0.0", NONE),
        ("10.0.0.0/33", NONE),
        ("10.0.0.0/+8", NONE),
        ("10.0.0.0/", NONE),
        ("10.0.0/24", NONE),
        ("fd00::/129", NONE),
        ("fe80::1%eth0/64", NONE),
        ("fd00::/64/64", NONE),
        (" 10.0.0.0/24", NONE),
        ("10.0.0.0/24,", SECOND),
        ("10.0.0.0/24,fd00::", SECOND),
        ("10.0.0.0/30", SMALL),
        ("fd00::/126", SMALL),
        ("10.0.0.0/24,10.1.0.0/24", FAMILY),
        ("fd00::/112,fd01::/112", FAMILY),
        (
            "10.0.0.0/24,fd00::/112,10.1.0.0/24",
            "--service-cluster-ip-range must not contain more than two entries",
        ),
        ("fd00::/63", LARGE),
        ("::ffff:10.0.0.0/104", MAPPED),
        ("::/64", MAPPED),
    ] {
        assert_eq!(parse(text), Err(why.to_owned()), "{text}");
    }
}

/// The lowest and the highest address that services get, and those beside them.
#[test]
fn networks_have_edges() {
    for (text, lowest, highest, outside) in [
        (
            "10.1.0.0/24",
            "10.1.0.1",
            "10.1.0.254",
            &["10.1.0.0", "10.1.0.255", "10.0.255.255", "10.2.0.0"][..],
        ),
        (
            "0.0.0.0/0",
            "0.0.0.1",
            "255.255.255.254",
            &["0.0.0.0", "255.255.255.255", "::1"][..],
        ),
        ("10.1.0.0/30", "10.1.0.1", "10.1.0.2", &["10.1.0.3"][..]),
        (
            "fd00::/112",
            "fd00::1",
            "fd00::ffff",
            &["fd00::", "fd00::1:0", "fcff::ffff"][..],
        ),
        (
            "fd00::/64",
            "fd00::1",
            "fd00::ffff:ffff:ffff:ffff",
            &["fd00:0:0:1::", "fd00::", "10.0.0.1"][..],
        ),
        (
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            &["ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"][..],
        ),
    ] {
        let range: ServiceRange = text.parse().unwrap();
        let usable = range.usable();
        let edges = [*usable.start(), *usable.end()].map(|it| range.address(it).to_string());
        assert_eq!(edges, [lowest, highest], "{text}");
        for inside in [lowest, highest] {
            assert!(range.gives(inside.parse().unwrap()), "{text} {inside}");
        }
        for other in outside {
            assert!(!range.gives(other.parse().unwrap()), "{text} {other}");
        }
    }
    for text in [
        "10.1.0.0/31",
        "10.1.0.0/32",
        "0.0.0.0/32",
        "fd00::/128",
        "255.255.255.255/32",
    ] {
        let range: ServiceRange = text.parse().unwrap();
        assert!(range.usable().is_empty(), "{text}");
        assert!(
            range.has(text.split('/').next().unwrap().parse().unwrap()),
            "{text}"
        );
    }
}

/// What is sent to such an address goes to the IPv4 address in it.
#[test]
fn an_ipv4_address_inside_of_an_ipv6_one_is_in_the_networks_of_ipv4() {
    let four: ServiceRange = "10.1.0.0/24".parse().unwrap();
    assert!(four.gives("::ffff:10.1.0.9".parse().unwrap()));
    assert!(!four.gives("::10.1.0.9".parse().unwrap()));
    assert_eq!(
        IpFamily::of("::ffff:10.1.0.9".parse().unwrap()),
        IpFamily::V4
    );
}
