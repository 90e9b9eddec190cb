//! The HTTP face of the API server: the filter chain around every request. Knows no kinds and no storage.

mod body;

pub use body::{Body, BoxError};
