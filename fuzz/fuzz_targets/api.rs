#![no_main]

#[path = "../api.rs"]
mod api;

use std::cell::RefCell;

use allot_apiserver::Server;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static SERVER: RefCell<Option<(Runtime, Server)>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    SERVER.with_borrow_mut(|server| {
        let (runtime, server) = server.get_or_insert_with(|| {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let server = runtime.block_on(Server::in_memory()).expect("a server");
            (runtime, server)
        });
        runtime.block_on(api::send(server, data));
    });
});
