//! Parsers of untrusted input, on the seeds of `fuzz/` and on mutations of them: the entry points of the fuzz targets,
//! without libFuzzer. `fuzz/run TARGET SECONDS` runs longer.

#[path = "../../../fuzz/parsers.rs"]
mod parsers;

#[path = "../../../fuzz/api.rs"]
mod api;

#[path = "../../../fuzz/entry.rs"]
mod entry;

use allot_testing::fuzz::run;

macro_rules! targets {
    ($from:ident: $($target:ident),* $(,)?) => {
        $(
            #[test]
            fn $target() {
                run(stringify!($target), $from::$target);
            }
        )*
    };
}

targets!(
    parsers: cdi, certificate, checkpoint, credentials, driver, hpack, layer, manifest, patch, protobuf, record, request, selector, spdy, token,
    websocket, yaml,
);

targets!(entry: allocator, cel, quantity);

/// Requests to a server in memory.
#[test]
fn requests() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let server = runtime.block_on(allot_apiserver::Server::in_memory());
    let server = server.expect("a server");
    run("api", |data| runtime.block_on(api::send(&server, data)));
}

/// Whatever has a target has seeds and can be run by name.
#[test]
fn every_target_has_a_binary() {
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    let script = include_str!("../../../fuzz/run");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
    for seeds in std::fs::read_dir(folder).expect("fuzz/seeds") {
        let name = seeds.expect("an entry").file_name();
        let name = name.to_string_lossy();
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        assert!(script.contains(&*name), "{name}");
    }
}
