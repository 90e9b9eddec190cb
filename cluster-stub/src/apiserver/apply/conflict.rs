//! Conflicts of an apply with fields that others own, in upstream's words.
//!
//! Upstream: apimachinery v1.36.2 `pkg/util/managedfields/internal/conflict.go`.

use super::field_set::display;
use super::managed::{Entry, Operation};
use crate::apiserver::status::{ApiError, StatusCause};

/// One field that somebody else owns with another value.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    /// The owner.
    pub owner: Entry,
    /// The field.
    pub path: Vec<Box<str>>,
}

/// The 409 for conflicts.
pub(super) fn failure(mut conflicts: Vec<Conflict>) -> ApiError {
    conflicts.sort_by_key(|conflict| describe(&conflict.owner));
    let causes = conflicts.iter().map(|conflict| StatusCause {
        reason: "FieldManagerConflict".to_string(),
        message: format!("conflict with {}", describe(&conflict.owner)),
        field: display(&conflict.path),
    });
    let causes = causes.collect();
    let message = match conflicts.as_slice() {
        [one] => {
            format!("Apply failed with 1 conflict: conflict with {}: {}", describe(&one.owner), display(&one.path))
        }
        many => {
            let mut lines: Vec<String> = Vec::new();
            let mut last = String::new();
            for conflict in many {
                let owner = describe(&conflict.owner);
                if owner != last {
                    lines.push(format!("conflicts with {owner}:"));
                    last = owner;
                }
                lines.push(format!("- {}", display(&conflict.path)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    ApiError::apply_conflict(causes, message)
}

fn describe(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", entry.subresource));
    }
    if entry.operation == Operation::Update {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}
