//! Whole cycles.
#![no_main]

#[path = "../src/cycle.rs"]
mod cycle;
#[path = "../src/odd.rs"]
mod odd;

libfuzzer_sys::fuzz_target!(|data: &[u8]| cycle::run(data));
