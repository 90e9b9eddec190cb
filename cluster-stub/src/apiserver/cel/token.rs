//! Cuts a CEL expression into tokens. Knows no grammar.

use super::ParseFault;

/// A token and where it begins, in characters from the start.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) kind: TokenKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Ident(String),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// An operator or bracket.
    Mark(&'static str),
    End,
}

impl TokenKind {
    /// As messages show it.
    pub(super) fn shown(&self) -> String {
        match self {
            TokenKind::Ident(name) => name.clone(),
            TokenKind::Int(value) => value.to_string(),
            TokenKind::Uint(value) => format!("{value}u"),
            TokenKind::Double(value) => value.to_string(),
            TokenKind::Text(text) => format!("{text:?}"),
            TokenKind::Bytes(_) => "b\"…\"".to_owned(),
            TokenKind::Mark(mark) => (*mark).to_owned(),
            TokenKind::End => "<EOF>".to_owned(),
        }
    }
}

/// Longest first, so that `<=` is not read as `<`.
const MARKS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}", "=",
];

/// Cuts `source`; the last token is [`TokenKind::End`].
pub(super) fn tokens(source: &str) -> Result<Vec<Token>, ParseFault> {
    let letters: Vec<char> = source.chars().collect();
    let mut lexer = Lexer { letters: &letters, next: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.next;
        let Some(letter) = lexer.peek(0) else {
            tokens.push(Token { at, kind: TokenKind::End });
            return Ok(tokens);
        };
        let kind = lexer.token(letter)?;
        tokens.push(Token { at, kind });
    }
}

struct Lexer<'a> {
    letters: &'a [char],
    next: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.letters.get(self.next + ahead).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(letter) = self.peek(0) {
            if letter.is_whitespace() {
                self.next += 1;
            } else if letter == '/' && self.peek(1) == Some('/') {
                while self.peek(0).is_some_and(|letter| letter != '\n') {
                    self.next += 1;
                }
            } else {
                return;
            }
        }
    }

    fn token(&mut self, letter: char) -> Result<TokenKind, ParseFault> {
        if let Some((raw, bytes, skip)) = self.text_prefix() {
            self.next += skip;
            return self.text(raw, bytes);
        }
        if letter.is_ascii_digit() || (letter == '.' && self.peek(1).is_some_and(|next| next.is_ascii_digit())) {
            return self.number();
        }
        if letter == '_' || letter.is_ascii_alphabetic() {
            let start = self.next;
            while self.peek(0).is_some_and(|letter| letter == '_' || letter.is_ascii_alphanumeric()) {
                self.next += 1;
            }
            return Ok(TokenKind::Ident(self.letters[start..self.next].iter().collect()));
        }
        if letter == '`' {
            // An escaped field name.
            let start = self.next + 1;
            let end = (start..self.letters.len()).find(|at| self.letters[*at] == '`');
            let end = end.ok_or_else(|| self.unknown())?;
            self.next = end + 1;
            return Ok(TokenKind::Ident(self.letters[start..end].iter().collect()));
        }
        for mark in MARKS {
            if mark.chars().enumerate().all(|(ahead, wanted)| self.peek(ahead) == Some(wanted)) && mark != "=" {
                self.next += mark.len();
                return Ok(TokenKind::Mark(mark));
            }
        }
        Err(self.unknown())
    }

    fn unknown(&self) -> ParseFault {
        let rest: String = self.letters[self.next..].iter().take(1).collect();
        ParseFault::new(self.next, format!("Syntax error: token recognition error at: '{rest}'"))
    }

    /// Whether a text begins here: raw, bytes, and how many letters stand before its quote.
    fn text_prefix(&self) -> Option<(bool, bool, usize)> {
        let (mut raw, mut bytes, mut skip) = (false, false, 0);
        loop {
            match self.peek(skip)? {
                '"' | '\'' => return Some((raw, bytes, skip)),
                'r' | 'R' if !raw && skip < 2 => raw = true,
                'b' | 'B' if !bytes && skip < 2 => bytes = true,
                _ => return None,
            }
            skip += 1;
        }
    }

    fn text(&mut self, raw: bool, bytes: bool) -> Result<TokenKind, ParseFault> {
        let start = self.next;
        let unclosed = || ParseFault::new(start, "Syntax error: token recognition error: unterminated string");
        let quote = self.peek(0).ok_or_else(unclosed)?;
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let closing = if triple { 3 } else { 1 };
        self.next += closing;
        let (mut text, mut octets) = (String::new(), Vec::new());
        loop {
            let letter = self.peek(0).ok_or_else(unclosed)?;
            if (0..closing).all(|ahead| self.peek(ahead) == Some(quote)) {
                self.next += closing;
                break;
            }
            if letter == '\n' && !triple {
                return Err(unclosed());
            }
            self.next += 1;
            if letter == '\\' && !raw {
                let (code, is_octet) = self.escape()?;
                if bytes && is_octet {
                    octets.push(u8::try_from(code).unwrap_or(u8::MAX));
                    continue;
                }
                let decoded = char::from_u32(code)
                    .ok_or_else(|| ParseFault::new(self.next, "Syntax error: invalid unicode code point"))?;
                push(&mut text, &mut octets, bytes, decoded);
            } else {
                push(&mut text, &mut octets, bytes, letter);
            }
        }
        Ok(if bytes { TokenKind::Bytes(octets) } else { TokenKind::Text(text) })
    }

    /// The code of an escape, and whether it means one byte in bytes literals.
    fn escape(&mut self) -> Result<(u32, bool), ParseFault> {
        let bad = |at| ParseFault::new(at, "Syntax error: token recognition error: invalid escape sequence");
        let letter = self.peek(0).ok_or_else(|| bad(self.next))?;
        self.next += 1;
        let simple = match letter {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '\\' | '\'' | '"' | '`' | '?' => letter,
            'x' | 'X' => return Ok((self.digits(2, 16).ok_or_else(|| bad(self.next))?, true)),
            'u' => return Ok((self.digits(4, 16).ok_or_else(|| bad(self.next))?, false)),
            'U' => return Ok((self.digits(8, 16).ok_or_else(|| bad(self.next))?, false)),
            '0'..='3' => {
                self.next -= 1;
                return Ok((self.digits(3, 8).ok_or_else(|| bad(self.next))?, true));
            }
            _ => return Err(bad(self.next - 1)),
        };
        Ok((u32::from(simple), false))
    }

    fn digits(&mut self, count: usize, radix: u32) -> Option<u32> {
        let mut code = 0;
        for _ in 0..count {
            code = code * radix + self.peek(0)?.to_digit(radix)?;
            self.next += 1;
        }
        Some(code)
    }

    fn number(&mut self) -> Result<TokenKind, ParseFault> {
        let start = self.next;
        let hex = self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X'));
        if hex {
            self.next += 2;
        }
        let mut real = false;
        while let Some(letter) = self.peek(0) {
            let sign = matches!(letter, '+' | '-') && !hex && matches!(self.letters[self.next - 1], 'e' | 'E');
            match letter {
                '.' if !hex && self.peek(1).is_some_and(|next| next.is_ascii_digit()) => real = true,
                'e' | 'E' if !hex => real = true,
                _ if sign => {}
                _ if letter.is_digit(if hex { 16 } else { 10 }) => {}
                _ => break,
            }
            self.next += 1;
        }
        let text: String = self.letters[start..self.next].iter().collect();
        let fault = || ParseFault::new(start, format!("Syntax error: invalid number literal {text:?}"));
        if real {
            return text.parse().map(TokenKind::Double).map_err(|_| fault());
        }
        let (digits, radix) = if hex { (&text[2..], 16) } else { (&text[..], 10) };
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.next += 1;
            return u64::from_str_radix(digits, radix).map(TokenKind::Uint).map_err(|_| fault());
        }
        // The smallest integer has no positive counterpart: its digits are wrapped, and the minus sign before them is harmless.
        let value = u64::from_str_radix(digits, radix).map_err(|_| fault())?;
        let negated = start > 0 && self.letters[start - 1] == '-';
        match i64::try_from(value) {
            Ok(value) => Ok(TokenKind::Int(value)),
            Err(_) if negated && value == 1 << 63 => Ok(TokenKind::Int(i64::MIN)),
            Err(_) => Err(fault()),
        }
    }
}

