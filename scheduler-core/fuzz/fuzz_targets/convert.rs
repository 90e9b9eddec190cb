//! API objects into the model.
#![no_main]

#[path = "../src/convert.rs"]
mod convert;
#[path = "../src/odd.rs"]
mod odd;

libfuzzer_sys::fuzz_target!(|data: &[u8]| convert::run(data));
