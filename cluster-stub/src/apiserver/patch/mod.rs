//! The patch formats as functions from an object and a patch to an object. No storage, no HTTP.

pub mod json_patch;
pub mod merge;
pub mod strategic;

/// Why a patch cannot be read or applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed.
    #[error("{0}")]
    Malformed(String),
    /// It has too many operations.
    #[error("the allowed maximum operations in a JSON patch is 10000, got {0}")]
    TooMany(usize),
    /// An operation does not fit the object.
    #[error("{0}")]
    Operation(String),
    /// A strategic merge patch does not fit the object or the type.
    #[error("{0}")]
    Strategic(String),
}
