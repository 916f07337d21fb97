#![no_main]

#[allow(dead_code)]
#[path = "../parsers.rs"]
mod parsers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| parsers::driver(data));
