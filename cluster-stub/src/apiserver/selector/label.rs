//! Label selectors: `a=b,c!=d,e in (f,g),!h,i>3`.
//!
//! Upstream: apimachinery v1.36.2 `pkg/labels/selector.go`.

use crate::apiserver::validation::field::quote;
use crate::apiserver::validation::names;

/// How a requirement relates a label to its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// A parsed label selector; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Parses a selector.
    ///
    /// # Errors
    /// Upstream's text, for a 400.
    pub fn parse(text: &str) -> Result<LabelSelector, String> {
        let mut parser = Parser { tokens: lex(text), at: 0 };
        let mut requirements = Vec::new();
        loop {
            match parser.peek(Context::Values) {
                Token::Identifier(_) | Token::Not => {
                    requirements
                        .push(parser.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?);
                    match parser.next(Context::Values) {
                        Token::End => break,
                        Token::Comma => {
                            let next = parser.peek(Context::Values);
                            if !matches!(next, Token::Identifier(_) | Token::Not) {
                                return Err(format!("found '{}', expected: identifier after ','", next.literal()));
                            }
                        }
                        other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.literal())),
                    }
                }
                Token::End => break,
                other => {
                    return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.literal()));
                }
            }
        }
        Ok(LabelSelector(requirements))
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels fit; `get` gives the value of a label.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || self.values.first().and_then(|value| value.parse::<i64>().ok());
        match (self.operator, value) {
            (Operator::In, Some(value)) => self.values.iter().any(|wanted| wanted == value),
            (Operator::NotIn, Some(value)) => !self.values.iter().any(|wanted| wanted == value),
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::NotIn, None) => true,
            (Operator::GreaterThan, Some(value)) => {
                value.parse::<i64>().ok().zip(number()).is_some_and(|(value, wanted)| value > wanted)
            }
            (Operator::LessThan, Some(value)) => {
                value.parse::<i64>().ok().zip(number()).is_some_and(|(value, wanted)| value < wanted)
            }
            (Operator::In | Operator::GreaterThan | Operator::LessThan, None) => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Identifier(String),
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Not,
    Open,
    Close,
    Comma,
    End,
    Fault(String),
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Token::Identifier(text) | Token::Fault(text) => text,
            Token::In => "in",
            Token::NotIn => "notin",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::NotEquals => "!=",
            Token::Greater => ">",
            Token::Less => "<",
            Token::Not => "!",
            Token::Open => "(",
            Token::Close => ")",
            Token::Comma => ",",
            Token::End => "",
        }
    }

    fn symbol(text: &str) -> Option<Token> {
        Some(match text {
            "=" => Token::Equals,
            "==" => Token::DoubleEquals,
            "!=" => Token::NotEquals,
            ">" => Token::Greater,
            "<" => Token::Less,
            "!" => Token::Not,
            "(" => Token::Open,
            ")" => Token::Close,
            "," => Token::Comma,
            _ => return None,
        })
    }
}

fn is_special(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while let Some(first) = rest.chars().next() {
        let length = if is_special(first) {
            // The longest symbol: `==` and `!=` before `=` and `!`.
            let length =
                (1..=2).rev().find(|length| rest.get(..*length).and_then(Token::symbol).is_some()).unwrap_or(1);
            let symbol = &rest[..length];
            tokens.push(Token::symbol(symbol).unwrap_or_else(|| Token::Fault(symbol.to_string())));
            length
        } else {
            let length = rest.find(|character| is_special(character) || is_blank(character)).unwrap_or(rest.len());
            tokens.push(match &rest[..length] {
                "in" => Token::In,
                "notin" => Token::NotIn,
                word => Token::Identifier(word.to_string()),
            });
            length
        };
        rest = rest[length..].trim_start_matches(is_blank);
    }
    tokens.push(Token::End);
    tokens
}

