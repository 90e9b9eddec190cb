//! Why a text is no JSON, in the words of Go's scanner. Only asked for texts that do not parse.
//!
//! Upstream: Go `encoding/json` `scanner.go`.

/// Levels of objects and lists that are read. Go reads 10 000; nothing that an API server takes is nearly as deep.
const MAX_DEPTH: usize = 128;

/// The fault of a text; `unexpected end of JSON input` also for an empty one.
pub fn fault(text: &[u8]) -> String {
    let mut scanner = Scanner { rest: text, depth: 0 };
    match scanner.value().and_then(|()| scanner.end()) {
        Ok(()) => "invalid JSON".to_string(),
        Err(fault) => fault,
    }
}

struct Scanner<'a> {
    rest: &'a [u8],
    depth: usize,
}

type Scan = Result<(), String>;

impl Scanner<'_> {
    fn peek(&mut self) -> Option<u8> {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    fn skip(&mut self) {
        self.rest = self.rest.get(1..).unwrap_or_default();
    }

    /// The fault of the next character, or of there being none.
    fn unexpected(&self, context: &str) -> String {
        let Some(first) = self.rest.first() else {
            return "unexpected end of JSON input".to_string();
        };
        let character = match first {
            b'\'' => r"'\''".to_string(),
            b'"' => "'\"'".to_string(),
            0x20..=0x7e => format!("'{}'", char::from(*first)),
            b'\n' => r"'\n'".to_string(),
            b'\r' => r"'\r'".to_string(),
            b'\t' => r"'\t'".to_string(),
            0x80.. => format!("'{}'", char::from(*first)),
            other => format!("'\\x{other:02x}'"),
        };
        format!("invalid character {character} {context}")
    }

    fn end(&mut self) -> Scan {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    fn value(&mut self) -> Scan {
        match self.peek() {
            Some(b'{') => self.within(Self::object),
            Some(b'[') => self.within(Self::array),
            Some(b'"') => self.string(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    /// One level deeper.
    fn within(&mut self, read: fn(&mut Self) -> Scan) -> Scan {
        if self.depth == MAX_DEPTH {
            return Err(format!("exceeded max depth: more than {MAX_DEPTH} levels"));
        }
        self.depth += 1;
        read(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn object(&mut self) -> Scan {
        self.skip();
        if self.peek() == Some(b'}') {
            self.skip();
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            self.string()?;
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.skip();
            self.value()?;
            match self.peek() {
                Some(b',') => self.skip(),
                Some(b'}') => {
                    self.skip();
                    return Ok(());
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Scan {
        self.skip();
        if self.peek() == Some(b']') {
            self.skip();
            return Ok(());
        }
        loop {
            self.value()?;
            match self.peek() {
                Some(b',') => self.skip(),
                Some(b']') => {
                    self.skip();
                    return Ok(());
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn string(&mut self) -> Scan {
        self.skip();
        loop {
            match self.rest.first() {
                Some(b'"') => {
                    self.skip();
                    return Ok(());
                }
                Some(b'\\') => {
                    self.skip();
                    match self.rest.first() {
                        Some(b'u') => {
                            self.skip();
                            for _ in 0..4 {
                                if !self.rest.first().is_some_and(u8::is_ascii_hexdigit) {
                                    return Err(self.unexpected("in \\u hexadecimal character escape"));
                                }
                                self.skip();
                            }
                        }
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.skip(),
                        _ => return Err(self.unexpected("in string escape code")),
                    }
                }
                None | Some(0..=0x1f) => return Err(self.unexpected("in string literal")),
                Some(_) => self.skip(),
            }
        }
    }

    fn literal(&mut self, word: &str) -> Scan {
        for wanted in word.bytes() {
            if self.rest.first() != Some(&wanted) {
                return Err(self.unexpected(&format!("in literal {word} (expecting '{}')", char::from(wanted))));
            }
            self.skip();
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        if self.rest.first() == Some(&b'-') {
            self.skip();
        }
        if self.rest.first() == Some(&b'0') {
            self.skip();
        } else {
            self.digits("in numeric literal")?;
        }
        if self.rest.first() == Some(&b'.') {
            self.skip();
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.rest.first(), Some(b'e' | b'E')) {
            self.skip();
            if matches!(self.rest.first(), Some(b'+' | b'-')) {
                self.skip();
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digits(&mut self, context: &str) -> Scan {
        if !self.rest.first().is_some_and(u8::is_ascii_digit) {
            return Err(self.unexpected(context));
        }
        while self.rest.first().is_some_and(u8::is_ascii_digit) {
            self.skip();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_text_is_refused_before_the_stack_ends() {
        for (open, close) in [("{\"a\":", "}"), ("[", "]")] {
            let deep = |levels: usize| open.repeat(levels) + "1" + &close.repeat(levels);
            assert_eq!(fault(deep(MAX_DEPTH).as_bytes()), "invalid JSON", "it can be scanned");
            assert_eq!(fault(deep(1_000_000).as_bytes()), "exceeded max depth: more than 128 levels");
        }
    }

    #[test]
    fn faults_have_gos_words() {
        let cases = [
            ("{bad", "invalid character 'b' looking for beginning of object key string"),
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("not json", "invalid character 'o' in literal null (expecting 'u')"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 2}", "invalid character '2' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("[\"\\q\"]", "invalid character 'q' in string escape code"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
        ];
        for (text, want) in cases {
            assert_eq!(fault(text.as_bytes()), want, "{text}");
        }
    }
}
