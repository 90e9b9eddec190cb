//! Label and field selectors of lists, watches and collection deletes: parsing with upstream's errors, and matching.

pub mod field;
pub mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
