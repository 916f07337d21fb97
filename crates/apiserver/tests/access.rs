//! Access rules: the tables in `tests/access`, one rule per line, each checked against a server.
//!
//! A line is `actor | verb resource target | body | code | reason`. The target is `namespace/name`, a name, or a namespace
//! for a collection; a query may follow. The body is merged into what the actor would ordinarily send (see [`Cluster::body`]), and
//! `$(name)` in it is the UID of the object of that name. The reason is part of the message. Nothing is stored: all writes are dry runs.

#[path = "access/cluster.rs"]
mod cluster;
#[path = "access/objects.rs"]
mod objects;

use cluster::Cluster;

/// A line of a table.
struct Row<'a> {
    line: usize,
    actor: &'a str,
    request: &'a str,
    body: &'a str,
    code: u16,
    reason: &'a str,
}

fn rows(table: &str) -> Vec<Row<'_>> {
    let lines = table.lines().enumerate();
    let lines = lines.filter(|(_, text)| !text.trim().is_empty() && !text.starts_with('#'));
    lines
        .map(|(at, text)| {
            let cells: Vec<&str> = text.split('|').map(str::trim).collect();
            let [actor, request, body, code, reason] = cells[..] else {
                panic!("line {}: not five cells: {text}", at + 1);
            };
            Row {
                line: at + 1,
                actor,
                request,
                body,
                code: code.parse().expect("a code"),
                reason,
            }
        })
        .collect()
}

fn table(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/access/");
    std::fs::read_to_string(format!("{folder}{name}")).expect("a table")
}

async fn check(name: &str) {
    let cluster = Cluster::start().await;
    let mut wrong = Vec::new();
    let table = table(name);
    for row in rows(&table) {
        let (code, message) = cluster.send_as(row.actor, row.request, row.body).await;
        if code == row.code && message.contains(row.reason) {
            println!(
                "{}: {} {} {} {}",
                row.actor, row.request, row.body, row.code, row.reason
            );
        } else {
            wrong.push(format!(
                "{name}:{}: {} | {} | {}\n  is {code} {message}\n  not {} {}",
                row.line, row.actor, row.request, row.body, row.code, row.reason
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} lines do not hold:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

macro_rules! tables {
    ($($test:ident: $file:literal,)*) => {
        const TABLES: &[&str] = &[$($file),*];
        $(
            #[tokio::test]
            async fn $test() {
                check($file).await;
            }
        )*
    };
}

tables! {
    nodes_read_what_their_pods_need: "node-reads.txt",
    nodes_use_the_rest_of_the_api_as_all_nodes_do: "node-rules.txt",
    mirror_pods_name_nothing: "node-pods.txt",
    nodes_write_what_is_theirs: "node-writes.txt",
    nodes_get_tokens_for_their_pods: "node-tokens.txt",
    tenants_have_their_namespace: "tenants.txt",
    writes_are_about_the_object_that_they_name: "identity.txt",
    other_kinds_have_their_rules: "kinds.txt",
}

#[test]
fn the_tables_are_large() {
    let all: usize = TABLES.iter().map(|name| rows(&table(name)).len()).sum();
    assert!(all >= 1700, "{all} lines");
}
