//! Rules that many kinds share: field errors, names, labels, quantities, object metadata. Rules of one kind live with the kind.

pub mod field;
pub mod json;

pub use field::{ErrorKind, FieldError, Path};
pub use json::JsonExt;
