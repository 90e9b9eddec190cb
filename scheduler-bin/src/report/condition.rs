//! Conditions on a report, such as `pending>0 || fragmentation.cpu>5%`: read strictly, checked against a run's summary.
//!
//! ```text
//! condition  = and { "||" and }
//! and        = unary { "&&" unary }
//! unary      = "!" unary | "(" condition ")" | operand ( ">" | ">=" | "<" | "<=" | "==" | "!=" ) operand
//! operand    = figure | number [ "%" | "ms" | "s" | "m" | "h" | "d" ]
//! ```

use std::fmt;

use super::Summary;
use super::definitions::DEFINITIONS;

/// A condition that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// One of them holds.
    Or(Vec<Self>),
    /// All hold.
    And(Vec<Self>),
    /// It does not hold.
    Not(Box<Self>),
    /// Two amounts are compared.
    Compare(Operand, Comparison, Operand),
}

/// An amount.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    /// A number; spans are in seconds, percentages are shares.
    Number(f64),
    /// A figure of the summary.
    Figure(String),
}

/// How two amounts are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// `>`
    More,
    /// `>=`
    MoreOrEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `==`
    Equal,
    /// `!=`
    Unequal,
}

/// Deepest nesting of parentheses and negations.
const MAX_DEPTH: usize = 64;

/// Operators, longest first.
const OPERATORS: [(&str, Comparison); 6] = [
    (">=", Comparison::MoreOrEqual),
    ("<=", Comparison::LessOrEqual),
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    (">", Comparison::More),
    ("<", Comparison::Less),
];

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionError {
    text: String,
    at: usize,
    expected: String,
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "condition {:?}: at character {}: expected {}",
            self.text,
            self.text[..self.at].chars().count() + 1,
            self.expected
        )
    }
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// The text does not follow the grammar, or names a figure that there is not.
    pub(crate) fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let condition = parser.or()?;
        parser.blank();
        if parser.at < text.len() { Err(parser.wrong("&&, || or the end")) } else { Ok(condition) }
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// It names a resource that the nodes do not have, or a figure that was not measured.
    pub(crate) fn holds(&self, summary: &Summary) -> Result<bool, String> {
        Ok(match self {
            Self::Or(parts) => {
                // All are looked at, so that a wrong name is told whatever stands before it.
                parts.iter().map(|part| part.holds(summary)).collect::<Result<Vec<_>, _>>()?.contains(&true)
            }
            Self::And(parts) => {
                !parts.iter().map(|part| part.holds(summary)).collect::<Result<Vec<_>, _>>()?.contains(&false)
            }
            Self::Not(part) => !part.holds(summary)?,
            Self::Compare(left, comparison, right) => {
                let (left, right) = (left.amount(summary)?, right.amount(summary)?);
                match comparison {
                    Comparison::More => left > right,
                    Comparison::MoreOrEqual => left >= right,
                    Comparison::Less => left < right,
                    Comparison::LessOrEqual => left <= right,
                    Comparison::Equal => left == right,
                    Comparison::Unequal => left != right,
                }
            }
        })
    }
}

impl Operand {
    fn amount(&self, summary: &Summary) -> Result<f64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Figure(name) => figure(name, summary),
        }
    }
}

/// A figure by its name.
fn figure(name: &str, summary: &Summary) -> Result<f64, String> {
    if let Some((family, resource)) = name.split_once('.').filter(|(family, _)| *family != "wait") {
        let by_resource = match family {
            "utilisation" | "utilization" => &summary.utilisation,
            "meanUtilisation" | "meanUtilization" => &summary.mean_utilisation,
            "fragmentation" => &summary.fragmentation,
            _ => &summary.imbalance,
        };
        return by_resource.get(resource).copied().ok_or_else(|| {
            let known: Vec<_> = by_resource.keys().map(|resource| format!("{family}.{resource}")).collect();
            format!("no node offers {resource}, so there is no {name}; there are {}", known.join(", "))
        });
    }
    let waits = &summary.wait_seconds;
    let missing = |why: &str| format!("{name} was not measured: {why}");
    Ok(match name {
        "nodes" => summary.nodes as f64,
        "pods" => summary.pods as f64,
        "scheduled" => summary.pods_scheduled as f64,
        "unschedulable" => summary.pods_unschedulable as f64,
        "pending" => summary.pods_pending as f64,
        "otherSchedulers" => summary.pods_of_other_schedulers as f64,
        "left" => summary.pods_left as f64,
        "preemptions" => summary.preemptions as f64,
        "displaced" => summary.displaced as f64,
        "attempts" => summary.attempts as f64,
        "wait.mean" => waits.mean,
        "wait.median" => waits.median,
        "wait.p90" => waits.p90,
        "wait.p99" => waits.p99,
        "wait.max" => waits.max,
        "nodeHours" => summary.node_hours,
        "cost" => summary.cost.ok_or_else(|| missing("no --price was given"))?,
        "costPerHour" => summary.cost_per_hour.ok_or_else(|| missing("no --price was given"))?,
        "engineMillis" => summary.engine_millis.ok_or_else(|| missing("--reproducible leaves it out"))?,
        _ => summary.decisions_per_second.ok_or_else(|| missing("--reproducible leaves it out"))?,
    })
}

