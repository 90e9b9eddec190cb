//! CEL, the Common Expression Language: what rules of CustomResourceDefinitions, admission policies and match conditions are
//! written in. Expressions are read once and evaluated often; nothing here knows what they are for.
//!
//! Language: the CEL language definition; functions: those that kube-apiserver v1.36.2 registers
//! (`staging/src/k8s.io/apiserver/pkg/cel/environment/base.go`) but for formats, semantic versions and JSON patches' escapes.
//!
//! ```
//! use cluster_stub::apiserver::cel::{Program, Value};
//! let program = Program::compile("object.replicas <= 5 && object.name.startsWith('a')").unwrap();
//! let object = Value::of_json(&serde_json::json!({"replicas": 3, "name": "abc"}));
//! let answer = program.evaluate(&|name| (name == "object").then(|| Ok(object.clone())));
//! assert_eq!(answer, Ok(Value::Bool(true)));
//! ```

pub mod authorizer;
mod check;
mod eval;
mod functions;
mod library;
mod lists;
mod parse;
mod strings;
#[cfg(test)]
mod tests;
mod time;
mod token;
mod types;
mod url;
mod value;

pub use types::{ObjectType, Type};
pub use value::{Key, Value};

/// A fault of an expression and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParseFault {
    /// In characters from the start.
    at: usize,
    text: String,
}

impl ParseFault {
    fn new(at: usize, text: impl Into<String>) -> ParseFault {
        ParseFault { at, text: text.into() }
    }

    /// The fault with its line and a mark below, as cel-go shows it.
    fn shown(&self, source: &str) -> String {
        let before: String = source.chars().take(self.at).collect();
        let line_number = before.matches('\n').count();
        let column = before.chars().rev().take_while(|letter| *letter != '\n').count();
        let line = source.split('\n').nth(line_number).unwrap_or_default();
        let dots = ".".repeat(column);
        format!("ERROR: <input>:{}:{}: {}\n | {line}\n | {dots}^", line_number + 1, column + 1, self.text)
    }
}

/// Why an expression cannot be used: every fault with its place, as cel-go shows them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(String);

/// Why an evaluation gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct EvalError {
    text: String,
    /// Whether a key, field or index is missing, which optionals forgive.
    absent: bool,
}

impl EvalError {
    /// An error of this text.
    pub fn new(text: impl Into<String>) -> EvalError {
        EvalError { text: text.into(), absent: false }
    }
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Program {
    source: String,
    root: parse::Expr,
}

impl Program {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`CompileError`] when it does not follow the grammar.
    pub fn compile(source: &str) -> Result<Program, CompileError> {
        let root = parse::parse(source).map_err(|fault| CompileError(fault.shown(source)))?;
        Ok(Program { source: source.to_owned(), root })
    }

    /// Reads an expression and holds it against the types of its variables.
    ///
    /// # Errors
    /// [`CompileError`] also when names, fields or overloads do not exist.
    pub fn compile_typed(
        source: &str,
        variables: &dyn Fn(&str) -> Option<Type>,
    ) -> Result<(Program, Type), CompileError> {
        let program = Program::compile(source)?;
        let ty = program.check(variables)?;
        Ok((program, ty))
    }

    /// The type of the expression, given those of its variables.
    ///
    /// # Errors
    /// [`CompileError`] when names, fields or overloads do not exist.
    pub fn check(&self, variables: &dyn Fn(&str) -> Option<Type>) -> Result<Type, CompileError> {
        let (ty, faults) = check::check(&self.root, variables);
        if faults.is_empty() {
            return Ok(ty);
        }
        let shown: Vec<String> = faults.iter().map(|fault| fault.shown(&self.source)).collect();
        Err(CompileError(shown.join("\n")))
    }

    /// Whether the expression names this variable.
    pub fn mentions(&self, name: &str) -> bool {
        check::mentions(&self.root, name)
    }

    /// The expression's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates the expression; `variables` gives the values of names.
    ///
    /// # Errors
    /// [`EvalError`] in cel-go's words.
    pub fn evaluate(&self, variables: &dyn Fn(&str) -> Option<Result<Value, EvalError>>) -> Result<Value, EvalError> {
        eval::evaluate(&self.root, variables)
    }
}
