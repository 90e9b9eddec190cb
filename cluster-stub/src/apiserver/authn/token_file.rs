//! The static token file: CSV lines `token,user,uid,"group1,group2"`. Read once at start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::UserInfo;

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("cannot read the token file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A line has too few columns.
    #[error("token file {}, line {line}: want at least 3 columns (token, user name, user uid), found {found}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Number of columns in that line.
        found: usize,
    },
    /// A line is no CSV.
    #[error("token file {}, line {line}: {what}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What was expected.
        what: &'static str,
    },
}

/// Tokens and whom they stand for. Upstream v1.36.2: apiserver/pkg/authentication/token/tokenfile/tokenfile.go.
#[derive(Debug, Default)]
pub struct TokenFile(HashMap<String, UserInfo>);

impl TokenFile {
    /// Reads the file at `path`.
    pub fn open(path: &Path) -> Result<Self, TokenFileError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| TokenFileError::Read { path: path.to_owned(), source })?;
        TokenFile::parse(&text, path)
    }

    /// Reads `text`; `path` only names it in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, TokenFileError> {
        let mut tokens = HashMap::new();
        let mut records = Records { rest: text, line: 1 };
        while let Some(record) = records.next() {
            let path = || path.to_owned();
            let (line, fields) = record.map_err(|(line, what)| TokenFileError::Csv { path: path(), line, what })?;
            let mut fields = fields.into_iter();
            let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
                let found = records_columns(text, line);
                return Err(TokenFileError::Columns { path: path(), line, found });
            };
            if token.is_empty() {
                tracing::warn!(line, "empty token in the token file");
                continue;
            }
            let groups = fields.next().map(|g| g.split(',').map(str::to_owned).collect()).unwrap_or_default();
            if tokens.insert(token, UserInfo { name, uid, groups, ..UserInfo::default() }).is_some() {
                tracing::warn!(line, "duplicate token in the token file");
            }
        }
        Ok(TokenFile(tokens))
    }

    /// The user of `token`.
    pub fn user(&self, token: &str) -> Option<&UserInfo> {
        self.0.get(token)
    }
}

fn records_columns(text: &str, line: usize) -> usize {
    let rest = text.split_inclusive('\n').skip(line - 1).collect::<String>();
    match (Records { rest: &rest, line }).next() {
        Some(Ok((_, fields))) => fields.len(),
        _ => 0,
    }
}

/// CSV records as Go's reader takes them: quotes double inside quotes, blank lines are skipped.
struct Records<'a> {
    rest: &'a str,
    line: usize,
}

type Record = Result<(usize, Vec<String>), (usize, &'static str)>;

impl Records<'_> {
    fn next(&mut self) -> Option<Record> {
        while let Some(rest) = self.rest.strip_prefix('\n').or_else(|| self.rest.strip_prefix("\r\n")) {
            (self.rest, self.line) = (rest, self.line + 1);
        }
        if self.rest.is_empty() {
            return None;
        }
        let start = self.line;
        let mut fields = Vec::new();
        loop {
            let (field, rest) = match self.rest.strip_prefix('"') {
                Some(quoted) => match self.quoted(quoted) {
                    Ok(found) => found,
                    Err(what) => return Some(Err((start, what))),
                },
                None => {
                    let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
                    let (field, rest) = self.rest.split_at(end);
                    if field.contains('"') {
                        return Some(Err((start, "want the quote at the start of a column")));
                    }
                    (field.trim_end_matches('\r').to_owned(), rest)
                }
            };
            fields.push(field);
            match rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None => {
                    let ended = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'));
                    self.line += usize::from(ended.is_some());
                    self.rest = ended.unwrap_or(rest);
                    return Some(Ok((start, fields)));
                }
            }
        }
    }

    fn quoted<'a>(&mut self, text: &'a str) -> Result<(String, &'a str), &'static str> {
        let (mut field, mut rest) = (String::new(), text);
        loop {
            let end = rest.find('"').ok_or("want a closing quote")?;
            field.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            if let Some(more) = rest.strip_prefix('"') {
                field.push('"');
                rest = more;
                continue;
            }
            self.line += field.matches('\n').count();
            let ends = rest.is_empty() || rest.starts_with([',', '\n']) || rest.starts_with("\r\n");
            return if ends { Ok((field, rest)) } else { Err("want a comma after the closing quote") };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        TokenFile::parse(text, Path::new("tokens.csv"))
    }

    #[test]
    fn lines_name_user_uid_and_groups() {
        let file = parse("tok-alice,alice,alice-uid,\"dev,ops\"\r\n\n\"t\"\"2\",bob,2\ntok-c,carol,3,dev").unwrap();
        let user = |token: &str| file.user(token).map(|u| (u.name.as_str(), u.uid.as_str(), u.groups.join("+")));
        assert_eq!(user("tok-alice"), Some(("alice", "alice-uid", "dev+ops".into())));
        assert_eq!(user("t\"2"), Some(("bob", "2", String::new())));
        assert_eq!(user("tok-c"), Some(("carol", "3", "dev".into())));
        assert_eq!(user("nope"), None);
    }

    #[test]
    fn bad_lines_are_named_by_number() {
        let cases = [
            ("a,b,c\nx,y\n", "line 2: want at least 3 columns (token, user name, user uid), found 2"),
            ("\n\nx\n", "line 3: want at least 3 columns (token, user name, user uid), found 1"),
            ("a,b,\"c\n", "line 1: want a closing quote"),
            ("a,b,\"c\"d\n", "line 1: want a comma after the closing quote"),
            ("a,b\"c,d\n", "line 1: want the quote at the start of a column"),
        ];
        for (text, want) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.ends_with(want), "{text:?}: {error}");
        }
    }

    #[test]
    fn empty_tokens_stand_for_nobody() {
        let file = parse(",root,0,system:masters\n").unwrap();
        assert_eq!(file.user(""), None);
    }
}
