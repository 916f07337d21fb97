use super::*;

fn names() -> Names {
    Names {
        nodes: [("host-a", 0), ("host-a.dc3.example.org", 0), ("host-b", 1)]
            .map(|(name, node)| (name.to_owned(), node))
            .into(),
        places: BTreeSet::from(["us-central1-a".to_owned()]),
        domains: BTreeSet::from(["example.org".to_owned()]),
        drivers: BTreeSet::from(["gpu.example.org".to_owned()]),
    }
}

/// What is found in a value, with `_` for plain parts.
fn check(name: &str, text: &str, expected: &str) {
    let parts = names().scan(name, text);
    let shown = parts.iter().map(|part| match part {
        Part::Plain(text) => (*text).to_owned(),
        Part::Node(number) => format!("<Node {number}>"),
        Part::Found(id) => format!("<{:?} {}>", id.sort, id.key),
    });
    assert_eq!(shown.collect::<String>(), expected, "{name}={text}");
}

#[test]
fn identifiers_are_found_anywhere_in_a_text() {
    let uuid = "5d1d46ee-c7f8-fb08-137a-026f11ab6dd9";
    check(
        "",
        &format!("x{uuid}/{uuid}"),
        &format!("x<Uuid {uuid}>/<Uuid {uuid}>"),
    );
    check("", &uuid.to_uppercase(), &format!("<Uuid {uuid}>"));
    check(
        "",
        "mac 60:5E:65:14:0f:10.",
        "mac <Address 60:5e:65:14:0f:10>.",
    );
    check("", "60-5e-65-14-0f-10", "<Address 60-5e-65-14-0f-10>");
    check("", "946d:ae03:0012:3456", "<Address 946d:ae03:0012:3456>");
    check(
        "",
        "10.1.2.3/19,fd00::7/64",
        "<V4 10.1.2.3>/19,<V6 fd00::7>/64",
    );
    check("", "rack of host-a", "rack of <Node 0>");
    check("", "host-a.dc3.example.org:7", "<Node 0>:7");
    check("", "host-b/host-bb", "<Node 1>/host-bb");
    check("", "leaf1.dc3.example.org", "<Host leaf1.dc3.example.org>");
    check(
        "",
        "leaf1.dc3.example.org.7",
        "<Host leaf1.dc3.example.org>.7",
    );
    check("", "10.1.2.3.7 fd00::7.7", "<V4 10.1.2.3>.7 <V6 fd00::7>.7");
    check("", "::ffff:10.1.2.3", "<V6 ::ffff:10.1.2.3>");
    check("", "us-central1-a", "<Place us-central1-a>");
    check(
        "",
        "MT2116X09299 é i-0123456789abcdef0",
        "<Serial MT2116X09299> é i-<Serial 0123456789abcdef0>",
    );
}

#[test]
fn what_the_value_is_called_counts() {
    check("serialNumber", "S5X-1", "<Serial S5X-1>");
    check("dra.nvme/serial", "", "");
    check("uuid", "host-a", "<Node 0>");
    check("example.org/gke-nodepool", "customers", "<Place customers>");
    check("rack", "7", "7");
    check("hostname", "host-b", "<Node 1>");
    check("instance-type", "a3-highgpu-8g", "a3-highgpu-8g");
    check("clusterUUID", "", "");
    assert!(is_serial("clusterUUID") && is_serial("mac-address") && !is_serial("machine"));
}

#[test]
fn what_describes_the_hardware_stays() {
    for text in [
        "0000:1b:00.0",
        "pci0000:15",
        "pci-0000-18-00-0",
        "NVIDIA H100 80GB HBM3",
        "gpu-3-mig-1g10gb-19-2",
        "570.86.15",
        "mlx5_0",
        "0x740a",
        "MT2910 Family [ConnectX-7]",
        "gpu.example.org",
        "hugepages-1gi-000001",
        "00000000:1B:00.0",
        "cpudevnuma000",
        "::",
        "2,2,1",
        "12:34:56",
        "é",
        "",
    ] {
        check("model", text, text);
    }
}
