//! What extenders answered in a cycle, kept so that a recording can be decided again without asking anybody.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use scheduler_core::framework::{ExtenderFilterResult, MetaVictims};
use serde_json::{Value, json};

/// One answer, or why there was none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// The extender's position among those of the configuration as they are called.
    pub(crate) extender: usize,
    /// What was asked: `filter`, `prioritize` or `preempt`.
    pub(crate) verb: String,
    /// What it said.
    pub(crate) result: Result<Value, String>,
}

impl Answer {
    /// As a line of a recording has it.
    pub(crate) fn to_json(&self) -> Value {
        let (answer, error) = match &self.result {
            Ok(answer) => (answer.clone(), Value::Null),
            Err(error) => (Value::Null, json!(error)),
        };
        json!({ "position": self.extender, "verb": self.verb, "answer": answer, "error": error })
    }

    /// From a line of a recording; `None` if it is malformed.
    pub(crate) fn from_json(line: &Value) -> Option<Self> {
        let extender = usize::try_from(line["position"].as_u64()?).ok()?;
        let result = match line["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(line["answer"].clone()),
        };
        Some(Self { extender, verb: line["verb"].as_str()?.to_owned(), result })
    }
}

/// Answers in the order in which each extender gave them; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerLog(Arc<Mutex<Vec<Answer>>>);

impl AnswerLog {
    pub(super) fn push(&self, answer: Answer) {
        lock(&self.0).push(answer);
    }

    /// What was answered since the last call, extender by extender.
    pub(crate) fn take(&self) -> Vec<Answer> {
        let mut answers = std::mem::take(&mut *lock(&self.0));
        // Scores of several are asked for at the same time.
        answers.sort_by_key(|answer| answer.extender);
        answers
    }
}

/// Answers of one extender in a recording, still to be given.
#[derive(Debug, Default)]
pub(super) struct Recorded(Mutex<VecDeque<Answer>>);

impl Recorded {
    pub(super) fn push(&self, answer: Answer) {
        lock(&self.0).push_back(answer);
    }

    /// The next answer.
    ///
    /// # Errors
    /// It was an error, or the recording has no answer to this question.
    pub(super) fn next(&self, verb: &str, extender: &str) -> Result<Value, String> {
        match lock(&self.0).pop_front() {
            Some(answer) if answer.verb == verb => answer.result,
            _ => Err(format!("the recording has no answer of extender {extender} to {verb}")),
        }
    }
}

/// Each change is one call, so a panic elsewhere leaves the list whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn filter_to_json(result: &ExtenderFilterResult) -> Value {
    let messages = |failed: &BTreeMap<Arc<str>, String>| {
        failed.iter().map(|(node, message)| (node.to_string(), json!(message))).collect::<serde_json::Map<_, _>>()
    };
    json!({
        "nodes": result.nodes.iter().map(|node| &**node).collect::<Vec<&str>>(),
        "failed": messages(&result.failed),
        "failedAndUnresolvable": messages(&result.failed_and_unresolvable),
    })
}

pub(super) fn filter_from_json(value: &Value) -> ExtenderFilterResult {
    let messages = |failed: &Value| {
        let entries = failed.as_object().into_iter().flatten();
        entries.map(|(node, text)| (Arc::from(&**node), text.as_str().unwrap_or_default().to_owned())).collect()
    };
    ExtenderFilterResult {
        nodes: texts(&value["nodes"]),
        failed: messages(&value["failed"]),
        failed_and_unresolvable: messages(&value["failedAndUnresolvable"]),
    }
}

pub(super) fn scores_to_json(scores: &[(Arc<str>, i64)]) -> Value {
    scores.iter().map(|(node, score)| json!([**node, score])).collect()
}

pub(super) fn scores_from_json(value: &Value) -> Vec<(Arc<str>, i64)> {
    let score = |pair: &Value| Some((Arc::from(pair[0].as_str()?), pair[1].as_i64()?));
    value.as_array().into_iter().flatten().filter_map(score).collect()
}

pub(super) fn victims_to_json(victims: &BTreeMap<Arc<str>, MetaVictims>) -> Value {
    let of_node = |victims: &MetaVictims| {
        let uids: Vec<&str> = victims.uids.iter().map(|uid| &**uid).collect();
        json!({ "uids": uids, "pdbViolations": victims.n_pdb_violations })
    };
    let by_node = victims.iter().map(|(node, victims)| (node.to_string(), of_node(victims)));
    Value::Object(by_node.collect())
}

pub(super) fn victims_from_json(value: &Value) -> BTreeMap<Arc<str>, MetaVictims> {
    let of_node = |victims: &Value| MetaVictims {
        uids: texts(&victims["uids"]),
        n_pdb_violations: victims["pdbViolations"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
    };
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(node, victims)| (Arc::from(&**node), of_node(victims))).collect()
}

fn texts(list: &Value) -> Vec<Arc<str>> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(Arc::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_out_of_a_recording_as_they_went_in() {
        let filtered = ExtenderFilterResult {
            nodes: vec!["a".into()],
            failed: [("b".into(), "later".to_owned())].into(),
            failed_and_unresolvable: [("c".into(), String::new())].into(),
        };
        assert_eq!(filter_from_json(&filter_to_json(&filtered)), filtered);
        let scores = vec![("a".into(), 10), ("a".into(), -3)];
        assert_eq!(scores_from_json(&scores_to_json(&scores)), scores);
        let victims = BTreeMap::from([("n".into(), MetaVictims { uids: vec!["u".into()], n_pdb_violations: 2 })]);
        assert_eq!(victims_from_json(&victims_to_json(&victims)), victims);
        for result in [Ok(json!([1])), Err("no".to_owned())] {
            let answer = Answer { extender: 3, verb: "filter".to_owned(), result };
            assert_eq!(Answer::from_json(&answer.to_json()), Some(answer));
        }
    }

    #[test]
    fn what_was_not_asked_then_has_no_answer_now() {
        let recorded = Recorded::default();
        recorded.push(Answer { extender: 0, verb: "filter".to_owned(), result: Ok(json!(1)) });
        assert_eq!(recorded.next("filter", "x"), Ok(json!(1)));
        let want = "the recording has no answer of extender x to filter";
        assert_eq!(recorded.next("filter", "x"), Err(want.to_owned()));
    }
}
