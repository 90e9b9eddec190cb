//! Table printing: the seam, and the cells that many kinds share. Columns of one kind live with the kind.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

/// One column of a Table (`meta.k8s.io/v1` TableColumnDefinition).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading, e.g. `Restarts`.
    pub name: Cow<'static, str>,
    /// Declared type of the cells: string, integer, boolean, number, date. The cell itself may be of another JSON type.
    pub kind: Cow<'static, str>,
    /// Declared format, `name` for the first column.
    pub format: Cow<'static, str>,
    /// What the column shows.
    pub description: Cow<'static, str>,
    /// 0 is always shown, 1 with `-o wide` only.
    pub priority: i32,
}

/// How a kind prints as a Table.
pub trait Columns: Send + Sync {
    /// The columns.
    fn columns(&self) -> &[Column];

    /// One cell for each column. `now` is the time that ages count from.
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value>;
}
