use super::*;

/// A machine with one PCI device, whose link in `bus/pci/devices` says `target`.
fn machine(target: &str, numa: Option<&str>) -> (tempfile::TempDir, Sysfs) {
    let directory = tempfile::tempdir().unwrap();
    let bus = directory.path().join("bus/pci/devices");
    std::fs::create_dir_all(&bus).unwrap();
    let device = bus.join(target);
    if let Some(numa) = numa {
        std::fs::create_dir_all(directory.path().join("devices")).unwrap();
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("numa_node"), numa).unwrap();
    }
    std::os::unix::fs::symlink(target, bus.join("0000:02:00.0")).unwrap();
    let sysfs = Sysfs::new(directory.path());
    (directory, sysfs)
}

#[test]
fn the_root_is_where_the_device_hangs() {
    let check = |target: &str, expected: Result<&str, &str>| {
        let (_directory, sysfs) = machine(target, None);
        let found = sysfs.pcie_root("0000:02:00.0");
        match (found, expected) {
            (Ok(found), Ok(root)) => assert_eq!(found.string.as_deref(), Some(root), "{target}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, _) => panic!("{target}: {found:?}"),
        }
    };
    check(
        "../../../devices/pci0000:00/0000:01:00.0/0000:02:00.0",
        Ok("pci0000:00"),
    );
    check("../../../devices/pci0001:80/0000:02:00.0", Ok("pci0001:80"));
    check(
        "../../../devices/other/0000:02:00.0",
        Err("must start with"),
    );
    check(
        "../../../devices/pci0000:00/0000:00:13.1",
        Err("must end with 0000:02:00.0"),
    );
    let (_directory, sysfs) = machine("../../../devices/pci0000:00/0000:02:00.0", None);
    let missing = sysfs.pcie_root("0000:03:00.0").unwrap_err();
    assert!(missing.to_string().contains("No such file"), "{missing}");
}

#[test]
fn addresses_are_complete_and_in_lower_case() {
    let check = |address: &str, valid: bool| {
        assert_eq!(pci_bus_id(address).is_ok(), valid, "{address:?}");
    };
    check("0123:45:1e.7", true);
    check("0000:02:00.0", true);
    check("0000:02:00.f", true);
    for wrong in [
        "",
        "02:00.0",
        "0000:02:00",
        "0000:0A:00.0",
        "0000:02:00.00",
        "0000-02:00.0",
        "../0000:02:00.0",
        "0000:02:00.0\n",
        "0000:0ü:00.0",
    ] {
        check(wrong, false);
    }
}

#[test]
fn a_device_without_numa_affinity_has_no_such_attribute() {
    let check = |content: &str, expected: Option<i64>| {
        let target = "../../../devices/pci0000:00/0000:02:00.0";
        let (_directory, sysfs) = machine(target, Some(content));
        let found = sysfs.numa_node("0000:02:00.0").unwrap();
        assert_eq!(found.and_then(|value| value.int), expected, "{content:?}");
    };
    check("1\n", Some(1));
    check("0\n", Some(0));
    check("-1\n", None);
}
