//! What every byte of the API server passes: connections and bodies, and the way between bytes and objects. Knows no kinds
//! but the table of their types.
//!
//! A package of its own, so that it is optimised while the rules of kinds, which run seldom, are compiled quickly.

pub mod body;
pub mod codec;
pub mod json;
pub mod listener;
pub mod request;
pub mod scan;
pub mod schema;
pub mod uuid;
