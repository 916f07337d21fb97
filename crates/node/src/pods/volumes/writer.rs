//! Replacing the files of a volume all at once, in the layout that a kubelet uses and that programs which reload their
//! configuration watch: the files are in a directory with the time as its name, `..data` links to that directory, and
//! every name that a user sees links into `..data`. Renaming `..data` changes them all.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink};
use std::path::Path;

use jiff::Timestamp;

use super::content::{Entries, Entry};
use super::{GROUP, VolumeError, give, inside, make_dir};
use crate::error::{AtPath as _, PathError};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Replaces the content of the volume at `root` by `files`; unchanged content is not touched. `group`: the files are given to
/// it before they are seen. A failed write leaves the volume as it was.
pub(super) fn write(root: &Path, files: &Entries, group: Option<u32>) -> Result<(), VolumeError> {
    for name in files.keys() {
        inside(name)?;
        // Such names are the layout's own.
        if name.starts_with("..") {
            return Err(VolumeError::ReservedPath(name.clone()));
        }
    }
    if !is_current(root, files, group) {
        let stamp = Timestamp::now()
            .strftime("..%Y_%m_%d_%H_%M_%S.%N")
            .to_string();
        let directory = root.join(&stamp);
        let written = fill(&directory, files, group)
            .and_then(|()| replace_link(root, NEW_DATA, &stamp, DATA).at(root));
        if let Err(problem) = written {
            for path in [&directory, &root.join(NEW_DATA)] {
                remove(path).unwrap_or_else(|error| {
                    tracing::warn!(path = %path.display(), %error, "an incomplete write was not removed");
                });
            }
            return Err(problem.into());
        }
    }
    let wanted: BTreeSet<&str> = files.keys().map(|name| first(name)).collect();
    for name in &wanted {
        let link = root.join(name);
        let target = format!("{DATA}/{name}");
        if fs::read_link(&link).is_ok_and(|found| found == Path::new(&target)) {
            continue;
        }
        remove(&link).at(root)?;
        symlink(&target, &link).at(root)?;
    }
    // Also what an agent left that ended during a write.
    let current = fs::read_link(root.join(DATA)).at(root)?;
    for entry in fs::read_dir(root).at(root)?.flatten() {
        let name = entry.file_name();
        let keep = name == DATA
            || current.as_os_str() == name
            || name.to_str().is_some_and(|name| wanted.contains(name));
        if !keep {
            remove(&entry.path()).at(root)?;
        }
    }
    Ok(())
}

/// Writes all files into a new directory.
fn fill(directory: &Path, files: &Entries, group: Option<u32>) -> Result<(), PathError> {
    make_dir(directory, 0o755)?;
    for (name, entry) in files {
        let file = directory.join(name);
        if let Some(parent) = file.parent() {
            make_dir(parent, 0o755)?;
        }
        create(&file, entry).at(&file)?;
    }
    give(directory, group, true)
}

/// The part of a path that is visible in the volume's root.
fn first(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

fn create(path: &Path, entry: &Entry) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create_new(true).mode(entry.mode);
    let mut file = options.open(path)?;
    io::Write::write_all(&mut file, &entry.content)?;
    if entry.user.is_some() {
        fchown(&file, entry.user, None)?;
    }
    // Independent of the agent's umask.
    file.set_permissions(fs::Permissions::from_mode(entry.mode))
}

fn replace_link(root: &Path, temporary: &str, target: &str, name: &str) -> io::Result<()> {
    let temporary = root.join(temporary);
    remove(&temporary)?;
    symlink(target, &temporary)?;
    fs::rename(temporary, root.join(name))
}

/// Removes a file or directory of any type; it need not exist.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => allot_images::remove_tree(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Whether the volume holds exactly these files, of this group.
fn is_current(root: &Path, files: &Entries, group: Option<u32>) -> bool {
    let data = root.join(DATA);
    let same = files.iter().all(|(name, entry)| {
        let path = data.join(name);
        let found = fs::read(&path).is_ok_and(|found| found == entry.content);
        let mode = group.map_or(entry.mode, |_| entry.mode | GROUP.1);
        found
            && fs::metadata(&path).is_ok_and(|found| {
                let fits = group.is_none_or(|group| group == found.gid())
                    && entry.user.is_none_or(|user| user == found.uid());
                fits && found.permissions().mode() & 0o777 == mode
            })
    });
    same && count(&data).is_ok_and(|found| found == files.len())
}