/// In a place for values, `in` and `notin` are plain words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    KeyAndOperator,
    Values,
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self, context: Context) -> Token {
        match self.tokens.get(self.at).cloned().unwrap_or(Token::End) {
            token @ (Token::In | Token::NotIn) if context == Context::Values => {
                Token::Identifier(token.literal().to_string())
            }
            token => token,
        }
    }

    fn next(&mut self, context: Context) -> Token {
        let token = self.peek(context);
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (key, not) = self.key()?;
        if not || matches!(self.peek(Context::Values), Token::End | Token::Comma) {
            let operator = if not { Operator::DoesNotExist } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: Vec::new() });
        }
        let (operator, mut values) = match self.next(Context::KeyAndOperator) {
            Token::In => (Operator::In, self.values()?),
            Token::NotIn => (Operator::NotIn, self.values()?),
            Token::Equals | Token::DoubleEquals => (Operator::In, self.exact_value()?),
            Token::NotEquals => (Operator::NotIn, self.exact_value()?),
            Token::Greater => (Operator::GreaterThan, self.exact_value()?),
            Token::Less => (Operator::LessThan, self.exact_value()?),
            other => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.literal()));
            }
        };
        values.sort();
        values.dedup();
        let mut faults = Vec::new();
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (at, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                faults.push(format!("values[{at}]: Invalid value: {}: {why}", quote(value)));
            }
        }
        for (at, value) in values.iter().enumerate() {
            let errors = names::label_value(value);
            if !errors.is_empty() {
                faults.push(format!("values[{at}][{key}]: Invalid value: {}: {}", quote(value), errors.join("; ")));
            }
        }
        if faults.is_empty() {
            Ok(Requirement { key, operator, values })
        } else {
            Err(crate::apiserver::status::aggregate(&faults))
        }
    }

    fn key(&mut self) -> Result<(String, bool), String> {
        let mut token = self.next(Context::Values);
        let not = token == Token::Not;
        if not {
            token = self.next(Context::Values);
        }
        let Token::Identifier(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.literal()));
        };
        let errors = names::qualified_name(&key);
        if errors.is_empty() {
            Ok((key, not))
        } else {
            Err(format!("<nil>: Invalid value: {}: {}", quote(&key), errors.join("; ")))
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next(Context::Values);
        if open != Token::Open {
            return Err(format!("found '{}' expected: '('", open.literal()));
        }
        match self.peek(Context::Values) {
            Token::Close => {
                self.at += 1;
                Ok(vec![String::new()])
            }
            first @ (Token::Identifier(_) | Token::Comma) => {
                let values = self.identifiers()?;
                match self.next(Context::Values) {
                    Token::Close => Ok(values),
                    _ => Err(format!("found '{}', expected: ')'", first.literal())),
                }
            }
            other => Err(format!("found '{}', expected: ',', ')' or identifier", other.literal())),
        }
    }

    fn identifiers(&mut self) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        loop {
            match self.next(Context::Values) {
                Token::Identifier(value) => {
                    values.push(value);
                    match self.peek(Context::Values) {
                        Token::Comma => {}
                        Token::Close => return Ok(values),
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.literal())),
                    }
                }
                Token::Comma => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek(Context::Values) {
                        Token::Close => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => values.push(String::new()),
                        _ => {}
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.literal())),
            }
        }
    }

    fn exact_value(&mut self) -> Result<Vec<String>, String> {
        if matches!(self.peek(Context::Values), Token::End | Token::Comma) {
            return Ok(vec![String::new()]);
        }
        match self.next(Context::Values) {
            Token::Identifier(value) => Ok(vec![value]),
            other => Err(format!("found '{}', expected: identifier", other.literal())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&'static str, &'static str)]) -> bool {
        let selector = LabelSelector::parse(selector).expect("the selector is right");
        selector.matches(|key| labels.iter().find(|(label, _)| *label == key).map(|(_, value)| *value))
    }

    #[test]
    fn requirements_match_present_and_absent_labels() {
        let labels = [("app", "web"), ("tier", ""), ("n", "5")];
        for fits in [
            "",
            "app=web",
            "app==web",
            "app",
            "!x",
            "x!=1",
            "app!=db",
            "app in (web, db)",
            "app notin (db)",
            "x notin (a)",
            "tier=",
            "tier in ()",
            "n>4",
            "n<6",
            "app=web,!x,tier",
            " app = web ",
            "app in (web,)",
            "in!=3",
        ] {
            assert!(matches(fits, &labels), "{fits}");
        }
        for other in
            ["app=db", "x", "!app", "app!=web", "app in (db)", "app notin (web)", "x=1", "n>5", "app>1", "x in (a)"]
        {
            assert!(!matches(other, &labels), "{other}");
        }
    }

    #[test]
    fn faults_have_upstreams_words() {
        let cases = [
            ("a=b,", "found '', expected: identifier after ','"),
            ("=b", "found '=', expected: !, identifier, or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ];
        for (selector, want) in cases {
            assert_eq!(LabelSelector::parse(selector), Err(want.to_string()), "{selector}");
        }
    }

    #[test]
    fn keys_and_values_must_be_labels() {
        assert!(LabelSelector::parse("-a=b").is_err_and(|error| error.contains("Invalid value: \"-a\"")));
        assert!(LabelSelector::parse("a=-b").is_err_and(|error| error.contains("Invalid value: \"-b\"")));
    }
}
