//! Why the scheduler put a pod where it is: the decision record of its attempt, as text and as data.

use std::fmt::Write as _;

use scheduler_core::engine::{Attempt, DecisionRecord, NodeVerdict, Outcome};
use serde_json::{Value, json};

use crate::columns::align;
use crate::counted::counted;
use crate::explain::Verdicts;

/// Most node columns of a score table; the best ones are shown.
const MAX_COLUMNS: usize = 6;

/// One attempt, reduced to what is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// Namespace of the pod.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) pod: String,
    /// Its uid.
    uid: String,
    /// Where it goes, if anywhere.
    node: Option<String>,
    /// All nodes.
    nodes: Vec<String>,
    /// How many of them fit; `None` if the search ended before that was known of each.
    n_fit: Option<usize>,
    /// Why nodes were filtered out.
    filtered: Vec<Filtered>,
    /// Weighted scores of the nodes that fit.
    scores: Vec<PluginScores>,
    /// Sums of the weighted scores, best first.
    totals: Vec<(String, i64)>,
    /// The scheduler's message when the pod fits nowhere.
    message: Option<String>,
}

#[derive(Clone, Debug)]
struct Filtered {
    node: String,
    plugin: String,
    reasons: Vec<String>,
}

impl Filtered {
    /// Its reasons; an extender may leave a node out without one.
    fn why(&self) -> String {
        if self.reasons.is_empty() { "left out without a reason".to_owned() } else { self.reasons.join(", ") }
    }
}

#[derive(Clone, Debug)]
struct PluginScores {
    plugin: String,
    weight: i64,
    /// Node and weighted score.
    nodes: Vec<(String, i64)>,
}

impl Choice {
    /// What `attempt` decided.
    pub(crate) fn new(attempt: &Attempt) -> Self {
        let (node, message) = match &attempt.outcome {
            Outcome::Scheduled { node, .. } => (Some(node.to_string()), None),
            Outcome::Unschedulable { message, .. } | Outcome::Error { message } => (None, Some(message.clone())),
            Outcome::Skipped => (None, None),
        };
        let mut choice = Self {
            namespace: attempt.pod.namespace.to_string(),
            pod: attempt.pod.name.to_string(),
            uid: attempt.pod.uid.to_string(),
            node,
            message,
            ..Self::default()
        };
        if let Some(record) = &attempt.record {
            choice.take(record);
        }
        choice
    }

    fn take(&mut self, record: &DecisionRecord) {
        self.nodes = record.nodes.iter().map(ToString::to_string).collect();
        self.n_fit = Some(record.verdicts.iter().filter(|verdict| **verdict == NodeVerdict::Feasible).count());
        for (node, verdict) in record.nodes.iter().zip(&record.verdicts) {
            if let NodeVerdict::Rejected { plugin, reasons, .. } = verdict {
                let reasons = reasons.iter().map(ToString::to_string).collect();
                self.filtered.push(Filtered { node: node.to_string(), plugin: (*plugin).to_owned(), reasons });
            }
        }
        let name = |position: &u32| record.nodes.get(*position as usize).map(ToString::to_string).unwrap_or_default();
        let names: Vec<String> = record.scored.iter().map(name).collect();
        for scores in &record.scores {
            let weighted = scores.normalized.iter().map(|score| score * scores.weight);
            let nodes = names.iter().cloned().zip(weighted).collect();
            self.scores.push(PluginScores { plugin: scores.plugin.to_owned(), weight: scores.weight, nodes });
        }
        self.totals = names.into_iter().zip(record.totals.iter().copied()).collect();
        self.totals.sort_by(|(a, left), (b, right)| right.cmp(left).then_with(|| a.cmp(b)));
    }

    /// Adds why nodes were left out that the scheduler did not look at one by one.
    pub(crate) fn add_verdicts(&mut self, verdicts: &Verdicts) {
        for (node, plugins) in &verdicts.nodes {
            let known = self.filtered.iter().any(|filtered| filtered.node == *node);
            if let Some((plugin, reasons)) = plugins.first_key_value().filter(|_| !known) {
                self.filtered.push(Filtered { node: node.clone(), plugin: plugin.clone(), reasons: reasons.clone() });
            }
        }
    }

    /// How many nodes fit.
    fn n_fit(&self) -> usize {
        self.n_fit.unwrap_or_else(|| self.nodes.len().saturating_sub(self.filtered.len()))
    }

    /// Where the pod goes, if anywhere.
    pub(crate) fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Whether both are attempts for one pod.
    #[cfg(feature = "offline-cluster")]
    pub(crate) fn is_same_pod(&self, other: &Self) -> bool {
        self.uid == other.uid
    }

