//! Layers of images: the input is an archive, compressed or not, and in its first byte how it is unpacked.
#![no_main]

use std::sync::atomic::AtomicBool;

use allot_images::unpack::{Options, Ownership, Unpacker, Whiteouts};
use allot_images::{Limits, Reference};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((first, layer)) = data.split_first() else {
        return;
    };
    // The same bytes as a name: what is accepted means the same in its full form.
    if let Some(reference) = std::str::from_utf8(layer).ok().and_then(|text| Reference::parse(text).ok()) {
        assert_eq!(Reference::parse(&reference.to_string()).ok(), Some(reference));
    }
    let Ok(directory) = tempfile::tempdir() else { return };
    let path = |name: &str| directory.path().join(name);
    for name in ["root", "trash", "outside"] {
        std::fs::create_dir(path(name)).expect("the temporary directory is writable");
    }
    std::fs::write(path("outside/file"), "untouched").expect("the temporary directory is writable");
    let limits = Limits {
        unpacked: 1 << 20,
        entries: 200,
        header: 1 << 16,
        ..Limits::default()
    };
    let options = Options {
        limits,
        ownership: Ownership::Mine,
        whiteouts: if first & 1 == 0 { Whiteouts::Overlay } else { Whiteouts::Apply },
    };
    let cancel = AtomicBool::new(false);
    let mut unpacker = Unpacker::new(&path("root"), &path("trash"), options, &cancel).expect("the directories are there");
    let _ = unpacker.layer(layer);
    let names = std::fs::read_dir(directory.path()).expect("the directory is there").count();
    assert_eq!(names, 3, "something was made or removed beside the root");
    let outside = std::fs::read_to_string(path("outside/file")).ok();
    assert_eq!(outside.as_deref(), Some("untouched"));
    assert_eq!(std::fs::read_dir(path("outside")).expect("the directory is there").count(), 1);
});
