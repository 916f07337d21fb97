//! Layers that use what lower ones have made, and attributes that give rights.

use super::*;

/// Each upper layer goes through what the lower one has made, which leads out by its text.
#[test]
fn links_of_lower_layers_lead_nowhere_else() {
    for whiteouts in [Whiteouts::Apply, Whiteouts::Overlay] {
        let attacks: [fn(Layer) -> Layer; 7] = [
            |upper| upper.file("out/file", "changed"),
            |upper| upper.file("out/.wh.file", ""),
            |upper| upper.file("out/.wh..wh..opq", ""),
            |upper| upper.hard_link("mine", "out/file").file("mine", "changed"),
            |upper| upper.hard_link("mine", "soft").file("mine", "changed"),
            |upper| upper.entry(b'5', "out/.", "", 0o777, b""),
            |upper| {
                upper
                    .file(".wh.out", "")
                    .directory("out")
                    .file("out/file", "changed")
            },
        ];
        for (number, attack) in attacks.into_iter().enumerate() {
            let place = EntryLocation::new(whiteouts);
            let outside = place.directory.path().join("outside");
            let outside = outside.to_str().unwrap();
            let lower = Layer::new()
                .extended("linkpath", outside)
                .symlink("out", "")
                .extended("linkpath", &format!("{outside}/file"))
                .symlink("soft", "")
                .extended("linkpath", &format!("{outside}/file"))
                .symlink("soft2", "")
                .hard_link("hard", "soft2");
            // Whether it is refused or goes elsewhere inside.
            let result = place.unpack_all(&[lower.tar(), attack(Layer::new()).tar()]);
            place.check_outside();
            let harmless = matches!(result, Ok(_) | Err(Error::Layer { .. }));
            assert!(harmless, "{whiteouts:?} {number}: {result:?}");
        }
    }
}

/// File capabilities make root of a program like the set-user-id bit; the others are for security modules of the host.
#[test]
fn attributes_of_security_follow_the_owner() {
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let capability = String::from_utf8(capability.to_vec()).unwrap();
    let layer = || {
        Layer::new()
            .extended("SCHILY.xattr.security.capability", &capability)
            .file("program", "")
            .extended(
                "SCHILY.xattr.security.selinux",
                "system_u:object_r:shadow_t:s0",
            )
            .file("label", "")
            .extended("SCHILY.xattr.security.ima", "x")
            .file("measured", "")
            .extended("SCHILY.xattr.system.posix_acl_access", "x")
            .file("list", "")
            .extended("SCHILY.xattr.trusted.x", "x")
            .file("trusted", "")
    };
    let mut place = EntryLocation::new(Whiteouts::Overlay);
    place.ownership = Ownership::Mine;
    assert_eq!(place.unpack(layer()).unwrap().xattrs, 5);
    let has = |place: &EntryLocation| {
        let mut value = [0; 32];
        let path = place.path("program");
        rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok()
    };
    assert!(!has(&place));
    if Ownership::of_process() == Ownership::Keep {
        let place = EntryLocation::new(Whiteouts::Overlay);
        let report = place.unpack(layer()).unwrap();
        // Some file systems have none.
        assert_eq!(report.xattrs, if has(&place) { 4 } else { 5 });
    }
}
