//! The grammar of CEL: tokens to a tree, macros expanded. Says nothing about types.
//!
//! Grammar: the CEL language definition (`langdef.md`); operator names and texts as cel-go has them.

use super::token::{Token, TokenKind, tokens};
use super::{ParseFault, Value};

/// A node of the tree and where it stands, in characters from the start.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expr {
    pub(super) at: usize,
    pub(super) kind: ExprKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExprKind {
    Literal(Value),
    Ident(String),
    /// `operand.field`, `operand.?field`, or with `test` the macro `has(operand.field)`.
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
        optional: bool,
    },
    /// `operand[index]` or `operand[?index]`.
    Index {
        operand: Box<Expr>,
        index: Box<Expr>,
        optional: bool,
    },
    /// A function, a method or an operator by its internal name (`_+_`).
    Call {
        function: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    /// Items; the flag marks `?item`.
    List(Vec<(bool, Expr)>),
    /// Entries; the flag marks `?key: value`.
    Map(Vec<(bool, Expr, Expr)>),
    /// `Name{field: value}`.
    Message {
        name: String,
        fields: Vec<(bool, String, Expr)>,
    },
    /// A macro that goes through a list or map.
    Loop(Box<Loop>),
    /// `cel.bind(name, init, body)`, and the macros of optionals.
    Bind {
        name: String,
        init: Box<Expr>,
        body: Box<Expr>,
        of_optional: Option<OptionalMacro>,
    },
}

/// What the macro makes of the value in an optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionalMacro {
    /// `optMap`: the body is the new value.
    Map,
    /// `optFlatMap`: the body is the new optional.
    FlatMap,
}

/// The macros over lists and maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
    TransformList,
    TransformMap,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loop {
    pub(super) kind: LoopKind,
    pub(super) range: Expr,
    pub(super) variable: String,
    /// The second variable of the two-variable forms: key or index first, value second.
    pub(super) second: Option<String>,
    pub(super) condition: Option<Expr>,
    pub(super) body: Option<Expr>,
}

/// Deepest nesting that is read; more would need too much stack.
const MAX_DEPTH: usize = 100;

