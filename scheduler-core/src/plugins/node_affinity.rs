//! NodeAffinity: nodeSelector, required and preferred node affinity, and the profile's added affinity.
//! Upstream: plugins/nodeaffinity (v1.36.2).

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cache::{Candidates, Indexes, NodeIdx, NodeMatcher, NodeView, Objects, SlotRun, add_where};
use crate::config::affinity as config;
use crate::config::args::NodeAffinityArgs;
use crate::framework::{
    ActionType, ClusterEvent, ClusterView, Cycle, CycleState, EnqueueExtensions, EventFilter, EventResource,
    FilterPlugin, FilterStatus, Hint, Plugin, PluginError, PreFilterStatus, PreScoreStatus, Reason, Result, Reuse,
    ScorePlugin, Sharing, Signature, default_normalize_score, normalize_to,
};
use crate::model::{NodeSelector, NodeSelectorTerm, Object, Operator, Pod, PreferredSchedulingTerm, Requirement};

const REASON_POD: &str = "node(s) didn't match Pod's node affinity/selector";
const REASON_ENFORCED: &str = "node(s) didn't match scheduler-enforced node affinity";
const REASON_CONFLICT: &str = "pod affinity terms conflict";

/// Compares nodes with node selectors.
#[derive(Debug, Default)]
pub struct NodeAffinity {
    added: Option<NodeSelector>,
    added_preferred: Option<Box<[PreferredSchedulingTerm]>>,
}

impl NodeAffinity {
    /// Name in configurations.
    pub const NAME: &'static str = "NodeAffinity";

    /// Takes the profile's added affinity from the arguments.
    #[must_use]
    pub fn new(args: &NodeAffinityArgs) -> Self {
        let Some(added) = &args.added_affinity else { return Self::default() };
        let preferred: Box<[_]> = added
            .preferred
            .iter()
            .map(|term| PreferredSchedulingTerm { weight: term.weight, term: term_of(&term.preference) })
            .collect();
        Self {
            added: added.required.as_ref().map(|terms| NodeSelector { terms: terms.iter().map(term_of).collect() }),
            added_preferred: (!preferred.is_empty()).then_some(preferred),
        }
    }
}

