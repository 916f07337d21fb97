use proptest::prelude::*;

use super::*;

fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

/// Decodes `blocks` on one connection and compares with `name: value` lines.
fn check(blocks: &[(&str, &str)]) {
    let mut decoder = Decoder::new(1 << 16);
    for (block, expected) in blocks {
        let fields = decoder.decode(&unhex(block)).unwrap();
        let got: Vec<String> = fields
            .iter()
            .map(|f| {
                format!(
                    "{}: {}",
                    String::from_utf8_lossy(&f.name),
                    String::from_utf8_lossy(&f.value)
                )
            })
            .collect();
        assert_eq!(
            got.join("\n"),
            expected
                .trim()
                .lines()
                .map(str::trim)
                .collect::<Vec<_>>()
                .join("\n")
        );
    }
}

#[test]
fn requests_of_rfc_7541_c3_without_huffman() {
    check(&[
        (
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com",
        ),
        (
            "8286 84be 5808 6e6f 2d63 6163 6865",
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache",
        ),
        (
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value",
        ),
    ]);
}

#[test]
fn requests_of_rfc_7541_c4_with_huffman() {
    check(&[
        (
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com",
        ),
        (
            "8286 84be 5886 a8eb 1064 9cbf",
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache",
        ),
        (
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value",
        ),
    ]);
}

#[test]
fn bad_blocks_are_errors() {
    let cases: &[(&str, Error)] = &[
        ("80", Error::BadIndex(0)),
        ("be", Error::BadIndex(62)),
        ("41", Error::Truncated),
        ("410f77", Error::Truncated),
        ("ffffffffffff", Error::IntegerOverflow),
        ("3fe21f", Error::BadSizeUpdate),
        ("823f00", Error::BadSizeUpdate),
        ("4181ff", Error::BadHuffman),
        ("4184ffffffff", Error::BadHuffman),
    ];
    for (block, error) in cases {
        let mut decoder = Decoder::new(1 << 16);
        let result = decoder.decode(&unhex(block));

        assert_eq!(result, Err(*error), "{block}");
    }
}

#[test]
fn the_table_is_bounded_and_evicts_the_oldest() {
    let mut decoder = Decoder::new(1 << 16);
    for i in 0..1000u32 {
        let mut block = vec![0x40];
        for text in [format!("name-{i:04}"), "v".repeat(40)] {
            integer(text.len(), 7, &mut block);
            block.extend_from_slice(text.as_bytes());
        }
        decoder.decode(&block).unwrap();
        assert!(decoder.size <= DEFAULT_TABLE_SIZE);
    }
    assert_eq!(decoder.decode(&[0xbe]).unwrap()[0].name, b"name-0999");
    decoder.decode(&[0x20]).unwrap();
    assert_eq!(decoder.decode(&[0xbe]), Err(Error::BadIndex(62)));
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(fields in prop::collection::vec((".{0,300}", ".{0,300}", any::<bool>()), 0..8)) {
        let fields: Vec<Field> = fields
            .into_iter()
            .map(|(name, value, never_index)| Field { name: name.into_bytes(), value: value.into_bytes(), never_index })
            .collect();
        let mut block = Vec::new();
        encode(&fields, &mut block);
        prop_assert_eq!(Decoder::new(1 << 20).decode(&block).unwrap(), fields);
    }

    #[test]
    fn no_input_panics(block in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Decoder::new(1 << 12).decode(&block);
    }
}
