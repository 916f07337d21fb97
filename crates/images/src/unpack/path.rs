//! Paths of entries, before the file system sees them.

/// Longest path and longest target of a link.
pub(super) const MAX_PATH: usize = 4095;
const MAX_NAME: usize = 255;
const WHITEOUT: &[u8] = b".wh.";
const META: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The location of an entry's path. Parents are components from the root.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryLocation {
    /// The root itself.
    Root,
    /// A file, a directory or a link.
    Entry(Vec<Vec<u8>>, Vec<u8>),
    /// A name of lower layers that is to be hidden.
    Whiteout(Vec<Vec<u8>>, Vec<u8>),
    /// A directory whose contents in lower layers are to be hidden.
    Opaque(Vec<Vec<u8>>),
    /// Notes that AUFS left in archives.
    Ignored,
}

/// Splits a path. Leading slashes are dropped, as everywhere with tar; `..` is rejected, also if it would not leave the
/// root, since programs disagree on its meaning next to links.
pub(super) fn place(path: &[u8]) -> Result<EntryLocation, &'static str> {
    if path.len() > MAX_PATH {
        return Err("the path is too long");
    }
    if path.contains(&0) {
        return Err("the path has a NUL byte");
    }
    let mut components: Vec<Vec<u8>> = Vec::new();
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err("the path leaves the root"),
            long if long.len() > MAX_NAME => return Err("a name in the path is too long"),
            name => components.push(name.to_vec()),
        }
    }
    let Some(last) = components.pop() else {
        return Ok(EntryLocation::Root);
    };
    if components.iter().any(|name| name.starts_with(META)) {
        return Ok(EntryLocation::Ignored);
    }
    if components.iter().any(|name| name.starts_with(WHITEOUT)) {
        return Err("the path goes through a whiteout");
    }
    if last == OPAQUE {
        return Ok(EntryLocation::Opaque(components));
    }
    if last.starts_with(META) {
        return Ok(EntryLocation::Ignored);
    }
    match last.strip_prefix(WHITEOUT) {
        None => Ok(EntryLocation::Entry(components, last)),
        Some(b"" | b"." | b"..") => Err("a whiteout of no file"),
        Some(hidden) => Ok(EntryLocation::Whiteout(components, hidden.to_vec())),
    }
}

/// A path for messages.
pub(super) fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(&path[..path.len().min(200)]);
    text.chars().flat_map(char::escape_debug).collect()
}
