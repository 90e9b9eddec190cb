//! Lines of a file with their numbers, read one at a time: a file of any size needs the memory of its longest line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;

use crate::simulate::script::InputError;

/// Longest line, in bytes.
const MAX_LINE: u64 = 64 << 20;

/// Numbered lines.
pub(crate) struct Lines<R> {
    file: Arc<str>,
    reader: R,
    line: u64,
    failed: bool,
}

impl Lines<BufReader<File>> {
    /// The lines of a file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<Self, InputError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| InputError::unreadable(&name, &error))?;
        Ok(Self::new(&name, BufReader::with_capacity(1 << 16, file)))
    }
}

impl<R: BufRead> Lines<R> {
    /// The lines of a reader; `file` names it in errors.
    pub(crate) fn new(file: &str, reader: R) -> Self {
        Self { file: file.into(), reader, line: 0, failed: false }
    }

    /// The file's name.
    pub(crate) fn file(&self) -> &Arc<str> {
        &self.file
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<(u64, String), InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        self.line += 1;
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(MAX_LINE + 1).read_until(b'\n', &mut bytes);
        let problem = match read {
            Ok(0) => return None,
            Ok(n) if n as u64 > MAX_LINE => format!("the line is longer than {} MiB", MAX_LINE >> 20),
            Ok(_) => {
                while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                    bytes.pop();
                }
                match String::from_utf8(bytes) {
                    Ok(text) => return Some(Ok((self.line, text))),
                    Err(_) => "the line is not UTF-8 text".to_owned(),
                }
            }
            Err(error) => error.to_string(),
        };
        self.failed = true;
        Some(Err(InputError::at(&self.file, self.line, problem)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_a_bad_one_ends_them() {
        let lines: Vec<_> = Lines::new("f", &b"a\r\nb\n\xff\nc\n"[..]).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], Ok((1, "a".to_owned())));
        assert_eq!(lines[1], Ok((2, "b".to_owned())));
        assert_eq!(lines[2].as_ref().expect_err("no text").to_string(), "f:3: the line is not UTF-8 text");
    }
}