fn push(text: &mut String, octets: &mut Vec<u8>, bytes: bool, letter: char) {
    if bytes {
        octets.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        text.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<TokenKind> {
        let mut kinds: Vec<TokenKind> =
            tokens(source).expect("the source has tokens").into_iter().map(|token| token.kind).collect();
        assert_eq!(kinds.pop(), Some(TokenKind::End));
        kinds
    }

    #[test]
    fn literals_are_read() {
        let text = |text: &str| TokenKind::Text(text.to_owned());
        let cases = [
            ("1", TokenKind::Int(1)),
            ("0x1F", TokenKind::Int(31)),
            ("2u", TokenKind::Uint(2)),
            ("1.5", TokenKind::Double(1.5)),
            ("1e3", TokenKind::Double(1000.0)),
            ("1.5e-1", TokenKind::Double(0.15)),
            ("'a\\'b'", text("a'b")),
            ("\"\\u00e9\\n\"", text("é\n")),
            ("r'\\d'", text("\\d")),
            ("'''a'b'''", text("a'b")),
            ("b'\\xffa'", TokenKind::Bytes(vec![0xff, b'a'])),
            ("`a-b.c`", TokenKind::Ident("a-b.c".to_owned())),
        ];
        for (source, want) in cases {
            assert_eq!(kinds(source), [want], "{source}");
        }
        assert_eq!(kinds("a.b // c\n<=1").len(), 5);
    }

    #[test]
    fn what_is_no_token_is_refused_with_its_place() {
        for (source, at) in [("a # b", 2), ("'abc", 0), ("a = b", 2), ("99999999999999999999", 0)] {
            assert_eq!(tokens(source).expect_err(source).at, at, "{source}");
        }
    }
}
