//! Node selectors over label columns: a pod's nodeSelector and node affinity, compiled to value ids once a cycle.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Candidates, IdSet, Indexes, LabelColumn, NodeIdx, Snapshot};
use crate::model::{Labels, NodeSelector, NodeSelectorTerm, Operator, Pod, Requirement};

#[derive(Debug, Clone)]
struct Compiled {
    key: Arc<str>,
    /// Ids of the values that satisfy the requirement.
    accepted: IdSet,
}

impl Compiled {
    fn retain(&self, snapshot: &Snapshot, nodes: &mut Candidates<'_>) {
        nodes.retain_ids(column(&self.key, snapshot).values(), &self.accepted);
    }
}

#[derive(Debug, Clone)]
enum CompiledTerm {
    /// Labels alone decide.
    Labels(Box<[Compiled]>),
    /// One node by name, and labels.
    Name { node: Option<NodeIdx>, labels: Box<[Compiled]> },
}

/// A compiled node selection. Valid for the cycle in which it was compiled.
#[derive(Debug, Clone, Default)]
pub struct NodeMatcher {
    all: Box<[Compiled]>,
    /// `None` when the pod has no required node affinity.
    terms: Option<Box<[CompiledTerm]>>,
}

/// A column with the test on it, resolved for one chunk.
type Test<'a> = (&'a [u32], &'a IdSet);

impl NodeMatcher {
    /// Asks for the label columns that [`NodeMatcher::of_pod`] reads.
    pub fn require(pod: &Pod, indexes: &mut Indexes<'_>) {
        for (key, _) in pod.node_selector.iter() {
            indexes.label_column(key);
        }
        if let Some(selector) = required(pod) {
            Self::require_selector(selector, indexes);
        }
    }

    /// Asks for the label columns that [`NodeMatcher::of_selector`] reads.
    pub fn require_selector(selector: &NodeSelector, indexes: &mut Indexes<'_>) {
        for requirement in selector.terms.iter().flat_map(|term| &term.match_expressions) {
            indexes.label_column(&requirement.key);
        }
    }

    /// Compiles `spec.nodeSelector` and required node affinity. `None` if a column is missing, or if the selection
    /// uses a form that only the uncompiled match knows.
    #[must_use]
    pub fn of_pod(pod: &Pod, snapshot: &Snapshot) -> Option<Self> {
        let all = compile_labels(&pod.node_selector, snapshot)?;
        let terms = match required(pod) {
            Some(selector) => Some(compile_terms(selector, snapshot)?),
            None => None,
        };
        Some(Self { all, terms })
    }

    /// Compiles a node selector.
    #[must_use]
    pub fn of_selector(selector: &NodeSelector, snapshot: &Snapshot) -> Option<Self> {
        Some(Self { all: Box::default(), terms: Some(compile_terms(selector, snapshot)?) })
    }

    /// Whether every node matches.
    #[must_use]
    pub fn is_trivial(&self) -> bool {
        self.all.is_empty() && self.terms.is_none()
    }

    /// Clears the bits of nodes that do not match.
    pub fn retain(&self, snapshot: &Snapshot, nodes: &mut Candidates<'_>) {
        for compiled in &self.all {
            compiled.retain(snapshot, nodes);
        }
        if let Some([CompiledTerm::Labels(labels)]) = self.terms.as_deref() {
            for compiled in labels {
                compiled.retain(snapshot, nodes);
            }
            return;
        }
        let Some(terms) = self.resolve_terms(snapshot) else { return };
        nodes.retain(|node| terms.iter().any(|term| term.matches(node)));
    }

