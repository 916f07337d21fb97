//! Random layers and random bytes: nothing outside of the root changes.

use proptest::prelude::*;

use super::*;

fn entries() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec![
        "a",
        "b",
        "a/b",
        "b/a",
        "a/b/c",
        "/a",
        "../a",
        "a/..",
        ".wh.a",
        "a/.wh.b",
        ".wh..wh..opq",
        ".wh..",
        ".wh...",
        "./",
        "a/",
        "/",
        "outside/file",
    ]);
    let target = prop::sample::select(vec![
        "a",
        "b",
        "a/b",
        "/",
        "..",
        "../outside",
        "../outside/file",
        "/a",
        ".",
        "b/../..",
        "",
    ]);
    let kind = prop::sample::select(b"0123456LKxgSQ7".to_vec());
    let entry = (
        kind,
        name,
        target,
        0u32..0o10000,
        prop::collection::vec(any::<u8>(), 0..40),
    );
    prop::collection::vec(entry, 0..12).prop_map(|entries| {
        let layer = entries.into_iter().fold(
            Layer::new(),
            |layer, (kind, name, target, mode, content)| {
                let content = if matches!(kind, b'0' | b'L' | b'K' | b'x' | b'g') {
                    content
                } else {
                    Vec::new()
                };
                layer.entry(kind, name, target, mode, &content)
            },
        );
        layer.tar()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever entries say, nothing beside the root changes.
    #[test]
    fn layers_stay_in_their_root(layers in prop::collection::vec(entries(), 1..3), apply: bool) {
        let place = EntryLocation::new(if apply { Whiteouts::Apply } else { Whiteouts::Overlay });
        let _ = place.unpack_all(&layers);
        place.check_outside();
    }

    /// Bytes that are no archive give an error or nothing.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..3000), magic in 0..4usize) {
        let start: &[u8] = [&[][..], &[0x1f, 0x8b, 8, 0], &[0x28, 0xb5, 0x2f, 0xfd], &[0x50, 0x2a, 0x4d, 0x18]][magic];
        let place = EntryLocation::new(Whiteouts::Apply);
        let _ = place.unpack_all(&[[start, &bytes].concat()]);
        place.check_outside();
    }
}
