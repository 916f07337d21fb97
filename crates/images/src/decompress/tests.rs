use std::io::Read as _;

use super::decompress;
use crate::fixtures::{gzip, zstd};

fn plain(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    decompress(packed)?.read_to_end(&mut content)?;
    Ok(content)
}

#[test]
fn every_form_is_recognised_also_in_parts() {
    let content: Vec<u8> = (0..100_000u32)
        .flat_map(|number| (number % 251).to_le_bytes())
        .collect();
    assert_eq!(plain(&content).unwrap(), content);
    assert_eq!(plain(&gzip(&content)).unwrap(), content);
    assert_eq!(plain(&zstd(&content)).unwrap(), content);
    let twice = [content.clone(), content.clone()].concat();
    assert_eq!(
        plain(&[gzip(&content), gzip(&content)].concat()).unwrap(),
        twice
    );
    let skipped = [
        &[0x52, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..],
        &zstd(&content),
        &[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0],
        &zstd(&content),
    ];
    assert_eq!(plain(&skipped.concat()).unwrap(), twice);
    assert_eq!(plain(b"").unwrap(), b"");
}

#[test]
fn what_ends_early_is_an_error() {
    let content = vec![7; 100_000];
    for packed in [gzip(&content), zstd(&content)] {
        assert!(plain(&packed[..packed.len() / 2]).is_err());
    }
    assert!(plain(&[0x50, 0x2a, 0x4d, 0x18, 9, 0, 0, 0, 1]).is_err());
}
