use serde_json::{Value, json};

use super::*;

#[test]
fn names_are_labels_and_differ() {
    assert_eq!(device_name("eth0", None), "eth0");
    assert_eq!(
        device_name("eth0", Some("0000:8a:00.1")),
        "pci-0000-8a-00-1"
    );
    assert_eq!(device_name("eth0.7", None), "net-657468302e37");
    assert_eq!(device_name("net-657468302e37", None).len(), 36);
    assert_eq!(device_name("ETH", None), "net-455448");
}

/// Checks whether a pattern selects a name.
fn check(pattern: &str, name: &str, expected: bool) {
    assert_eq!(
        matches(pattern.as_bytes(), name.as_bytes()),
        expected,
        "{pattern} {name}"
    );
}

#[test]
fn patterns_select_names() {
    check("eth0", "eth0", true);
    check("eth0", "eth01", false);
    check("eth*", "eth", true);
    check("e*1", "eth11", true);
    check("*", "", true);
    check("", "a", false);
}

#[test]
fn lists_fit_into_an_attribute() {
    let many = (0..20).map(|n| format!("10.0.{n}.0/24"));
    let text = list(many);
    assert!(text.len() <= TEXT, "{text}");
    assert!(text.starts_with("10.0.0.0/24,10.0.1.0/24"), "{text}");
    assert!(text.ends_with("/24"), "{text}");
}

/// A fake sysfs tree: a PCI network card with virtual functions and RDMA.
fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let sys = |path: &str| root.path().join(path);
    let card = "devices/pci0000:16/0000:16:02.0/0000:17:00.0";
    fs::create_dir_all(sys(card).join("infiniband/mlx5_0")).expect("made");
    for (file, content) in [
        ("sriov_totalvfs", "8\n"),
        ("sriov_numvfs", "2\n"),
        ("numa_node", "1\n"),
    ] {
        fs::write(sys(card).join(file), content).expect("written");
    }
    fs::create_dir_all(sys("bus/pci/devices")).expect("made");
    let link =
        |target: &str, at: &str| std::os::unix::fs::symlink(target, sys(at)).expect("linked");
    link(&format!("../../../{card}"), "bus/pci/devices/0000:17:00.0");
    fs::create_dir_all(sys("class/net/rdma0")).expect("made");
    link(&format!("../../../{card}"), "class/net/rdma0/device");
    fs::write(sys("class/net/rdma0/speed"), "400000\n").expect("written");
    root
}

#[test]
fn a_card_has_the_attributes_of_dranet_and_of_kubernetes() {
    let machine = machine();
    let selection = Selection {
        sysfs: machine.path().to_owned(),
        shares: 4,
        ..Selection::default()
    };
    let link = Link {
        name: "rdma0".to_owned(),
        mac: vec![2, 0, 0, 0, 0, 1],
        mtu: 9000,
        state: "up".to_owned(),
        encapsulation: "ether".to_owned(),
        hardware: Some(("0000:17:00.0".to_owned(), "pci".to_owned())),
        ..Link::default()
    };
    assert!(is_selected(&selection, &link));
    let addresses = ["10.1.2.3/16", "10.1.9.9/16", "fd00::1/64"];
    let addresses = addresses.map(|it| it.parse().expect("an address"));
    let found = describe(&selection, &link, &[], addresses.to_vec(), false);
    let device: Value = serde_json::to_value(&found.device).expect("JSON");
    assert_eq!(
        device,
        json!({
            "name": "pci-0000-17-00-0",
            "attributes": {
                "dra.net/alias": {"string": ""},
                "dra.net/encapsulation": {"string": "ether"},
                "dra.net/ifName": {"string": "rdma0"},
                "dra.net/ipv4": {"string": "10.1.2.3/16,10.1.9.9/16"},
                "dra.net/ipv6": {"string": "fd00::1/64"},
                "dra.net/mac": {"string": "02:00:00:00:00:01"},
                "dra.net/mtu": {"int": 9000},
                "dra.net/numaNode": {"int": 1},
                "dra.net/pciAddress": {"string": "0000:17:00.0"},
                "dra.net/rdma": {"bool": true},
                "dra.net/rdmaDevice": {"string": "mlx5_0"},
                "dra.net/sriov": {"bool": true},
                "dra.net/sriovVfs": {"int": 2},
                "dra.net/state": {"string": "up"},
                "dra.net/type": {"string": "device"},
                "dra.net/virtual": {"bool": false},
                "resource.kubernetes.io/numaNode": {"int": 1},
                "resource.kubernetes.io/pciBusID": {"string": "0000:17:00.0"},
                "resource.kubernetes.io/pcieRoot": {"string": "pci0000:16"},
                "speed": {"int": 400_000},
                "sriovVf": {"bool": false},
                "subnets": {"string": "10.1.0.0/16,fd00::/64"},
                "uplink": {"bool": false},
            },
            "allowMultipleAllocations": true,
            "capacity": {"interfaces": {"value": "4", "requestPolicy": {
                "default": "1", "validRange": {"min": "1", "max": "4", "step": "1"},
            }}},
        })
    );
    assert!(found.hardware.expect("hardware").exists());
}

#[test]
fn virtual_interfaces_are_published_when_they_are_named() {
    let veth = Link {
        name: "veth1".to_owned(),
        kind: Some("veth".to_owned()),
        ..Link::default()
    };
    assert!(!is_selected(&Selection::default(), &veth));
    let named = Selection {
        patterns: vec!["veth*".to_owned()],
        ..Selection::default()
    };
    assert!(is_selected(&named, &veth));
    let lo = Link {
        name: "lo".to_owned(),
        ..Link::default()
    };
    let all = Selection {
        patterns: vec!["*".to_owned()],
        ..Selection::default()
    };
    assert!(!is_selected(&all, &lo));
}