    /// The attempt as steps of the story: stage and what was done.
    #[cfg(feature = "offline-cluster")]
    pub(crate) fn steps(&self) -> Vec<(&'static str, String)> {
        let n_fit = self.n_fit();
        let mut filter = format!("{n_fit} of {} {}", counted(self.nodes.len(), "node"), fit(self.nodes.len()));
        if !self.filtered.is_empty() {
            let _ = write!(filter, ": {}", self.rejections().join("; "));
        }
        let mut steps = vec![("filter", filter)];
        if !self.totals.is_empty() {
            let best: Vec<_> = self.totals.iter().take(3).map(|(node, total)| format!("{node} {total}")).collect();
            let rest = if self.totals.len() > 3 { ", …" } else { "" };
            steps.push(("score", format!("{}{rest}", best.join(", "))));
        }
        match (&self.node, &self.message) {
            (Some(node), _) => steps.push(("decide", format!("{node}{}", self.tie()))),
            (None, Some(message)) => steps.push(("decide", message.clone())),
            (None, None) => {}
        }
        steps
    }

    /// What keeps the pod off `node`, or how far behind the chosen node it is; `None` if there is no such node.
    pub(crate) fn why_not(&self, node: &str) -> Option<String> {
        if self.node.as_deref() == Some(node) {
            return Some("it is the chosen node".to_owned());
        }
        if let Some(filtered) = self.filtered.iter().find(|filtered| filtered.node == node) {
            let by = if filtered.plugin.is_empty() { "a node list cut before filtering" } else { &filtered.plugin };
            return Some(format!("filtered out by {by}: {}", filtered.why()));
        }
        let total = self.totals.iter().find(|(name, _)| name == node).map(|(_, total)| *total);
        let best = self.totals.first().map(|(_, total)| *total);
        match (total, best) {
            (Some(total), Some(best)) if total == best => {
                Some(format!("it fits and has the best score too, {total}; another one was drawn"))
            }
            (Some(total), Some(best)) => {
                Some(format!("it fits, but scores {total}, {} less than the best", best - total))
            }
            _ if self.nodes.iter().any(|name| name == node) => Some("it was not looked at".to_owned()),
            _ => None,
        }
    }

    fn tie(&self) -> String {
        let best = self.totals.first().map(|(_, total)| *total);
        let n_tied = self.totals.iter().filter(|(_, total)| Some(*total) == best).count();
        if n_tied > 1 { format!(", drawn among the {n_tied} best") } else { String::new() }
    }

    /// Nodes that were filtered out, those with the same reason together.
    fn rejections(&self) -> Vec<String> {
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for filtered in &self.filtered {
            let why = format!("{} ({})", filtered.why(), filtered.plugin);
            match groups.iter_mut().find(|(known, _)| *known == why) {
                Some((_, nodes)) => nodes.push(&filtered.node),
                None => groups.push((why, vec![&filtered.node])),
            }
        }
        groups
            .into_iter()
            .map(|(why, nodes)| match nodes.as_slice() {
                [first, second, third, rest @ ..] if !rest.is_empty() => {
                    format!("{first}, {second}, {third} and {} more {why}", rest.len())
                }
                few => format!("{} {why}", few.join(", ")),
            })
            .collect()
    }

    /// A paragraph and a table of scores.
    pub(crate) fn text(&self) -> String {
        let n_fit = self.n_fit();
        let mut text = match &self.node {
            Some(node) => {
                let nodes = counted(self.nodes.len(), "node");
                format!("  {} → {node}{} ({n_fit} of {nodes} {})\n", self.pod, self.tie(), fit(self.nodes.len()))
            }
            None => format!("  {} → nowhere: {}\n", self.pod, self.message.as_deref().unwrap_or("no node fits")),
        };
        for rejection in self.rejections() {
            let _ = writeln!(text, "    filtered out: {rejection}");
        }
        if !self.totals.is_empty() {
            for line in align(&self.score_lines()).lines() {
                let _ = writeln!(text, "    {line}");
            }
        }
        text
    }

    fn score_lines(&self) -> Vec<Vec<String>> {
        let columns: Vec<&str> = self.totals.iter().take(MAX_COLUMNS).map(|(node, _)| node.as_str()).collect();
        let cells = |scores: &[(String, i64)]| -> Vec<String> {
            columns
                .iter()
                .map(|column| {
                    scores
                        .iter()
                        .find(|(node, _)| node == column)
                        .map_or_else(String::new, |(_, score)| score.to_string())
                })
                .collect()
        };
        let mut lines =
            vec![[vec!["score by plugin".to_owned()], columns.iter().map(ToString::to_string).collect()].concat()];
        for plugin in &self.scores {
            // A plugin that gives every node the same decides nothing.
            if plugin.nodes.iter().any(|(_, score)| *score != plugin.nodes[0].1)
                || plugin.nodes.iter().any(|(_, score)| *score != 0)
            {
                lines.push([vec![format!("{} ×{}", plugin.plugin, plugin.weight)], cells(&plugin.nodes)].concat());
            }
        }
        lines.push([vec!["total".to_owned()], cells(&self.totals)].concat());
        lines
    }