/// Reads an expression.
pub(super) fn parse(source: &str) -> Result<Expr, ParseFault> {
    let mut parser = Parser { tokens: tokens(source)?, next: 0, depth: 0 };
    let expr = parser.expression()?;
    match parser.kind() {
        TokenKind::End => Ok(expr),
        other => {
            let text = format!("Syntax error: extraneous input '{}' expecting <EOF>", other.shown());
            Err(ParseFault::new(parser.at(), text))
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

const RESERVED: [&str; 14] = [
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "return",
    "while",
];

impl Parser {
    fn kind(&self) -> &TokenKind {
        &self.tokens[self.next].kind
    }

    fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    fn advance(&mut self) -> TokenKind {
        let kind = self.tokens[self.next].kind.clone();
        // The last token is never passed.
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        kind
    }

    fn is(&self, mark: &str) -> bool {
        matches!(self.kind(), TokenKind::Mark(found) if *found == mark)
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = self.is(mark);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, mark: &str) -> Result<(), ParseFault> {
        if self.eat(mark) {
            return Ok(());
        }
        let text = format!("Syntax error: mismatched input '{}' expecting '{mark}'", self.kind().shown());
        Err(ParseFault::new(self.at(), text))
    }

    fn name(&mut self) -> Result<String, ParseFault> {
        let at = self.at();
        match self.advance() {
            TokenKind::Ident(name) => Ok(name),
            other => {
                let text = format!("Syntax error: mismatched input '{}' expecting IDENTIFIER", other.shown());
                Err(ParseFault::new(at, text))
            }
        }
    }

    fn expression(&mut self) -> Result<Expr, ParseFault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ParseFault::new(self.at(), format!("expression recursion limit exceeded: {MAX_DEPTH}")));
        }
        let condition = self.binary(0)?;
        let at = self.at();
        let expr = if self.eat("?") {
            let then = self.binary(0)?;
            self.expect(":")?;
            let otherwise = self.expression()?;
            call(at, "_?_:_", vec![condition, then, otherwise])
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    /// Operators by level, weakest first; all of them bind to the left.
    fn binary(&mut self, level: usize) -> Result<Expr, ParseFault> {
        const LEVELS: [&[&str]; 5] =
            [&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">", "in"], &["+", "-"], &["*", "/", "%"]];
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let found = match self.kind() {
                TokenKind::Mark(mark) => operators.iter().find(|operator| *operator == mark).copied(),
                TokenKind::Ident(name) if name == "in" => operators.iter().find(|operator| **operator == "in").copied(),
                _ => None,
            };
            let Some(operator) = found else { return Ok(left) };
            let at = self.at();
            self.advance();
            let right = self.binary(level + 1)?;
            let function = if operator == "in" { "@in".to_owned() } else { format!("_{operator}_") };
            left = call(at, &function, vec![left, right]);
        }
    }

    fn unary(&mut self) -> Result<Expr, ParseFault> {
        let at = self.at();
        for (mark, function) in [("!", "!_"), ("-", "-_")] {
            if !self.is(mark) {
                continue;
            }
            let mut count = 0;
            while self.eat(mark) {
                count += 1;
            }
            let operand = self.member()?;
            // A minus before a number is part of it.
            if let (true, ExprKind::Literal(Value::Int(value))) = (mark == "-" && count == 1, &operand.kind) {
                return Ok(Expr { at, kind: ExprKind::Literal(Value::Int(value.wrapping_neg())) });
            }
            if let (true, ExprKind::Literal(Value::Double(value))) = (mark == "-" && count == 1, &operand.kind) {
                return Ok(Expr { at, kind: ExprKind::Literal(Value::Double(-value)) });
            }
            return Ok((0..count).fold(operand, |operand, _| call(at, function, vec![operand])));
        }
        self.member()
    }

    fn member(&mut self) -> Result<Expr, ParseFault> {
        let mut expr = self.primary()?;
        loop {
            let at = self.at();
            if self.eat(".") {
                let optional = self.eat("?");
                let field = self.name()?;
                let open = self.at();
                if !optional && self.eat("(") {
                    let at = open;
                    let args = self.arguments(")")?;
                    expr = self.method(at, expr, field, args)?;
                } else {
                    expr =
                        Expr { at, kind: ExprKind::Select { operand: Box::new(expr), field, test: false, optional } };
                }
            } else if self.eat("[") {
                let optional = self.eat("?");
                let index = Box::new(self.expression()?);
                self.expect("]")?;
                expr = Expr { at, kind: ExprKind::Index { operand: Box::new(expr), index, optional } };
            } else if self.is("{")
                && let Some(name) = qualified_name(&expr)
            {
                self.advance();
                expr = Expr { at: expr.at, kind: ExprKind::Message { name, fields: self.fields()? } };
            } else {
                return Ok(expr);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, ParseFault> {
        let at = self.at();
        let literal = |value| Ok(Expr { at, kind: ExprKind::Literal(value) });
        match self.advance() {
            TokenKind::Int(value) => literal(Value::Int(value)),
            TokenKind::Uint(value) => literal(Value::Uint(value)),
            TokenKind::Double(value) => literal(Value::Double(value)),
            TokenKind::Text(text) => literal(Value::text(text)),
            TokenKind::Bytes(bytes) => literal(Value::Bytes(bytes.into())),
            TokenKind::Ident(name) => match name.as_str() {
                "true" => literal(Value::Bool(true)),
                "false" => literal(Value::Bool(false)),
                "null" => literal(Value::Null),
                reserved if RESERVED.contains(&reserved) => {
                    Err(ParseFault::new(at, format!("reserved identifier: {reserved}")))
                }
                _ if self.is("(") => {
                    // Calls stand where their bracket opens, as cel-go has it.
                    let at = self.at();
                    self.advance();
                    let args = self.arguments(")")?;
                    function(at, name, args)
                }
                _ => Ok(Expr { at, kind: ExprKind::Ident(name) }),
            },
            TokenKind::Mark("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            TokenKind::Mark("[") => {
                let mut items = Vec::new();
                while !self.is("]") {
                    let optional = self.eat("?");
                    items.push((optional, self.expression()?));
                    if !self.eat(",") {
                        break;
                    }
                }
                self.expect("]")?;
                Ok(Expr { at, kind: ExprKind::List(items) })
            }
            TokenKind::Mark("{") => {
                let mut entries = Vec::new();
                while !self.is("}") {
                    let optional = self.eat("?");
                    let key = self.expression()?;
                    self.expect(":")?;
                    entries.push((optional, key, self.expression()?));
                    if !self.eat(",") {
                        break;
                    }
                }
                self.expect("}")?;
                Ok(Expr { at, kind: ExprKind::Map(entries) })
            }
            // A leading dot looks the name up at the root, where all names are.
            TokenKind::Mark(".") => self.primary(),
            other => {
                let expected = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
                let word = if other == TokenKind::End { "mismatched" } else { "extraneous" };
                Err(ParseFault::new(at, format!("Syntax error: {word} input '{}' expecting {expected}", other.shown())))
            }
        }
    }

    fn arguments(&mut self, close: &str) -> Result<Vec<Expr>, ParseFault> {
        let mut args = Vec::new();
        while !self.is(close) {
            args.push(self.expression()?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(close)?;
        Ok(args)
    }

    fn fields(&mut self) -> Result<Vec<(bool, String, Expr)>, ParseFault> {
        let mut fields = Vec::new();
        while !self.is("}") {
            let optional = self.eat("?");
            let field = self.name()?;
            self.expect(":")?;
            fields.push((optional, field, self.expression()?));
            if !self.eat(",") {
                break;
            }
        }
        self.expect("}")?;
        Ok(fields)
    }

    fn method(&mut self, at: usize, target: Expr, name: String, mut args: Vec<Expr>) -> Result<Expr, ParseFault> {
        if let (ExprKind::Ident(namespace), "bind", 3) = (&target.kind, name.as_str(), args.len())
            && namespace == "cel"
        {
            let body = Box::new(args.remove(2));
            let init = Box::new(args.remove(1));
            let name = variable(&args[0])?;
            return Ok(Expr { at, kind: ExprKind::Bind { name, init, body, of_optional: None } });
        }
        let of_optional = match name.as_str() {
            "optMap" => Some(OptionalMacro::Map),
            "optFlatMap" => Some(OptionalMacro::FlatMap),
            _ => None,
        };
        if of_optional.is_some() && args.len() == 2 {
            let body = Box::new(args.remove(1));
            let name = variable(&args[0])?;
            return Ok(Expr { at, kind: ExprKind::Bind { name, init: Box::new(target), body, of_optional } });
        }
        let kind = match (name.as_str(), args.len()) {
            ("all", 2 | 3) => LoopKind::All,
            ("exists", 2 | 3) => LoopKind::Exists,
            ("exists_one" | "existsOne", 2 | 3) => LoopKind::ExistsOne,
            ("filter", 2) => LoopKind::Filter,
            ("map", 2 | 3) => LoopKind::Map,
            ("transformList", 3 | 4) => LoopKind::TransformList,
            ("transformMap", 3 | 4) => LoopKind::TransformMap,
            _ => {
                return Ok(Expr { at, kind: ExprKind::Call { function: name, target: Some(Box::new(target)), args } });
            }
        };
        let tests = matches!(kind, LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne | LoopKind::Filter);
        let transforms = matches!(kind, LoopKind::TransformList | LoopKind::TransformMap);
        let two = transforms || (tests && args.len() == 3);
        let last = args.pop();
        let (condition, body) = if tests { (last, None) } else { (None, last) };
        let middle = if args.len() > 1 + usize::from(two) { args.pop() } else { None };
        let second = if two { args.pop().map(|name| variable(&name)).transpose()? } else { None };
        let variable = variable(&args[0])?;
        let range = target;
        let condition = condition.or(middle);
        Ok(Expr { at, kind: ExprKind::Loop(Box::new(Loop { kind, range, variable, second, condition, body })) })
    }
}

fn call(at: usize, function: &str, args: Vec<Expr>) -> Expr {
    Expr { at, kind: ExprKind::Call { function: function.to_owned(), target: None, args } }
}

/// A call without a target, which may be the macro `has`.
fn function(at: usize, name: String, mut args: Vec<Expr>) -> Result<Expr, ParseFault> {
    if name == "has" && args.len() == 1 {
        let arg = args.remove(0);
        return match arg.kind {
            ExprKind::Select { operand, field, .. } => {
                Ok(Expr { at: arg.at, kind: ExprKind::Select { operand, field, test: true, optional: false } })
            }
            _ => Err(ParseFault::new(arg.at, "invalid argument to has() macro")),
        };
    }
    Ok(Expr { at, kind: ExprKind::Call { function: name, target: None, args } })
}

/// The name that a macro declares.
fn variable(expr: &Expr) -> Result<String, ParseFault> {
    match &expr.kind {
        ExprKind::Ident(name) => Ok(name.clone()),
        _ => Err(ParseFault::new(expr.at, "argument must be a simple name")),
    }
}

/// `a.b.C` as one name, if the tree is one.
fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.clone()),
        ExprKind::Select { operand, field, test: false, optional: false } => {
            Some(format!("{}.{field}", qualified_name(operand)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree as text, operators before their operands.
    fn shape(expr: &Expr) -> String {
        let list = |args: &[Expr]| args.iter().map(shape).collect::<Vec<_>>().join(" ");
        match &expr.kind {
            ExprKind::Literal(value) => format!("{value:?}"),
            ExprKind::Ident(name) => name.clone(),
            ExprKind::Select { operand, field, test, .. } => {
                format!("({}{} {field})", if *test { "has " } else { "." }, shape(operand))
            }
            ExprKind::Index { operand, index, .. } => format!("([] {} {})", shape(operand), shape(index)),
            ExprKind::Call { function, target: None, args } => format!("({function} {})", list(args)),
            ExprKind::Call { function, target: Some(target), args } => {
                format!("(.{function} {} {})", shape(target), list(args))
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn operators_bind_as_in_the_language_definition() {
        let cases = [
            ("a || b && c", "(_||_ a (_&&_ b c))"),
            ("a + b * c", "(_+_ a (_*_ b c))"),
            ("a - b - c", "(_-_ (_-_ a b) c)"),
            ("!a.b", "(!_ (.a b))"),
            ("a ? b : c ? d : e", "(_?_:_ a b (_?_:_ c d e))"),
            ("a in b == c", "(_==_ (@in a b) c)"),
            ("has(a.b)", "(has a b)"),
            ("a.f(b)[0]", "([] (.f a b) Int(0))"),
            ("-1", "Int(-1)"),
            ("- a", "(-_ a)"),
        ];
        for (source, want) in cases {
            assert_eq!(shape(&parse(source).expect(source)), want, "{source}");
        }
    }

    #[test]
    fn macros_take_one_or_two_variables() {
        for source in ["a.all(x, x > 1)", "a.exists(i, x, x > i)", "a.map(x, x > 1, x)", "a.filter(x, x)"] {
            assert!(matches!(parse(source).expect(source).kind, ExprKind::Loop(_)), "{source}");
        }
        assert!(parse("a.all(1, true)").is_err());
        assert!(parse("has(a)").is_err());
    }

    #[test]
    fn faults_have_a_place() {
        for (source, at) in [("object.spec ===", 14), ("a +", 3), ("(a", 2), ("a b", 2), ("if", 0)] {
            assert_eq!(parse(source).expect_err(source).at, at, "{source}");
        }
        assert!(parse(&"(".repeat(500)).is_err());
    }
}
