//! Between bytes and objects: strict decoding against the schema, YAML, and the stored form of an object.

pub mod proto;
mod proto_wire;
pub mod yaml;

pub use cluster_stub_wire::codec::{binding, decode, scalar, sketch, stencil, stored, syntax};
