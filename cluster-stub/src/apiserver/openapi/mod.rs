//! OpenAPI v2 and v3: the documents that `kubectl explain`, `apply` and validation read, made from the table of types
//! and the list of resources on the first request.

mod dialect;
mod documents;
mod paths;
mod protobuf;
mod schemas;

pub use documents::OpenApi;
