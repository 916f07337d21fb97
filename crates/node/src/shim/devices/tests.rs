use std::fs;
use std::process::Command;

use serde_json::json;

use super::*;

fn rules(list: serde_json::Value) -> Vec<LinuxDeviceCgroup> {
    serde_json::from_value(list).unwrap()
}

/// A cgroup of the second version; none where there cannot be one.
struct Cgroup {
    mounted: tempfile::TempDir,
}

impl Cgroup {
    fn new() -> Option<Self> {
        let mounted = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        if let Err(error) = rustix::mount::mount("none", mounted.path(), "cgroup2", flags, None) {
            eprintln!("skipped: no cgroups of the second version: {error}");
            return None;
        }
        let this = Self { mounted };
        if let Err(error) = fs::create_dir(this.path()) {
            eprintln!("skipped: cgroups cannot be written: {error}");
            return None;
        }
        Some(this)
    }

    fn path(&self) -> std::path::PathBuf {
        let name = format!("allot-test-{}", std::process::id());
        self.mounted.path().join(name)
    }

    /// What a shell in the cgroup says about these devices.
    fn try_out(&self, script: &str) -> String {
        let join = format!(
            "echo $$ > {}/cgroup.procs && {script}",
            self.path().display()
        );
        let output = Command::new("sh").args(["-c", &join]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.path());
        let _ = rustix::mount::unmount(self.mounted.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn the_kernel_permits_what_the_rules_permit() {
    let script = "for d in null zero kmsg; do for way in '<' '>'; do \
                  eval \": $way /dev/$d\" 2> /dev/null && echo \"$d $way\"; done; done; true";
    let deny = json!({"allow": false, "access": "rwm"});
    for (list, expected) in [
        (json!([deny]), "null <\nnull >\nzero <\nzero >\n"),
        (
            json!([deny, {"allow": true, "type": "c", "major": 1, "minor": 11, "access": "r"}]),
            "null <\nnull >\nzero <\nzero >\nkmsg <\n",
        ),
        (
            json!([deny, {"allow": true, "type": "c", "major": 1, "access": "rwm"},
                {"allow": false, "type": "c", "major": 1, "minor": 11, "access": "w"}]),
            "null <\nnull >\nzero <\nzero >\nkmsg <\n",
        ),
        (
            json!([{"allow": true, "access": "rwm"}]),
            "null <\nnull >\nzero <\nzero >\nkmsg <\nkmsg >\n",
        ),
    ] {
        let Some(cgroup) = Cgroup::new() else {
            return;
        };
        if !std::path::Path::new("/dev/kmsg").exists() {
            eprintln!("skipped: no /dev/kmsg");
            return;
        }
        enforce(&rules(list.clone()), &cgroup.path()).unwrap();
        assert_eq!(cgroup.try_out(script), expected, "{list}");
    }
}