    /// The same as data.
    pub(crate) fn to_json(&self) -> Value {
        let pairs = |pairs: &[(String, i64)]| -> Value {
            pairs.iter().map(|(node, score)| (node.clone(), json!(score))).collect::<serde_json::Map<_, _>>().into()
        };
        json!({
            "namespace": self.namespace,
            "pod": self.pod,
            "uid": self.uid,
            "node": self.node,
            "nodes": self.nodes.len(),
            "filtered": self.filtered.iter().map(|filtered| json!({
                "node": filtered.node, "plugin": filtered.plugin, "reasons": filtered.reasons,
            })).collect::<Vec<_>>(),
            "scores": self.scores.iter().map(|scores| json!({
                "plugin": scores.plugin, "weight": scores.weight, "weighted": pairs(&scores.nodes),
            })).collect::<Vec<_>>(),
            "totals": pairs(&self.totals),
            "message": self.message,
        })
    }
}

/// Behind `N of M nodes`.
fn fit(n_nodes: usize) -> &'static str {
    if n_nodes == 1 { "fits" } else { "fit" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice() -> Choice {
        let rejected = |node: &str| Filtered {
            node: node.into(),
            plugin: "NodeResourcesFit".into(),
            reasons: vec!["Insufficient cpu".into()],
        };
        Choice {
            namespace: "default".into(),
            pod: "web".into(),
            uid: "u".into(),
            node: Some("b".into()),
            nodes: ["a", "b", "c", "d"].map(str::to_owned).into(),
            n_fit: Some(2),
            filtered: vec![rejected("c"), rejected("d")],
            scores: vec![
                PluginScores {
                    plugin: "NodeResourcesFit".into(),
                    weight: 1,
                    nodes: vec![("a".into(), 80), ("b".into(), 93)],
                },
                PluginScores {
                    plugin: "NodeAffinity".into(),
                    weight: 2,
                    nodes: vec![("a".into(), 0), ("b".into(), 0)],
                },
            ],
            totals: vec![("b".into(), 93), ("a".into(), 80)],
            message: None,
        }
    }

    #[test]
    fn a_choice_tells_who_was_filtered_out_and_the_scores() {
        assert_eq!(
            choice().text(),
            "  web → b (2 of 4 nodes fit)\n    filtered out: c, d Insufficient cpu (NodeResourcesFit)\n    score by plugin       b    a\n    NodeResourcesFit ×1   93   80\n    total                 93   80\n"
        );
    }

    #[test]
    fn why_not_another_node() {
        let mut choice = choice();
        let silent = Filtered { node: "e".into(), plugin: "Extender".into(), reasons: Vec::new() };
        choice.filtered.push(silent);
        for (node, want) in [
            ("a", Some("it fits, but scores 80, 13 less than the best")),
            ("b", Some("it is the chosen node")),
            ("c", Some("filtered out by NodeResourcesFit: Insufficient cpu")),
            ("e", Some("filtered out by Extender: left out without a reason")),
            ("z", None),
        ] {
            assert_eq!(choice.why_not(node).as_deref(), want, "{node}");
        }
    }

    #[test]
    fn nodes_that_were_not_looked_at_get_their_reason() {
        let mut choice = Choice { filtered: Vec::new(), n_fit: Some(1), ..choice() };
        let mut verdicts = Verdicts::default();
        let against = |plugin: &str, why: &str| [(plugin.to_owned(), vec![why.to_owned()])].into();
        verdicts.nodes.insert("c".to_owned(), against("NodeAffinity", "wrong name"));
        verdicts.nodes.insert("a".to_owned(), std::collections::BTreeMap::new());
        choice.add_verdicts(&verdicts);
        assert_eq!(choice.why_not("c").as_deref(), Some("filtered out by NodeAffinity: wrong name"));
        assert!(choice.text().starts_with("  web → b (1 of 4 nodes fit)\n    filtered out: c wrong name"));
    }

    #[cfg(feature = "offline-cluster")]
    #[test]
    fn steps_are_short() {
        let steps: Vec<_> = choice().steps().into_iter().map(|(stage, what)| format!("{stage}: {what}")).collect();
        assert_eq!(
            steps,
            ["filter: 2 of 4 nodes fit: c, d Insufficient cpu (NodeResourcesFit)", "score: b 93, a 80", "decide: b"]
        );
    }

    #[test]
    fn a_tie_is_said() {
        let mut choice = choice();
        choice.totals[1].1 = 93;
        assert!(choice.text().contains("web → b, drawn among the 2 best"), "{}", choice.text());
    }
}
