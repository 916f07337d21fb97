//! What CDI devices demand that an OCI runtime may leave out without an error: network devices, which runtimes older than version 1.3 of
//! the OCI specification (runc 1.4) do not know, and Intel RDT, which runc leaves out on a machine without it. A container must not
//! run without what its devices demand.

use std::path::{Path, PathBuf};

use allot_cdi::{ContainerEdits, IntelRdt, Registry};

use crate::rdt;

/// Where the kernel lists the interfaces of the host's network.
const INTERFACES: &str = "/sys/class/net";

/// The demands of a container's devices.
#[derive(Debug)]
pub(super) struct Demands {
    interfaces: PathBuf,
    resctrl: PathBuf,
    /// Interfaces of the host that are moved into the network of the container.
    moved: Vec<String>,
    group: Option<IntelRdt>,
}

impl Demands {
    /// Those of devices, by the CDI files in `dirs`. What cannot be read there is for the runtime to refuse.
    ///
    /// # Errors
    /// The machine does not have one.
    pub(super) fn of(dirs: &[PathBuf], devices: &[String]) -> Result<Self, String> {
        let edits = match devices.is_empty() {
            true => ContainerEdits::default(),
            false => Registry::load(dirs).resolve(devices).unwrap_or_default(),
        };
        Self::on(Path::new(INTERFACES), Path::new(rdt::RESCTRL), edits)
    }

    fn on(interfaces: &Path, resctrl: &Path, edits: ContainerEdits) -> Result<Self, String> {
        let moved = edits.net_devices.into_iter();
        let demands = Self {
            interfaces: interfaces.to_owned(),
            resctrl: resctrl.to_owned(),
            moved: moved.map(|it| it.host_interface_name).collect(),
            group: edits.intel_rdt,
        };
        if let Some(name) = demands.moved.iter().find(|name| !demands.is_here(name)) {
            return Err(format!("there is no interface {name:?} on this node"));
        }
        if let Some(wanted) = &demands.group {
            let usable = rdt::is_mounted(resctrl).and_then(|()| rdt::check_group(wanted));
            usable.map_err(|error| error.to_string())?;
        }
        Ok(demands)
    }

    fn is_here(&self, interface: &str) -> bool {
        is_name(interface) && self.interfaces.join(interface).exists()
    }

    /// What was left out of a container that has been started, if anything.
    pub(super) fn left_out(&self, id: &str) -> Option<String> {
        if let Some(name) = self.moved.iter().find(|name| self.is_here(name)) {
            return Some(format!(
                "the interface {name:?} was not moved: the OCI runtime does not know network devices (runc 1.4 and newer does), or the \
                 pod has the network of the host"
            ));
        }
        let group = rdt::group(self.group.as_ref()?).unwrap_or(id);
        let is_there = self.resctrl.join(group).is_dir();
        (!is_there).then(|| {
            format!("the OCI runtime did not apply Intel RDT: there is no group {group:?}")
        })
    }
}

/// Whether a name leads to no other directory.
fn is_name(name: &str) -> bool {
    !name.contains('/') && !matches!(name, "" | "." | "..")
}

#[cfg(test)]
mod tests {
    use allot_cdi::NetDevice;

    use super::*;

    #[test]
    fn interfaces_that_were_not_moved_are_named() {
        let host = tempfile::tempdir().expect("a directory");
        let interface = |name: &str| host.path().join(name);
        for name in ["eth0", "data0", "data1"] {
            std::fs::write(interface(name), "").expect("a file");
        }
        let of = |names: &[&str]| {
            let devices = names.iter().map(|name| NetDevice {
                host_interface_name: (*name).to_owned(),
                name: "net1".to_owned(),
            });
            let net_devices = devices.collect();
            let edits = ContainerEdits {
                net_devices,
                ..ContainerEdits::default()
            };
            Demands::on(host.path(), Path::new("/nonexistent"), edits)
        };
        assert_eq!(of(&[]).expect("none").left_out("c"), None);
        let missing = of(&["data0", "data9"]).expect_err("one is missing");
        assert_eq!(missing, "there is no interface \"data9\" on this node");
        of(&["../eth0"]).expect_err("the name of no interface");
        let demands = of(&["data0", "data1"]).expect("two");
        std::fs::remove_file(interface("data0")).expect("moved");
        let left = demands.left_out("c").unwrap_or_default();
        assert!(
            left.contains("the interface \"data1\" was not moved"),
            "{left}"
        );
        std::fs::remove_file(interface("data1")).expect("moved");
        assert_eq!(demands.left_out("c"), None);
    }

    #[test]
    fn groups_of_rdt_that_were_not_made_are_named() {
        let rdt = tempfile::tempdir().expect("a directory");
        let of = |clos_id: Option<&str>| {
            let edits = ContainerEdits {
                intel_rdt: Some(IntelRdt {
                    clos_id: clos_id.map(str::to_owned),
                    ..IntelRdt::default()
                }),
                ..ContainerEdits::default()
            };
            Demands::on(Path::new("/nonexistent"), rdt.path(), edits)
        };
        let refused = of(Some("gold")).expect_err("no RDT");
        assert!(refused.starts_with("Intel RDT is not enabled"), "{refused}");
        std::fs::write(rdt.path().join("schemata"), "").expect("a file");
        std::fs::create_dir(rdt.path().join("gold")).expect("a directory");
        let left_out = |clos_id| of(clos_id).expect("demands").left_out("c1");
        assert_eq!(left_out(Some("gold")), None);
        for (group, named) in [(Some("silver"), "silver"), (None, "c1")] {
            let left = left_out(group).unwrap_or_default();
            assert!(left.ends_with(&format!("no group {named:?}")), "{left}");
        }
        std::fs::create_dir(rdt.path().join("c1")).expect("a directory");
        assert_eq!(left_out(None), None);
    }

    /// `info` is a directory of resctrl, and was taken for a group; `/` was refused when the container ran already.
    #[test]
    fn regression_names_of_no_group_of_rdt_are_refused() {
        let rdt = tempfile::tempdir().expect("a directory");
        std::fs::write(rdt.path().join("schemata"), "").expect("a file");
        std::fs::create_dir(rdt.path().join("info")).expect("a directory");
        for name in ["info", "/", "..", "a/b", "mon_groups"] {
            let edits = ContainerEdits {
                intel_rdt: Some(IntelRdt {
                    clos_id: Some(name.to_owned()),
                    ..IntelRdt::default()
                }),
                ..ContainerEdits::default()
            };
            let refused = Demands::on(Path::new("/nonexistent"), rdt.path(), edits);
            let refused = refused.expect_err(name);
            assert!(refused.ends_with("is not a valid closID"), "{refused}");
        }
    }
}
