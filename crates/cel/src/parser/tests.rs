use proptest::prelude::*;

use super::*;
use crate::source::Source;

/// The issues of an expression as they are printed, without the lines that show the place.
fn issues(source: &str) -> Vec<String> {
    let (_, issues) = parse(source, true);
    let text = Source::new(source).render(&issues);
    text.lines()
        .filter_map(|line| line.strip_prefix("ERROR: <input>:"))
        .map(str::to_owned)
        .collect()
}

fn check(source: &str, expected: &[&str]) {
    assert_eq!(issues(source), expected, "{source}");
}

const START: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

#[test]
fn reads_the_whole_grammar() {
    for source in [
        "a.b.c[0][?1].?d.e(1, 2)",
        "!a && !!b || -c < - 1 + 2 * 3 % 4 / 5 - 6",
        "a ? b : c ? d : e",
        "[1, ?a, 2,]",
        "{1: 2, ?'a': b,}",
        "google.protobuf.X{a: 1, ?b: 2,}",
        ".a.b(.c)",
        "0x1F == 31 && 1u == 0xAu && 1e3 == .5 && 1.5E-3 > 2.0",
        r#"'a' + "b" + '''c''' + """d""" + r'\e' + b'f' + br"g" + '\x41\u0042\U00000043\103\n\`'"#,
        "a // comment\n&& b",
    ] {
        check(source, &[]);
    }
}

#[test]
fn syntax_errors_are_upstreams() {
    check(
        "1 +",
        &[&format!(
            "1:4: Syntax error: mismatched input '<EOF>' expecting {START}"
        )],
    );
    check(
        "a == == b",
        &[&format!(
            "1:6: Syntax error: extraneous input '==' expecting {START}"
        )],
    );
    check("(1", &["1:3: Syntax error: missing ')' at '<EOF>'"]);
    check(
        "a b",
        &["1:3: Syntax error: extraneous input 'b' expecting <EOF>"],
    );
    check(
        "a.",
        &["1:3: Syntax error: no viable alternative at input '.'"],
    );
    check(
        "a.true",
        &["1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER"],
    );
    check(
        "[1,,2]",
        &["1:4: Syntax error: mismatched input ',' expecting ']'"],
    );
    check(
        "{1",
        &["1:3: Syntax error: mismatched input '<EOF>' expecting ':'"],
    );
    check(
        "-",
        &[
            "1:2: Syntax error: no viable alternative at input '-'",
            &format!("1:2: Syntax error: mismatched input '<EOF>' expecting {START}"),
        ],
    );
    check(
        "a = 1",
        &[
            "1:3: Syntax error: token recognition error at: '= '",
            "1:5: Syntax error: extraneous input '1' expecting <EOF>",
        ],
    );
}

#[test]
fn other_errors_are_upstreams() {
    check("for", &["1:1: reserved identifier: for"]);
    check("9223372036854775808", &["1:1: invalid int literal"]);
    check("has(a)", &["1:5: invalid argument to has() macro"]);
    check(
        "[1].all(x.y, true)",
        &["1:10: argument must be a simple name"],
    );
    check("[1].map(1, 2)", &["1:9: argument is not an identifier"]);
    check("[1].all(x, x, true)", &["1:12: duplicate variable name: x"]);
    let deep = format!("{}1{}", "(".repeat(300), ")".repeat(300));
    assert!(issues(&deep)[0].contains("expression recursion limit exceeded: 250"));
}

#[test]
fn shows_the_place_with_a_caret() {
    let source = "'ä' ==\t== 1";
    let (_, issues) = parse(source, true);
    let text = Source::new(source).render(&issues);
    assert!(text.ends_with("\n | 'ä' == == 1\n | .．.....^"), "{text}");
}

proptest! {
    #[test]
    fn never_panics(source in "\\PC{0,60}") {
        let _ = parse(&source, true);
    }

    #[test]
    fn never_panics_on_tokens(words in prop::collection::vec(prop::sample::select(vec![
        "a", ".", "(", ")", "[", "]", "{", "}", ",", ":", "?", "!", "-", "+", "*", "==", "<", "&&", "||", "in", "1",
        "'x'", "true", "has", "all", "map", "optMap", "cel.bind", "sortBy", "x", " ",
    ]), 0..40)) {
        let _ = parse(&words.concat(), true);
    }
}
