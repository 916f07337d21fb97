//! Replacing the files of a volume all at once, in the layout that a kubelet uses and that programs which reload their
//! configuration watch: the files are in a directory with the time as its name, `..data` links to that directory, and
//! every name that a user sees links into `..data`. Renaming `..data` changes them all.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use jiff::Timestamp;

use super::super::env::Problem;
use super::content::Entries;
use super::{inside, make_dir};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Replaces the content of the volume at `root` by `files`; unchanged content is not touched.
pub(super) fn write(root: &Path, files: &Entries) -> Result<(), Problem> {
    for name in files.keys() {
        inside(name)?;
        // Such names are the layout's own.
        if name.starts_with("..") {
            return Err(format!("invalid path {name:?}: must not start with \"..\""));
        }
    }
    let fail = |error: io::Error| format!("{}: {error}", root.display());
    if is_current(root, files) {
        return Ok(());
    }
    let stamp = Timestamp::now().strftime("..%Y_%m_%d_%H_%M_%S.%N");
    let stamp = stamp.to_string();
    let directory = root.join(&stamp);
    make_dir(&directory, 0o755)?;
    for (name, (content, mode)) in files {
        let file = directory.join(name);
        if let Some(parent) = file.parent() {
            make_dir(parent, 0o755)?;
        }
        create(&file, content, *mode).map_err(fail)?;
    }
    replace_link(root, NEW_DATA, &stamp, DATA).map_err(fail)?;
    let wanted: BTreeSet<&str> = files.keys().map(|name| first(name)).collect();
    for name in &wanted {
        let link = root.join(name);
        let target = format!("{DATA}/{name}");
        if fs::read_link(&link).is_ok_and(|found| found == Path::new(&target)) {
            continue;
        }
        remove(&link).map_err(fail)?;
        symlink(&target, &link).map_err(fail)?;
    }
    // Remains of an interrupted write are removed as well.
    for entry in fs::read_dir(root).map_err(fail)?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let keep = name == DATA || *name == stamp || wanted.contains(&*name);
        if !keep {
            remove(&entry.path()).map_err(fail)?;
        }
    }
    Ok(())
}

/// The part of a path that is visible in the volume's root.
fn first(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    io::Write::write_all(&mut file, content)?;
    // Independent of the agent's umask.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
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

/// Whether the volume holds exactly these files, each under its name.
fn is_current(root: &Path, files: &Entries) -> bool {
    let data = root.join(DATA);
    let same = files.iter().all(|(name, (content, mode))| {
        let path = data.join(name);
        let found = fs::read(&path).is_ok_and(|found| found == *content);
        let linked = fs::read_link(root.join(first(name))).is_ok();
        let permissions = fs::metadata(&path).map(|found| found.permissions().mode() & 0o777);
        found && linked && permissions.is_ok_and(|found| found == *mode)
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
            let content = content.as_bytes().to_vec();
            ((*name).to_owned(), (content, *mode))
        };
        files.map(entry).collect()
    }

    /// The names in the root without the layout's own, and what a reader finds.
    fn check(root: &Path, of: &[(&str, &str, u32)]) {
        write(root, &files(of)).expect("written");
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

    #[test]
    fn paths_stay_inside() {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["../x", "/x", "", "a/../../x", "..data", "..x/y"] {
            let written = write(root.path(), &files(&[(name, "", 0o644)]));
            assert!(written.is_err(), "{name:?}");
        }
    }
}