/// The configuration is validated: an operator that is none of the known ones does not get here.
fn term_of(term: &config::NodeSelectorTerm) -> NodeSelectorTerm {
    let requirements = |list: &[config::NodeSelectorRequirement]| {
        list.iter()
            .map(|requirement| {
                let mut values: Vec<Arc<str>> = requirement.values.iter().map(|value| value.as_str().into()).collect();
                values.sort();
                values.dedup();
                Requirement {
                    key: requirement.key.as_str().into(),
                    operator: match requirement.operator.as_str() {
                        "NotIn" => Operator::NotIn,
                        "Exists" => Operator::Exists,
                        "DoesNotExist" => Operator::DoesNotExist,
                        "Gt" => Operator::Gt,
                        "Lt" => Operator::Lt,
                        _ => Operator::In,
                    },
                    values: values.into(),
                }
            })
            .collect()
    };
    NodeSelectorTerm {
        match_expressions: requirements(&term.match_expressions),
        match_fields: requirements(&term.match_fields),
        invalid: None,
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn require(&self, pod: &Pod, _: &Objects, indexes: &mut Indexes<'_>) {
        NodeMatcher::require(pod, indexes);
        if let Some(added) = &self.added {
            NodeMatcher::require_selector(added, indexes);
        }
        let preferred = pod.affinity.as_deref().map_or(&[][..], |affinity| &affinity.preferred_node);
        for term in preferred.iter().chain(self.added_preferred.iter().flatten()) {
            for requirement in &term.term.match_expressions {
                indexes.label_column(&requirement.key);
            }
        }
    }

    fn sign(&self, Cycle { pod, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        pod.node_selector.hash(signature);
        let affinity = pod.affinity.as_deref();
        affinity.map(|affinity| (&affinity.required_node, &affinity.preferred_node)).hash(signature);
        Sharing::ByNode
    }

    fn looks_at_pods(&self) -> bool {
        false
    }

    fn reuse(&self, _: Cycle<'_>, _: &CycleState) -> Reuse {
        Reuse::Everything
    }
}

/// The pod's selection, compiled where it can be.
#[derive(Debug, Clone)]
pub struct Selection {
    pod: Option<Arc<NodeMatcher>>,
    added: Option<Arc<NodeMatcher>>,
}

impl FilterPlugin for NodeAffinity {
    type State = Selection;

    fn pre_filter(&self, cycle: Cycle<'_>, _: &mut CycleState) -> Result<PreFilterStatus<Selection>> {
        let pod = cycle.pod;
        let required = pod.affinity.as_deref().and_then(|affinity| affinity.required_node.as_deref());
        if required.is_none() && self.added.is_none() && pod.node_selector.is_empty() {
            return Ok(PreFilterStatus::Skip);
        }
        let nodes = match required.map(|selector| node_names(&selector.terms)) {
            Some(Some(names)) if names.is_empty() => return Ok(PreFilterStatus::unresolvable(REASON_CONFLICT)),
            Some(names) => names,
            None => None,
        };
        let state = Selection {
            pod: NodeMatcher::of_pod(pod, cycle.snapshot).map(Arc::new),
            added: self.added.as_ref().and_then(|added| NodeMatcher::of_selector(added, cycle.snapshot)).map(Arc::new),
        };
        Ok(PreFilterStatus::Success { state, nodes })
    }

    fn filter(&self, _: Option<&Selection>, cycle: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        let fits = self.added_matches(node) && cycle.pod.selects_node(node.node());
        Ok(FilterStatus::resolvable_never_unless(fits))
    }

    fn filter_chunk(&self, state: Option<&Selection>, cycle: Cycle<'_>, nodes: &mut Candidates<'_>) -> Result<()> {
        match state.and_then(|state| state.added.as_deref()) {
            Some(added) => added.retain(cycle.snapshot, nodes),
            None if self.added.is_some() => nodes.retain(|node| self.added_matches(cycle.snapshot.view(node))),
            None => {}
        }
        match state.and_then(|state| state.pod.as_deref()) {
            Some(pod) => pod.retain(cycle.snapshot, nodes),
            None => nodes.retain(|node| cycle.pod.selects_node(cycle.snapshot.node(node))),
        }
        Ok(())
    }

    fn reasons(&self, _: Option<&Selection>, _: Cycle<'_>, node: NodeView<'_>, out: &mut Vec<Reason>) {
        let reason = if self.added_matches(node) { REASON_POD } else { REASON_ENFORCED };
        out.push(reason.into());
    }
}

impl NodeAffinity {
    fn added_matches(&self, node: NodeView<'_>) -> bool {
        self.added.as_ref().is_none_or(|added| added.matches(node.name(), node.labels()))
    }
}

/// The nodes that terms restricted to `metadata.name` leave; `None` if a term is not so restricted, or there are none.
fn node_names(terms: &[NodeSelectorTerm]) -> Option<BTreeSet<Arc<str>>> {
    let mut all: Option<BTreeSet<Arc<str>>> = None;
    for term in terms {
        let mut of_term: Option<BTreeSet<Arc<str>>> = None;
        for field in &term.match_fields {
            if field.key.as_ref() == "metadata.name" && field.operator == Operator::In {
                let names: BTreeSet<Arc<str>> = field.values.iter().cloned().collect();
                of_term = Some(match of_term {
                    Some(before) => before.intersection(&names).cloned().collect(),
                    None => names,
                });
            }
        }
        all.get_or_insert_default().extend(of_term?);
    }
    all
}

/// Preferred terms that matter, each compiled where it can be.
#[derive(Debug)]
pub struct Preferences(Vec<(i64, Option<NodeMatcher>, NodeSelectorTerm)>);

impl ScorePlugin for NodeAffinity {
    type State = Preferences;

    fn pre_score(&self, cycle: Cycle<'_>, _: &[NodeIdx], _: &CycleState) -> Result<PreScoreStatus<Preferences>> {
        let own = preferred_terms(cycle.pod)?;
        if own.is_empty() && self.added_preferred.is_none() {
            return Ok(PreScoreStatus::Skip);
        }
        let terms = own.iter().chain(self.added_preferred.iter().flatten()).filter(|term| counts(term));
        Ok(PreScoreStatus::Success(Preferences(
            terms
                .map(|term| {
                    let selector = NodeSelector { terms: [term.term.clone()].into() };
                    let matcher = NodeMatcher::of_selector(&selector, cycle.snapshot);
                    (i64::from(term.weight), matcher, term.term.clone())
                })
                .collect(),
        )))
    }

    /// Does not look at the feasible nodes.
    fn pre_score_mask(
        &self,
        cycle: Cycle<'_>,
        _: Option<&[u64]>,
        shared: &CycleState,
    ) -> Result<Option<PreScoreStatus<Preferences>>> {
        self.pre_score(cycle, &[], shared).map(Some)
    }

    fn score(&self, _: Option<&Preferences>, cycle: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
        let own = preferred_terms(cycle.pod)?;
        let terms = own.iter().chain(self.added_preferred.iter().flatten()).filter(|term| counts(term));
        Ok(terms.filter(|term| term.term.matches(node.name(), node.labels())).map(|term| i64::from(term.weight)).sum())
    }

    fn score_chunk(
        &self,
        state: Option<&Preferences>,
        cycle: Cycle<'_>,
        shared: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let Some(state) = state else {
            for (score, &node) in scores.iter_mut().zip(nodes) {
                *score = self.score(None, cycle, shared, cycle.snapshot.view(node))?;
            }
            return Ok(());
        };
        scores.fill(0);
        for (weight, matcher, term) in &state.0 {
            match matcher {
                Some(matcher) => matcher.for_each_match(cycle.snapshot, nodes, |at| scores[at] += weight),
                None => {
                    for (score, &node) in scores.iter_mut().zip(nodes) {
                        let node = cycle.snapshot.node(node);
                        *score += weight * i64::from(term.matches(&node.name, &node.labels));
                    }
                }
            }
        }
        Ok(())
    }

    fn score_slots(
        &self,
        state: Option<&Preferences>,
        cycle: Cycle<'_>,
        _: &CycleState,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> Result<bool> {
        let Some(Preferences(terms)) = state else { return Ok(false) };
        scores.fill(0);
        for (weight, matcher, _) in terms {
            let Some(matcher) = matcher else { return Ok(false) };
            let mut matching: SmallVec<[u64; 8]> = slots.feasible().into();
            matcher.retain(cycle.snapshot, &mut Candidates::new(slots.first_word(), &mut matching));
            add_where(&matching, *weight, scores);
        }
        Ok(true)
    }

    fn normalize(&self, _: Option<&Preferences>, _: Cycle<'_>, _: &[NodeIdx], scores: &mut [i64]) -> Result<()> {
        default_normalize_score(false, scores);
        Ok(())
    }

    fn normalize_between(&self, _: Option<&Preferences>, _: i64, highest: i64, scores: &mut [i64]) -> bool {
        normalize_to(highest, false, scores);
        true
    }
}

/// An empty term, or one without weight, is ignored. Upstream: component-helpers `NewPreferredSchedulingTerms`.
fn counts(term: &PreferredSchedulingTerm) -> bool {
    term.weight != 0 && !term.term.is_empty()
}

fn preferred_terms(pod: &Pod) -> Result<&[PreferredSchedulingTerm]> {
    let terms = pod.affinity.as_deref().map_or(&[][..], |affinity| &affinity.preferred_node);
    match terms.iter().filter(|term| counts(term)).find_map(|term| term.term.invalid.as_ref()) {
        Some(problem) => Err(PluginError::new(format!("parsing preferred node affinity: {problem}"))),
        None => Ok(terms),
    }
}

impl EnqueueExtensions for NodeAffinity {
    fn events_to_register(&self) -> Vec<EventFilter> {
        vec![EventFilter::new(EventResource::Node, ActionType::ADD | ActionType::UPDATE_NODE_LABEL)]
    }

    fn hint(&self, pod: &Pod, event: &ClusterEvent, _world: ClusterView<'_>) -> Result<Hint> {
        let Some(Object::Node(new)) = &event.new else { return Ok(Hint::Skip) };
        let matches =
            self.added.as_ref().is_none_or(|added| added.matches(&new.name, &new.labels)) && pod.selects_node(new);
        let matched = matches!(&event.old, Some(Object::Node(old)) if pod.selects_node(old));
        Ok(if matches && !matched { Hint::Queue } else { Hint::Skip })
    }
}
