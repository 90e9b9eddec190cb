//! Text in aligned columns, as kubectl prints it. Knows nothing of what stands in them.

use std::fmt::Write as _;

/// Lines of cells with their columns aligned and three blanks between them; nothing behind the last cell.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let n_columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..n_columns)
        .map(|column| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(row, "{cell:<width$}   ");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let line = |cells: &[&str]| cells.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            align(&[line(&["A", "B"]), line(&["long", "b"]), line(&["", "c"])]),
            "A      B\nlong   b\n       c\n"
        );
    }
}
