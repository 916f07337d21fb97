//! What bounds a layer: sizes, counts, and the wish of its caller to stop.

use super::*;

#[test]
fn sizes_and_counts_are_bounded() {
    let check = |change: fn(&mut Limits), layer: Layer| {
        let mut place = EntryLocation::new(Whiteouts::Overlay);
        change(&mut place.limits);
        place.unpack_all(&[gzip(&layer.tar())]).unwrap_err()
    };
    let zeros = "\0".repeat(1 << 20);
    let many = (0..50).fold(Layer::new(), |layer, index| {
        layer.file(&index.to_string(), "")
    });
    // Links take each entry deeper than its path is long.
    let deep = (0..10).fold(Layer::new().directory("d"), |layer, index| {
        let from = if index == 0 {
            "d".to_owned()
        } else {
            format!("s{}", index - 1)
        };
        let target = (0..index).fold("/d".to_owned(), |path, _| path + "/x/x") + "/x/x";
        layer
            .directory(&format!("{from}/x/x"))
            .symlink(&format!("s{index}"), &target)
    });
    let errors = [
        check(
            |limits| limits.unpacked = 1 << 19,
            Layer::new().file("a", &zeros),
        ),
        check(|limits| limits.entries = 49, many),
        check(
            |limits| limits.header = 1 << 16,
            Layer::new().extended("comment", &zeros).file("a", ""),
        ),
        check(
            |limits| limits.header = 1 << 16,
            Layer::new().entry(b'L', "././@LongLink", "", 0, zeros.as_bytes()),
        ),
        check(|limits| limits.depth = 15, deep),
    ];
    for error in errors {
        assert!(matches!(error, Error::TooLarge(_)), "{error:?}");
    }
    let attributes = (0..3).map(|index| format!("30 SCHILY.xattr.user.a{index}=12345\n"));
    let attributes: String = attributes.collect();
    let layer = || {
        Layer::new()
            .entry(b'x', "p", "", 0, attributes.as_bytes())
            .file("a", "")
    };
    let error = check(|limits| limits.xattrs = 2, layer());
    assert!(matches!(error, Error::Layer { .. }), "{error:?}");
    let error = check(|limits| limits.xattr_bytes = 20, layer());
    assert!(matches!(error, Error::Layer { .. }), "{error:?}");
}

#[test]
fn bytes_after_the_archive_count() {
    let place = EntryLocation::new(Whiteouts::Overlay);
    let mut plain = Layer::new().file("a", "").tar();
    plain.extend([7; 5000]);
    let report = place.unpack_all(&[gzip(&plain)]).unwrap();
    assert_eq!(report.diff_id, Some(Digest::of(&plain)));
}

#[test]
fn a_cancelled_layer_ends() {
    let place = EntryLocation::new(Whiteouts::Overlay);
    let cancel = AtomicBool::new(true);
    let options = Options {
        limits: Limits::default(),
        ownership: place.ownership,
        whiteouts: place.whiteouts,
    };
    let trash = place.directory.path().join("trash");
    let mut unpacker = Unpacker::new(&place.path(""), &trash, options, &cancel).unwrap();
    let error = unpacker
        .layer(Layer::new().file("a", "").tar().as_slice())
        .unwrap_err();
    assert!(matches!(error, Error::Cancelled));
}

/// An input that cancels the unpacking after some bytes.
struct StopsAfter<'a>(&'a [u8], usize, &'a AtomicBool);

impl Read for StopsAfter<'_> {
    fn read(&mut self, output: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(output)?;
        self.1 = self.1.saturating_sub(read);
        self.2.fetch_or(self.1 == 0, Ordering::Relaxed);
        Ok(read)
    }
}

/// The attack: a layer of many compressed parts without content. Unpacking it could not be stopped.
#[test]
fn a_layer_without_content_can_be_cancelled() {
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], &[7; 4]].concat();
    for part in [gzip(b""), skippable] {
        let input = part.repeat(4 << 20 >> 4);
        let place = EntryLocation::new(Whiteouts::Overlay);
        let cancel = AtomicBool::new(false);
        let options = Options {
            limits: Limits::default(),
            ownership: place.ownership,
            whiteouts: place.whiteouts,
        };
        let trash = place.directory.path().join("trash");
        let mut unpacker = Unpacker::new(&place.path(""), &trash, options, &cancel).unwrap();
        let input = StopsAfter(&input, 200_000, &cancel);
        let error = unpacker.layer(input).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error:?}");
    }
}