fn count(directory: &Path) -> io::Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files += match entry.file_type()?.is_dir() {
            true => count(&entry.path())?,
            false => 1,
        };
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(of: &[(&str, &str, u32)]) -> Entries {
        let files = of.iter();
        let entry = |(name, content, mode): &(&str, &str, u32)| {
            let entry = Entry {
                content: content.as_bytes().to_vec(),
                mode: *mode,
                user: None,
            };
            ((*name).to_owned(), entry)
        };
        files.map(entry).collect()
    }

    /// The names in the root without the layout's own, and what a reader finds.
    fn check(root: &Path, of: &[(&str, &str, u32)]) {
        write(root, &files(of), None).expect("written");
        for (name, content, mode) in of {
            let path = root.join(name);
            assert_eq!(fs::read_to_string(&path).expect("a file"), *content);
            let found = fs::metadata(&path).expect("a file").permissions().mode();
            assert_eq!(found & 0o777, *mode, "{name}");
        }
        let names = fs::read_dir(root).expect("a directory").flatten();
        let names: BTreeSet<_> = names
            .map(|entry| entry.file_name().into_string().expect("UTF-8"))
            .collect();
        let visible: BTreeSet<_> = of.iter().map(|(name, ..)| first(name).to_owned()).collect();
        let own = names.difference(&visible).count();
        assert_eq!(own, 2, "..data and one directory: {names:?}");
    }

    #[test]
    fn the_files_are_replaced_all_at_once() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        check(root, &[("a", "1", 0o644), ("sub/b", "2", 0o400)]);
        let data = fs::read_link(root.join(DATA)).expect("a link");
        check(root, &[("a", "1", 0o644), ("sub/b", "2", 0o400)]);
        let same = fs::read_link(root.join(DATA)).expect("a link");
        assert_eq!(data, same, "nothing changed, nothing is written");
        check(root, &[("a", "3", 0o644), ("c", "4", 0o600)]);
        check(root, &[("a", "3", 0o600), ("c", "4", 0o600)]);
        check(root, &[]);
    }

    #[test]
    fn plain_files_of_an_earlier_release_become_links() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        fs::create_dir(root.join("sub")).expect("made");
        fs::write(root.join("sub/b"), "old").expect("written");
        fs::write(root.join("a"), "old").expect("written");
        check(root, &[("a", "1", 0o644), ("sub/b", "2", 0o644)]);
    }

    /// A failed write left its directory, once a minute.
    #[test]
    fn regression_a_failed_write_leaves_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        check(root, &[("a", "1", 0o644)]);
        let names = || {
            let names = fs::read_dir(root).expect("a directory").flatten();
            let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        // A file cannot be a directory as well, and a name can only be so long.
        let long = "x".repeat(300);
        for name in ["a/b", long.as_str()] {
            let all = files(&[("a", "2", 0o644), (name, "3", 0o644)]);
            write(root, &all, None).expect_err(name);
            assert_eq!(names(), before, "{name}");
            assert_eq!(fs::read_to_string(root.join("a")).expect("a file"), "1");
        }
        // What an agent leaves that is killed goes with the next look, also when nothing has changed.
        fs::create_dir(root.join("..2020_01_01_00_00_00.1")).expect("a directory");
        symlink("nowhere", root.join(NEW_DATA)).expect("a link");
        check(root, &[("a", "1", 0o644)]);
        assert_eq!(names(), before);
    }

    /// Files of a group were written again with every look, and were without their group for a moment.
    #[test]
    fn regression_files_of_a_group_are_written_once() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root");
            return;
        }
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        let all = files(&[("a", "1", 0o400), ("sub/b", "2", 0o600)]);
        write(root, &all, Some(1234)).expect("written");
        let data = fs::read_link(root.join(DATA)).expect("a link");
        write(root, &all, Some(1234)).expect("written");
        assert_eq!(fs::read_link(root.join(DATA)).expect("a link"), data);
        for (name, mode) in [("a", 0o440), ("sub/b", 0o640)] {
            let found = fs::metadata(root.join(name)).expect("a file");
            assert_eq!((found.gid(), found.mode() & 0o777), (1234, mode), "{name}");
        }
        write(root, &all, Some(77)).expect("written");
        assert_eq!(fs::metadata(root.join("a")).expect("a file").gid(), 77);
    }

    /// The attack: any user in a container read a token that is for one of them.
    #[test]
    fn tokens_are_for_the_user_of_the_pod() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root");
            return;
        }
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        let mut all = files(&[("token", "1", 0o600)]);
        let found = || {
            let found = fs::metadata(root.join("token")).expect("a file");
            (found.uid(), found.gid(), found.mode() & 0o777)
        };
        for (user, group, mode) in [
            (None, None, 0o600),
            (Some(7), None, 0o600),
            (Some(7), Some(8), 0o640),
        ] {
            all.values_mut().for_each(|entry| entry.user = user);
            write(root, &all, group).expect("written");
            assert_eq!(found(), (user.unwrap_or(0), group.unwrap_or(0), mode));
        }
        let data = fs::read_link(root.join(DATA)).expect("a link");
        write(root, &all, Some(8)).expect("written");
        assert_eq!(fs::read_link(root.join(DATA)).expect("a link"), data);
    }

    #[test]
    fn paths_stay_inside() {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["../x", "/x", "", "a/../../x", "..data", "..x/y"] {
            let written = write(root.path(), &files(&[(name, "", 0o644)]), None);
            assert!(written.is_err(), "{name:?}");
        }
    }
}
