//! Users and groups as the container's own `/etc/passwd` and `/etc/group` have them.

use std::io::Read;
use std::path::Path;

use allot_images::openat2;
use allot_images::user::id;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{Result, StageError};
use crate::spec::staged::Account;
use crate::spec::{RootFs, Security};

/// Larger ones are not read: the file is the image's.
const LARGEST: u64 = 1 << 20;

/// Reads a file of a root directory; links cannot lead out of it.
fn read(root: &Path, path: &str) -> String {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let open = || {
        let root = std::fs::File::open(root).ok()?;
        let file = openat2(&root, path, flags, Mode::empty(), inside).ok()?;
        let file = std::fs::File::from(file);
        let regular = file.metadata().ok()?.is_file();
        let mut bytes = Vec::new();
        if regular {
            file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    // Without the file there are no names.
    open().unwrap_or_default()
}

/// Looks up the user of a container in its root directory.
///
/// # Errors
/// A name that does not exist.
pub(crate) fn find(security: &Security, root: &Path) -> Result<Account> {
    resolve(
        security,
        &read(root, "etc/passwd"),
        &read(root, "etc/group"),
    )
}

/// User and group of a container that can only have one of each. They must be known before there is a root directory,
/// so the name is looked up in the image's layers, or the copy of them.
pub(super) fn single(security: &Security, root: &RootFs) -> (u32, u32) {
    let named = || {
        let layers = root.copy.iter().chain(&root.lower);
        let mut found = layers.filter_map(|layer| find(security, layer).ok());
        found.next().map(|account| account.user)
    };
    let numeric = || {
        let name = security.user_name.as_deref()?;
        id(name.split(':').next()?)
    };
    let user = security.user.or_else(numeric).or_else(|| {
        security.user_name.as_ref()?;
        named()
    });
    (user.unwrap_or(0), security.group.unwrap_or(0))
}

fn resolve(security: &Security, passwd: &str, group: &str) -> Result<Account> {
    let users = || {
        passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
    };
    let named = security.user_name.as_deref().unwrap_or_default();
    let (name, group_name) = named.split_once(':').unwrap_or((named, ""));
    let user = match (security.user, name) {
        (Some(user), _) => user,
        (None, "") => 0,
        (None, name) => match id(name) {
            Some(user) => user,
            None => users()
                .find(|fields| fields.first() == Some(&name))
                .and_then(|fields| id(fields.get(2)?))
                .ok_or_else(|| StageError::NoUser(name.to_owned()))?,
        },
    };
    let entry = users().find(|fields| fields.get(2).copied().and_then(id) == Some(user));
    let of = |field: usize| entry.as_ref().and_then(|fields| fields.get(field).copied());
    let primary = match group_name {
        "" => of(3).and_then(id),
        name => Some(match id(name) {
            Some(group) => group,
            None => groups(group)
                .find(|(known, _, _)| *known == name)
                .map(|(_, id, _)| id)
                .ok_or_else(|| StageError::NoGroup(name.to_owned()))?,
        }),
    };
    // A user that the pod names has the group that the pod names, or else that of its entry.
    let gid = security.group.or(primary).unwrap_or(0);
    let mut all = security.groups.clone();
    if security.merge_groups
        && let Some(name) = of(0)
    {
        let member = |members: &str| members.split(',').any(|member| member == name);
        all.extend(
            groups(group)
                .filter(|(_, _, members)| member(members))
                .map(|it| it.1),
        );
    }
    all.sort_unstable();
    all.dedup();
    // The primary group is one of them unless they are named exactly (`Strict`), as in containerd: a program that changes to
    // another group would leave it, and be let into files that are closed to its members (CVE-2022-36109 of moby).
    if security.merge_groups {
        all.retain(|it| *it != gid);
        all.insert(0, gid);
    }
    Ok(Account {
        user,
        group: gid,
        groups: all,
        home: of(5)
            .filter(|it| it.starts_with('/'))
            .unwrap_or("/")
            .to_owned(),
    })
}

/// Name, id and members of every group.
fn groups(text: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = id(fields.nth(1)?)?;
        Some((name, id, fields.next().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\napp:x:100:200::/srv/app:/bin/sh\nbroken\n";
    const GROUP: &str = "root:x:0:\nweb:x:300:app,other\nadm:x:4:root\n";

    #[track_caller]
    fn check(security: Security, expected: (u32, u32, &[u32], &str)) {
        let account = resolve(&security, PASSWD, GROUP).unwrap();
        let Account {
            user,
            group,
            groups,
            home,
        } = account;
        assert_eq!((user, group, groups.as_slice(), home.as_str()), expected);
    }

    #[test]
    fn names_are_those_of_the_container() {
        let named = |name: &str| Security {
            user_name: Some(name.into()),
            merge_groups: true,
            ..Security::default()
        };
        check(named("app"), (100, 200, &[200, 300], "/srv/app"));
        check(named("app:web"), (100, 300, &[300], "/srv/app"));
        check(named("100:7"), (100, 7, &[7, 300], "/srv/app"));
        check(named("4711"), (4711, 0, &[0], "/"));
        let strict = Security {
            merge_groups: false,
            groups: vec![9, 8, 9],
            ..named("app")
        };
        check(strict, (100, 200, &[8, 9], "/srv/app"));
        let pod = Security {
            user: Some(100),
            group: Some(5),
            ..named("root")
        };
        check(pod, (100, 5, &[5, 300], "/srv/app"));
        // The attack: root by a number that means "no change".
        let passwd = "root:x:0:0::/root:/bin/sh\napp:x:4294967295:4294967295::/:/bin/sh\n";
        for name in [
            "4294967295",
            "4294967296",
            "2147483648",
            "-1",
            "+0",
            " 0",
            "app",
        ] {
            let found = resolve(&named(name), passwd, "web:x:4294967295:\n");
            assert!(found.is_err(), "{name:?}: {found:?}");
        }
        for group in ["4294967295", "-1", "web"] {
            let found = resolve(&named(&format!("7:{group}")), passwd, "web:x:4294967295:\n");
            assert!(found.is_err(), "{group:?}: {found:?}");
        }
        let missing = resolve(&named("nobody"), PASSWD, GROUP).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "unable to find user nobody: no matching entries in passwd file"
        );
        let missing = resolve(&named("app:staff"), PASSWD, GROUP).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "unable to find group staff: no matching entries in group file"
        );
    }
}
