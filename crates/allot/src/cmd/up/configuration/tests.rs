use clap::CommandFactory as _;

use super::*;

/// The arguments that a file adds to a command line.
fn expanded(text: &str, line: &[&str]) -> Result<Vec<String>, String> {
    let mut command = crate::Cli::command();
    command.build();
    let line = ["allot", "up"].iter().chain(line);
    let matches = command.clone().get_matches_from(line);
    let up = command.find_subcommand("up").expect("up");
    let given = matches.subcommand_matches("up").expect("up");
    let flags = flags(text, up, given).map_err(|error| format!("{error:#}"))?;
    let text = |flag: OsString| flag.into_string().expect("UTF-8");
    Ok(flags.into_iter().map(text).collect())
}

#[test]
fn names_are_those_of_the_flags() {
    let text = "
nodes: 3
in-memory: true
dra: false
listen: 127.0.0.1:0
emulated-version: \"1.30\"
runtime-config: [a/v1=true, b/v1=false]
feature-gates: {A: true, B: false}
controllers: ['*', -workloads]
anonymous-auth: false
verbose: 2
";
    let expected = [
        "--anonymous-auth=false",
        "--controllers=*",
        "--controllers=-workloads",
        "--emulated-version=1.30",
        "--feature-gates=A=true",
        "--feature-gates=B=false",
        "--in-memory",
        "--listen=127.0.0.1:0",
        "--nodes=3",
        "--runtime-config=a/v1=true",
        "--runtime-config=b/v1=false",
        "--verbose=2",
    ];
    assert_eq!(expanded(text, &[]).expect("flags"), expected);
}

#[test]
fn the_command_line_wins() {
    let flags = expanded("{nodes: 3, in-memory: true}", &["--nodes", "1"]);
    assert_eq!(flags.expect("flags"), ["--in-memory"]);
    assert_eq!(expanded("", &[]).expect("flags").len(), 0);
}

#[test]
fn what_is_no_flag_is_refused() {
    for (text, expected) in [
        ("node: 3", "node: `allot up` has no flag of this name"),
        ("inMemory: true", "did you mean in-memory?"),
        ("config: other.yaml", "no flag of this name"),
        ("{nodes: 3, nodes: 4}", "duplicate"),
        ("nodes: [1, 2]", "nodes: it has one value"),
        (
            "in-memory: maybe",
            "in-memory: \"maybe\" is neither true nor false",
        ),
        ("emulated-version: 1.30", "write it in quotes"),
        ("nodes:", "no value"),
        ("runtime-config: [[a]]", "a list in a list"),
        ("- nodes", ""),
        ("nodes: {", ""),
    ] {
        let error = expanded(text, &[]).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}
