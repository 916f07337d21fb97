//! Messages of bounded length.

/// Cuts a text that has more than `limit` bytes, at a character boundary. What is left ends with `...` and has at most
/// `limit` bytes, or three if that is more.
pub fn truncate(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit.saturating_sub(3)));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let check = |text: &str, limit: usize, expected: &str| {
            assert_eq!(
                truncate(text.to_owned(), limit),
                expected,
                "{text:?} {limit}"
            );
        };
        check("", 0, "");
        check("message", 7, "message");
        check("message", 6, "mes...");
        check("aüüü", 6, "aü...");
        check("üüüü", 7, "üü...");
        check("日本", 5, "...");
        check("long", 1, "...");
    }
}
