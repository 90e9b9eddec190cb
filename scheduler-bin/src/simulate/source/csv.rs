//! Rows of a CSV file with a head, one at a time. Knows nothing of what the columns mean.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use super::lines::Lines;
use crate::simulate::script::InputError;

/// The rows below the head.
pub(crate) struct Rows {
    lines: Lines<BufReader<File>>,
    columns: Arc<BTreeMap<String, usize>>,
}

/// One row.
pub(crate) struct Row {
    file: Arc<str>,
    line: u64,
    columns: Arc<BTreeMap<String, usize>>,
    cells: Vec<String>,
}

impl Rows {
    /// Opens a file that has at least these columns.
    ///
    /// # Errors
    /// It cannot be read, or a column is missing.
    pub(crate) fn open(path: &Path, wanted: &[&str]) -> Result<Self, InputError> {
        let mut lines = Lines::open(path)?;
        let file = Arc::clone(lines.file());
        let head = match lines.next() {
            Some(line) => line?.1,
            None => return Err(InputError::at(&file, 1, format!("empty, expected a head with {}", wanted.join(",")))),
        };
        let columns: BTreeMap<String, usize> = cells_of(head.trim_start_matches('\u{feff}'))
            .into_iter()
            .enumerate()
            .map(|(index, column)| (column, index))
            .collect();
        if let Some(missing) = wanted.iter().find(|column| !columns.contains_key(**column)) {
            return Err(InputError::at(
                &file,
                1,
                format!("column {missing} is missing, expected {}", wanted.join(",")),
            ));
        }
        Ok(Self { lines, columns: Arc::new(columns) })
    }
}

impl Iterator for Rows {
    type Item = Result<Row, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (line, text) = match self.lines.next()? {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            if text.trim().is_empty() {
                continue;
            }
            let cells = cells_of(&text);
            let row = Row { file: Arc::clone(self.lines.file()), line, columns: Arc::clone(&self.columns), cells };
            let (n, wanted) = (row.cells.len(), self.columns.len());
            return Some(if n == wanted {
                Ok(row)
            } else {
                Err(row.wrong(format_args!("{n} cells, expected {wanted}")))
            });
        }
    }
}

impl Row {
    /// The cell below a column's head; empty if there is no such column.
    pub(crate) fn text(&self, column: &str) -> &str {
        self.columns.get(column).and_then(|&index| self.cells.get(index)).map_or("", String::as_str)
    }

    /// A whole number of 0 or more.
    ///
    /// # Errors
    /// The cell holds something else.
    pub(crate) fn number(&self, column: &str) -> Result<i64, InputError> {
        let text = self.text(column);
        // Some exports write whole numbers as 1.0.
        let whole = text.strip_suffix(".0").unwrap_or(text);
        match whole.parse() {
            Ok(number) if number >= 0 => Ok(number),
            _ => Err(self.wrong(format_args!("{column} is {text:?}, expected a whole number of 0 or more"))),
        }
    }

    /// A Kubernetes object made from the row.
    ///
    /// # Errors
    /// The value does not fit the object's type.
    pub(crate) fn object<T: serde::de::DeserializeOwned>(&self, value: serde_json::Value) -> Result<T, InputError> {
        serde_json::from_value(value).map_err(|error| self.wrong(error))
    }

    /// An error in this row.
    pub(crate) fn wrong(&self, problem: impl fmt::Display) -> InputError {
        InputError::at(&self.file, self.line, problem)
    }

    /// Its line.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }
}

/// Cells by commas; one in double quotes may hold commas, and a doubled quote stands for one.
fn cells_of(line: &str) -> Vec<String> {
    if !line.contains('"') {
        return line.split(',').map(|cell| cell.trim().to_owned()).collect();
    }
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cells.last_mut().expect("there is always a cell").push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().expect("there is always a cell").push(c),
        }
    }
    cells.into_iter().map(|cell| cell.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_may_be_quoted() {
        assert_eq!(cells_of("a, b,,c"), ["a", "b", "", "c"]);
        assert_eq!(cells_of("\"a,b\",\"say \"\"hi\"\"\",c"), ["a,b", "say \"hi\"", "c"]);
    }
}
