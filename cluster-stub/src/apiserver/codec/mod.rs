//! Between bytes and objects: strict decoding against the schema, YAML, and the stored form of an object.

pub mod decode;
pub mod proto;
mod proto_wire;
pub mod scalar;
pub mod sketch;
pub mod stored;
pub mod syntax;
pub mod yaml;