fn is_figure(name: &str) -> bool {
    DEFINITIONS.iter().flat_map(|(names, _, _)| names.split(", ")).any(|known| match known.strip_suffix("RESOURCE") {
        Some(family) => {
            let spelled = name.replace("tilization", "tilisation");
            spelled.strip_prefix(family).is_some_and(|resource| !resource.is_empty())
        }
        None => known == name,
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn or(&mut self) -> Result<Condition, ConditionError> {
        let mut parts = vec![self.and()?];
        while self.skip("||") {
            parts.push(self.and()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::Or(parts) })
    }

    fn and(&mut self) -> Result<Condition, ConditionError> {
        let mut parts = vec![self.unary()?];
        while self.skip("&&") {
            parts.push(self.unary()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::And(parts) })
    }

    fn unary(&mut self) -> Result<Condition, ConditionError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong("less nesting"));
        }
        let condition = if self.skip("(") {
            let inner = self.or()?;
            if !self.skip(")") {
                return Err(self.wrong(")"));
            }
            inner
        } else if self.skip("!") {
            Condition::Not(Box::new(self.unary()?))
        } else {
            let left = self.operand()?;
            let Some((_, comparison)) = OPERATORS.iter().find(|(sign, _)| self.skip(sign)) else {
                return Err(self.wrong("one of > >= < <= == !="));
            };
            Condition::Compare(left, *comparison, self.operand()?)
        };
        self.depth -= 1;
        Ok(condition)
    }

    fn operand(&mut self) -> Result<Operand, ConditionError> {
        self.blank();
        let rest = &self.text[self.at..];
        let length = |allowed: &dyn Fn(char) -> bool| rest.find(|c| !allowed(c)).unwrap_or(rest.len());
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            let end = length(&|c| c.is_ascii_digit() || c == '.');
            let number: f64 = rest[..end].parse().map_err(|_| self.wrong("a number"))?;
            let unit = &rest[end..end
                + rest[end..].find(|c: char| !(c.is_ascii_alphabetic() || c == '%')).unwrap_or(rest.len() - end)];
            let factor = match unit {
                "" | "s" => 1.0,
                "%" => 0.01,
                "ms" => 0.001,
                "m" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                _ => {
                    self.at += end;
                    return Err(self.wrong("a unit of %, ms, s, m, h or d"));
                }
            };
            self.at += end + unit.len();
            return Ok(Operand::Number(number * factor));
        }
        let end = length(&|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_'));
        let name = &rest[..end];
        if name.is_empty() {
            return Err(self.wrong("a figure or a number"));
        }
        if !is_figure(name) {
            let known: Vec<&str> = DEFINITIONS.iter().map(|(name, _, _)| *name).collect();
            return Err(self.wrong(&format!("one of {}", known.join(", "))));
        }
        self.at += end;
        Ok(Operand::Figure(name.to_owned()))
    }

    fn skip(&mut self, sign: &str) -> bool {
        self.blank();
        let found = self.text[self.at..].starts_with(sign);
        // A negation is not the first half of an inequality.
        if !found || (sign == "!" && self.text[self.at..].starts_with("!=")) {
            return false;
        }
        self.at += sign.len();
        true
    }

    fn blank(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn wrong(&self, expected: &str) -> ConditionError {
        ConditionError { text: self.text.to_owned(), at: self.at, expected: expected.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            pods_pending: 3,
            pods_scheduled: 10,
            fragmentation: [("cpu".into(), 0.04), ("nvidia.com/gpu".into(), 0.5)].into(),
            wait_seconds: super::super::Waits { p99: 90.0, ..super::super::Waits::default() },
            ..Summary::default()
        }
    }

    #[test]
    fn conditions_hold_or_do_not() {
        for (text, want) in [
            ("pending>0", true),
            ("pending>0 || fragmentation.cpu>5%", true),
            ("pending>3||fragmentation.cpu>5%", false),
            ("pending>=3 && fragmentation.nvidia.com/gpu == 50%", true),
            ("!(pending > 0)", false),
            ("! pending == 2 && scheduled != 11", true),
            ("wait.p99 > 1m && wait.p99 <= 90s", true),
            ("0 < pending", true),
            ("(pending>5 || pending<4) && scheduled==10", true),
            ("pending>5 || pending<4 && scheduled==0", false),
        ] {
            let condition = Condition::parse(text).expect(text);
            assert_eq!(condition.holds(&summary()), Ok(want), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_where_they_are_wrong() {
        for (text, at) in [
            ("", "character 1: expected a figure or a number"),
            ("pending", "character 8: expected one of >"),
            ("pending >", "character 10: expected a figure"),
            ("pending = 0", "character 9: expected one of >"),
            ("pendin > 0", "character 1: expected one of nodes, pods"),
            ("fragmentation. > 0", "character 1: expected one of nodes"),
            ("pending > 5 parsecs", "character 13: expected &&"),
            ("pending > 5x", "character 12: expected a unit"),
            ("pending > 1.2.3", "character 11: expected a number"),
            ("(pending > 0", "character 13: expected )"),
            ("pending > 0 | pending > 1", "character 13: expected &&"),
        ] {
            let error = Condition::parse(text).expect_err(text).to_string();
            assert!(error.contains(at), "{error}");
        }
        assert!(Condition::parse(&"(".repeat(10_000)).is_err(), "too deep");
    }

    #[test]
    fn what_was_not_measured_is_told() {
        let holds = |text: &str| Condition::parse(text).expect(text).holds(&summary()).expect_err(text);
        assert!(
            holds("pending>0 || fragmentation.example.com/x>0")
                .contains("there are fragmentation.cpu, fragmentation.nvidia.com/gpu")
        );
        assert!(holds("cost > 1").contains("no --price was given"));
    }
}
