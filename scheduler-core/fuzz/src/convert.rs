//! The body of the target `convert`: bytes that are JSON are read as an API object; other bytes spoil a sound one.

use super::odd::{Reader, object, parsed};

pub(crate) fn run(data: &[u8]) {
    match serde_json::from_slice(data) {
        Ok(value) => drop(parsed(&value)),
        Err(_) => drop(object(&mut Reader::new(data))),
    }
}
