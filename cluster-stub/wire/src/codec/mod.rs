//! Between bytes and objects: strict decoding against the schema, and the stored form of an object.

pub mod binding;
pub mod decode;
pub mod scalar;
pub mod sketch;
pub mod stencil;
pub mod stored;
pub mod syntax;
