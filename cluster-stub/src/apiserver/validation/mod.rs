//! Rules that many kinds share: field errors, names, labels, quantities, object metadata. Rules of one kind live with the kind.

pub mod field;
pub mod ip;
pub mod labels;
pub mod meta;
pub mod names;

pub use cluster_stub_base::quantity::{self, Quantity, QuantityError};
pub use cluster_stub_wire::json;
pub use field::{ErrorKind, FieldError, Path, go_json, go_struct};
pub use json::JsonExt;