    /// Calls `hit` with the position of each node that matches.
    pub fn for_each_match(&self, snapshot: &Snapshot, nodes: &[NodeIdx], mut hit: impl FnMut(usize)) {
        let all = resolve(&self.all, snapshot);
        let terms = self.resolve_terms(snapshot);
        for (at, &node) in nodes.iter().enumerate() {
            let matches = all.iter().all(|(values, accepted)| accepted.contains(values[node.slot()]))
                && terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(node)));
            if matches {
                hit(at);
            }
        }
    }

    fn resolve_terms<'a>(&'a self, snapshot: &'a Snapshot) -> Option<SmallVec<[ResolvedTerm<'a>; 2]>> {
        let terms = self.terms.as_ref()?.iter().map(|term| match term {
            CompiledTerm::Labels(labels) => ResolvedTerm { name: None, tests: resolve(labels, snapshot) },
            CompiledTerm::Name { node, labels } => ResolvedTerm { name: Some(*node), tests: resolve(labels, snapshot) },
        });
        Some(terms.collect())
    }
}

struct ResolvedTerm<'a> {
    /// The one node that comes into question, if the term names one; it may not exist.
    name: Option<Option<NodeIdx>>,
    tests: SmallVec<[Test<'a>; 4]>,
}

impl ResolvedTerm<'_> {
    fn matches(&self, node: NodeIdx) -> bool {
        self.name.is_none_or(|only| only == Some(node))
            && self.tests.iter().all(|(values, accepted)| accepted.contains(values[node.slot()]))
    }
}

fn required(pod: &Pod) -> Option<&NodeSelector> {
    pod.affinity.as_deref()?.required_node.as_deref()
}

fn resolve<'a>(compiled: &'a [Compiled], snapshot: &'a Snapshot) -> SmallVec<[Test<'a>; 4]> {
    compiled.iter().map(|compiled| (column(&compiled.key, snapshot).values(), &compiled.accepted)).collect()
}

fn column<'a>(key: &str, snapshot: &'a Snapshot) -> &'a LabelColumn {
    snapshot.labels().get(key).expect("compiling found it, and columns are never dropped")
}

fn compile_labels(labels: &Labels, snapshot: &Snapshot) -> Option<Box<[Compiled]>> {
    labels
        .iter()
        .map(|(key, value)| {
            let id = snapshot.labels().get(key)?.id(value);
            Some(Compiled { key: Arc::clone(key), accepted: IdSet::Only(id.into_iter().collect()) })
        })
        .collect()
}

fn compile_terms(selector: &NodeSelector, snapshot: &Snapshot) -> Option<Box<[CompiledTerm]>> {
    selector
        .terms
        .iter()
        .filter(|term| !term.is_empty() && term.invalid.is_none())
        .map(|term| compile_term(term, snapshot))
        .collect()
}

fn compile_term(term: &NodeSelectorTerm, snapshot: &Snapshot) -> Option<CompiledTerm> {
    let labels = term
        .match_expressions
        .iter()
        .map(|requirement| compile_requirement(requirement, snapshot))
        .collect::<Option<Box<[_]>>>()?;
    match &*term.match_fields {
        [] => Some(CompiledTerm::Labels(labels)),
        [field] if field.operator == Operator::In && field.key.as_ref() == "metadata.name" => {
            let node = field.values.first().and_then(|name| snapshot.find(name));
            Some(CompiledTerm::Name { node, labels })
        }
        _ => None,
    }
}

fn compile_requirement(requirement: &Requirement, snapshot: &Snapshot) -> Option<Compiled> {
    let column = snapshot.labels().get(&requirement.key)?;
    let is_short = requirement.values.len() <= IdSet::MAX_LISTED;
    let ids = || requirement.values.iter().filter_map(|value| column.id(value)).collect();
    let accepted = match requirement.operator {
        Operator::In if is_short => IdSet::Only(ids()),
        Operator::NotIn if is_short => IdSet::AllBut(ids()),
        Operator::Exists => IdSet::AllBut([LabelColumn::NONE].into_iter().collect()),
        Operator::DoesNotExist => IdSet::Only([LabelColumn::NONE].into_iter().collect()),
        Operator::In | Operator::NotIn | Operator::Gt | Operator::Lt => {
            IdSet::new(column.n_ids(), requirement.accepts(None), |id| requirement.accepts(Some(column.name(id))))
        }
    };
    Some(Compiled { key: Arc::clone(&requirement.key), accepted })
}
