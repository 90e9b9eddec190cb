//! Custom resources: the schema of a CustomResourceDefinition and what the server does with it (defaults, pruning, validation, rules,
//! columns, documents), and the loop that serves what is defined. The definition as an object of its own lives with the resources.

mod controller;
mod defaults;
mod document;
mod formats;
mod json_path;
mod prune;
mod resource;
mod rules;
mod structural;
mod typed;
mod validate;

pub use controller::CustomResources;
pub use json_path::JsonPath;
pub use resource::CustomType;
pub use rules::{Rule, field_path, variables_of};
pub use structural::{ListType, Structural};
pub use validate::validate_value;
