//! Why a pod is where it is, or why it fits nowhere and what would let it in. The engine is asked; nothing is guessed.

pub(crate) mod remedy;
mod suggest;
mod what_if;

use std::collections::BTreeMap;

use scheduler_core::engine::{Examination, PostFilterOutcome};
use scheduler_core::framework::NominatedNode;
use serde_json::{Value, json};

pub(crate) use remedy::{Remedy, Step};
pub(crate) use what_if::WhatIf;

/// Everything that keeps a pod off the nodes: plugin by plugin, not only the first.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// `node -> plugin -> reasons`; a node that fits has none.
    pub(crate) nodes: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// What holds the pod back as a whole, if anything: the plugin and its reasons.
    pub(crate) whole: Option<(String, Vec<String>)>,
    /// What preemption would do.
    pub(crate) preemption: Option<String>,
}

impl Verdicts {
    /// What an examination says.
    pub(crate) fn new(examination: &Examination) -> Self {
        let texts =
            |reasons: &[std::borrow::Cow<'static, str>]| reasons.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut verdicts = Self::default();
        if let Some((plugin, reasons)) = &examination.gated {
            verdicts.whole = Some(((*plugin).to_owned(), texts(reasons)));
        } else if let Some(rejection) = &examination.pre_filter.rejection {
            let plugin = rejection.plugin.unwrap_or("PreFilter").to_owned();
            verdicts.whole = Some((plugin, texts(&rejection.reasons)));
        } else if let Some(error) = &examination.error {
            verdicts.whole = Some(("error".to_owned(), vec![error.clone()]));
        }
        for (node, rejection) in &examination.filter {
            let mut plugins: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (plugin, alone) in examination.filter_all.get(node).into_iter().flatten() {
                plugins.insert((*plugin).to_owned(), texts(&alone.reasons));
            }
            if let Some(rejection) = rejection.as_ref().filter(|_| plugins.is_empty()) {
                let plugin = rejection.plugin.unwrap_or("NodeAffinity");
                plugins.insert(plugin.to_owned(), texts(&rejection.reasons));
            }
            verdicts.nodes.insert(node.to_string(), plugins);
        }
        verdicts.preemption = examination.post_filter.as_ref().map(|outcome| match outcome {
            PostFilterOutcome::Success(NominatedNode::Set(node)) => format!("pods on {node} would be evicted for it"),
            PostFilterOutcome::Success(_) => "it would wait for pods that are going already".to_owned(),
            PostFilterOutcome::Unschedulable(text) | PostFilterOutcome::Error(text) => text.clone(),
        });
        verdicts
    }

    /// The same as data.
    pub(crate) fn to_json(&self) -> Value {
        let nodes: serde_json::Map<String, Value> = self
            .nodes
            .iter()
            .map(|(node, plugins)| {
                (node.clone(), json!({"fits": plugins.is_empty() && self.whole.is_none(), "rejectedBy": plugins}))
            })
            .collect();
        json!({
            "nodes": nodes,
            "podRejectedBy": self.whole.as_ref().map(|(plugin, reasons)| json!({"plugin": plugin, "reasons": reasons})),
            "preemption": self.preemption,
        })
    }
}
