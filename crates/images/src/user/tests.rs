use super::*;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\nbroken\nbig:x:4294967295:0::/:\n";
const GROUP: &str = "root:x:0:\nusers:x:100:app,other\nwheel:x:10:other,app\nstaff:x:50:\n";

#[test]
fn users_are_found_by_name_and_number() {
    let check = |text: &str, expected: Option<(u32, u32, &[u32])>| {
        let found = lookup(text, PASSWD, GROUP);
        let found = found.ok().map(|user| (user.uid, user.gid, user.groups));
        let expected = expected.map(|(uid, gid, groups)| (uid, gid, groups.to_vec()));
        assert_eq!(found, expected, "{text}");
    };
    check("", Some((0, 0, &[])));
    check("root", Some((0, 0, &[])));
    check("app", Some((1000, 1001, &[10, 100])));
    check("1000", Some((1000, 1001, &[10, 100])));
    check("app:staff", Some((1000, 50, &[10, 100])));
    check("app:7", Some((1000, 7, &[10, 100])));
    check("4242", Some((4242, 0, &[])));
    check("4242:4343", Some((4242, 4343, &[])));
    check(":staff", Some((0, 50, &[])));
    check("nobody", None);
    check("app:nobody", None);
    check("big", None);
    check("4294967295", None);
    check("-1", None);
    assert_eq!(
        lookup("app", PASSWD, GROUP).unwrap().home.as_deref(),
        Some("/home/app")
    );
}

#[test]
fn files_of_the_image_are_read_without_leaving_it() {
    use std::os::unix::fs::symlink;
    let directory = tempfile::tempdir().unwrap();
    let outside = directory.path().join("passwd");
    std::fs::write(&outside, "evil:x:7:7::/:\n").unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("etc")).unwrap();
    symlink(&outside, root.join("etc/passwd")).unwrap();
    assert!(resolve(&[root.as_path()], "evil").is_err());
    symlink("../../passwd", root.join("etc/group")).unwrap();
    assert!(resolve(&[root.as_path()], "0:evil").is_err());
    // A link within the image is followed, a FIFO is not waited for.
    std::fs::write(root.join("real"), PASSWD).unwrap();
    std::fs::remove_file(root.join("etc/passwd")).unwrap();
    symlink("/real", root.join("etc/passwd")).unwrap();
    std::fs::remove_file(root.join("etc/group")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("etc/group"),
        rustix::fs::FileType::Fifo,
        Mode::RUSR,
        0,
    )
    .unwrap();
    assert_eq!(resolve(&[root.as_path()], "app").unwrap().uid, 1000);
    assert!(resolve(&[directory.path().join("none").as_path()], "0").is_err());
}
