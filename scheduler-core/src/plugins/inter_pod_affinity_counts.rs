//! InterPodAffinity's counts by domain: of pods that a term means, of pods whose terms mean the incoming one.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::cache::{
    Candidates, CountIdx, CountKey, DomainIdx, IdSet, LabelColumn, NodeCounts, NodeIdx, Snapshot, TermEntry, TermIdx,
};

/// Pods per node that a key counts, from the column or, without one, by looking at every pod.
pub(super) fn counted(snapshot: &Snapshot, key: &CountKey, mut each: impl FnMut(NodeIdx, i64)) {
    if let Some(column) = snapshot.pod_counts().get(key) {
        for (node, count) in column.iter() {
            each(node, i64::from(count));
        }
        return;
    }
    for node in snapshot.iter() {
        let count = snapshot.pods(node).iter().filter(|pod| key.matches(pod)).count();
        if count > 0 {
            each(node, i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// Counts by domain of one topology key.
#[derive(Debug, Clone)]
pub(super) struct Domains {
    pub(super) topology_key: Arc<str>,
    base: Base,
    /// Changes of a what-if run.
    changes: SmallVec<[Change; 2]>,
    /// Domains whose count is positive, and nothing else; what-if changes are not minded. Computed when it is first asked
    /// for.
    positive: OnceLock<Arc<IdSet>>,
}

/// So many more or fewer at a domain; the node is one of it.
#[derive(Debug, Clone, Copy)]
struct Change {
    domain: u32,
    node: NodeIdx,
    by: i64,
}

/// Counts before any what-if change.
#[derive(Debug, Clone)]
enum Base {
    /// Added up by domain.
    Summed(Arc<FxHashMap<u32, i64>>),
    /// By domain as events keep them. Their sum is what counts.
    InDomains(SmallVec<[Kept; 2]>),
    /// Each node is a domain of its own: as events keep the counts. Their sum is what counts.
    OnNodes(SmallVec<[Kept; 2]>),
}

/// Counts that events keep, by node and, where that is asked for, by domain.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// With their sums by domain, if there are some.
    Pods(CountIdx, Option<DomainIdx>),
    /// Nodes of pods that hold a required anti-affinity term.
    AntiAffinity(TermIdx),
}

impl Kept {
    fn nodes(self, snapshot: &Snapshot) -> &NodeCounts {
        match self {
            Self::Pods(column, _) => snapshot.pod_counts().nodes(column),
            Self::AntiAffinity(term) => &snapshot.required_anti_affinity_terms().entry(term).nodes,
        }
    }

    fn by_domain(self, snapshot: &Snapshot) -> Option<&[u32]> {
        match self {
            Self::Pods(_, domains) => Some(snapshot.pod_counts().domains_at(domains?).pods_by_domain()),
            Self::AntiAffinity(term) => snapshot.required_anti_affinity_terms().entry(term).by_domain(),
        }
    }
}

/// The sum, of domains that have one, over all of the counts.
fn in_domains<'s>(all: &'s [Kept], snapshot: &'s Snapshot) -> impl Iterator<Item = (u32, i64)> + 's {
    let each = all.iter().filter_map(|kept| kept.by_domain(snapshot));
    each.flat_map(|counts| (0..).zip(counts)).filter(|(_, n)| **n > 0).map(|(domain, n)| (domain, i64::from(*n)))
}

impl Domains {
    fn new(topology_key: Arc<str>, base: Base) -> Self {
        Self { topology_key, base, changes: SmallVec::new(), positive: OnceLock::new() }
    }

    pub(super) fn get(&self, snapshot: &Snapshot, domain: u32, node: NodeIdx) -> i64 {
        let base = match &self.base {
            Base::Summed(counts) => counts.get(&domain).copied().unwrap_or(0),
            Base::InDomains(all) => {
                let counts = all.iter().filter_map(|kept| kept.by_domain(snapshot));
                counts.filter_map(|counts| counts.get(domain as usize)).map(|n| i64::from(*n)).sum()
            }
            Base::OnNodes(all) => all.iter().map(|kept| i64::from(kept.nodes(snapshot).get(node))).sum(),
        };
        base + self.changes.iter().find(|change| change.domain == domain).map_or(0, |change| change.by)
    }

    /// In the domain of the node; 0 if it is in none.
    pub(super) fn count(&self, snapshot: &Snapshot, node: NodeIdx) -> i64 {
        domain_of(snapshot, &self.topology_key, node).map_or(0, |domain| self.get(snapshot, domain, node))
    }

    fn is_empty(&self, snapshot: &Snapshot) -> bool {
        let is_zero = |domain: u32, node: NodeIdx| self.get(snapshot, domain, node) == 0;
        let base_is_empty = match &self.base {
            // The count of a domain is the same whichever node asks.
            Base::Summed(counts) => counts.keys().all(|domain| is_zero(*domain, NodeIdx::FIRST)),
            Base::InDomains(all) => in_domains(all, snapshot).all(|(domain, _)| is_zero(domain, NodeIdx::FIRST)),
            Base::OnNodes(all) => self.labelled(snapshot, all).all(|(node, domain)| is_zero(domain, node)),
        };
        base_is_empty && self.changes.iter().all(|change| is_zero(change.domain, change.node))
    }

    /// Nodes that have a count and the label, with their domains.
    fn labelled<'s>(&self, snapshot: &'s Snapshot, all: &'s [Kept]) -> impl Iterator<Item = (NodeIdx, u32)> + use<'s> {
        let values = snapshot.labels().get(&self.topology_key).map(LabelColumn::values);
        let nodes = all.iter().flat_map(|kept| kept.nodes(snapshot).iter()).map(|(node, _)| node);
        nodes
            .map(move |node| (node, values.map_or(LabelColumn::NONE, |values| values[node.slot()])))
            .filter(|(_, domain)| *domain != LabelColumn::NONE)
    }

    /// Not of counts on nodes.
    fn positive(&self, snapshot: &Snapshot, column: &LabelColumn) -> &IdSet {
        self.positive.get_or_init(|| {
            let set = |is_positive: &dyn Fn(u32) -> bool| IdSet::new(column.n_ids(), false, is_positive);
            Arc::new(match &self.base {
                Base::Summed(counts) => set(&|domain| counts.get(&domain).is_some_and(|count| *count > 0)),
                Base::InDomains(all) | Base::OnNodes(all) => {
                    let mut has_some = vec![false; column.n_ids()];
                    in_domains(all, snapshot).for_each(|(domain, _)| has_some[domain as usize] = true);
                    set(&|domain| has_some[domain as usize])
                }
            })
        })
    }

    /// Keeps the nodes in domains whose count is positive, or the others; what-if changes are not minded.
    pub(super) fn retain(&self, snapshot: &Snapshot, nodes: &mut Candidates<'_>, positive: bool) {
        let Some(column) = snapshot.labels().get(&self.topology_key) else { return };
        let values = column.values();
        match &self.base {
            Base::Summed(_) | Base::InDomains(_) if positive => {
                nodes.retain_ids(values, self.positive(snapshot, column));
            }
            Base::Summed(_) | Base::InDomains(_) => nodes.remove_ids(values, self.positive(snapshot, column)),
            Base::OnNodes(all) if positive => {
                nodes.retain(|node| {
                    values[node.slot()] != LabelColumn::NONE
                        && all.iter().any(|kept| kept.nodes(snapshot).get(node) > 0)
                });
            }
            Base::OnNodes(all) if column.n_labelled() == snapshot.n_nodes() => {
                for kept in all {
                    nodes.subtract(kept.nodes(snapshot).nonzero());
                }
            }
            Base::OnNodes(all) => {
                nodes.retain(|node| {
                    values[node.slot()] == LabelColumn::NONE
                        || all.iter().all(|kept| kept.nodes(snapshot).get(node) == 0)
                });
            }
        }
    }
}

/// The pods that terms mean, and where events count them, if they do.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    pub(super) key: CountKey,
    pub(super) column: Option<CountIdx>,
}

/// Counts by topology key and domain. Upstream: `topologyToMatchedTermCount`.
#[derive(Debug, Clone, Default)]
pub(super) struct TopologyCounts(pub(super) SmallVec<[Domains; 1]>);

/// Collects [`TopologyCounts`].
#[derive(Default)]
pub(super) struct Collector {
    summed: FxHashMap<Arc<str>, FxHashMap<u32, i64>>,
    in_domains: ByKey,
    on_nodes: ByKey,
}

/// Counts that events keep, by topology key.
type ByKey = SmallVec<[(Arc<str>, SmallVec<[Kept; 2]>); 1]>;

fn at_key<'a>(by_key: &'a mut ByKey, topology_key: &Arc<str>) -> &'a mut SmallVec<[Kept; 2]> {
    let at = by_key.iter().position(|(key, _)| key == topology_key).unwrap_or_else(|| {
        by_key.push((Arc::clone(topology_key), SmallVec::new()));
        by_key.len() - 1
    });
    &mut by_key[at].1
}

impl Collector {
    /// Adds counts of one kind: by reference if events keep them by domain, or each node is a domain of its own and events
    /// keep them by node; else node by node.
    fn add(
        &mut self,
        snapshot: &Snapshot,
        topology_key: &Arc<str>,
        kept: Option<Kept>,
        nodes: impl FnOnce(&mut dyn FnMut(NodeIdx, i64)),
    ) {
        let Some(column) = snapshot.labels().get(topology_key) else { return };
        match kept {
            Some(kept) if column.is_unique() => return at_key(&mut self.on_nodes, topology_key).push(kept),
            Some(kept) if kept.by_domain(snapshot).is_some() => {
                return at_key(&mut self.in_domains, topology_key).push(kept);
            }
            _ => {}
        }
        let values = column.values();
        let domains = self.summed.entry(Arc::clone(topology_key)).or_default();
        nodes(&mut |node, count| {
            let domain = values[node.slot()];
            if domain != LabelColumn::NONE {
                *domains.entry(domain).or_default() += count;
            }
        });
    }

    pub(super) fn add_entry(&mut self, snapshot: &Snapshot, term: TermIdx, entry: &TermEntry) {
        self.add(snapshot, &entry.term.topology_key, Some(Kept::AntiAffinity(term)), |each| {
            for (node, count) in entry.nodes.iter() {
                each(node, i64::from(count));
            }
        });
    }

    pub(super) fn add_pods(&mut self, snapshot: &Snapshot, topology_key: &Arc<str>, pods: &Counted) {
        let domains = |column| snapshot.pod_counts().find_over_all_nodes(column, topology_key);
        let kept = pods.column.map(|column| Kept::Pods(column, domains(column)));
        self.add(snapshot, topology_key, kept, |each| counted(snapshot, &pods.key, each));
    }

    /// The counts are prepared for chunks of nodes, or are when they are asked for.
    pub(super) fn finish(mut self, snapshot: &Snapshot, in_chunks: bool) -> TopologyCounts {
        if self.summed.is_empty() && self.in_domains.is_empty() && self.on_nodes.is_empty() {
            return TopologyCounts::default();
        }
        // A key has one base: what had to be added up takes in what events keep.
        for (topology_key, counts) in &mut self.summed {
            if let Some(at) = self.in_domains.iter().position(|(key, _)| key == topology_key) {
                let (_, all) = self.in_domains.remove(at);
                in_domains(&all, snapshot).for_each(|(domain, n)| *counts.entry(domain).or_default() += n);
            }
        }
        let summed =
            self.summed.into_iter().map(|(topology_key, counts)| (topology_key, Base::Summed(Arc::new(counts))));
        let in_sums = self.in_domains.into_iter().map(|(topology_key, all)| (topology_key, Base::InDomains(all)));
        let on_nodes = self.on_nodes.into_iter().map(|(topology_key, all)| (topology_key, Base::OnNodes(all)));
        let mut all: SmallVec<[Domains; 1]> = summed
            .chain(in_sums)
            .chain(on_nodes)
            .map(|(topology_key, base)| Domains::new(topology_key, base))
            // Counts on nodes without the label are in no domain.
            .filter(|domains| match &domains.base {
                Base::Summed(counts) => !counts.is_empty(),
                Base::InDomains(all) => in_domains(all, snapshot).next().is_some(),
                Base::OnNodes(all) => domains.labelled(snapshot, all).next().is_some(),
            })
            .collect();
        all.sort_by(|a, b| a.topology_key.cmp(&b.topology_key));
        for domains in all.iter().filter(|domains| in_chunks && !matches!(domains.base, Base::OnNodes(_))) {
            if let Some(column) = snapshot.labels().get(&domains.topology_key) {
                domains.positive(snapshot, column);
            }
        }
        TopologyCounts(all)
    }
}

impl TopologyCounts {
    pub(super) fn of(&self, topology_key: &Arc<str>) -> Option<&Domains> {
        self.0.iter().find(|domains| domains.topology_key == *topology_key)
    }

    pub(super) fn count(&self, snapshot: &Snapshot, topology_key: &Arc<str>, node: NodeIdx) -> i64 {
        self.of(topology_key).map_or(0, |domains| domains.count(snapshot, node))
    }

    pub(super) fn is_empty(&self, snapshot: &Snapshot) -> bool {
        self.0.iter().all(|domains| domains.is_empty(snapshot))
    }

    pub(super) fn change(&mut self, snapshot: &Snapshot, topology_key: &Arc<str>, node: NodeIdx, by: i64) {
        let Some(domain) = domain_of(snapshot, topology_key, node) else { return };
        let at = self.0.iter().position(|domains| domains.topology_key == *topology_key).unwrap_or_else(|| {
            self.0.push(Domains::new(Arc::clone(topology_key), Base::Summed(Arc::default())));
            self.0.len() - 1
        });
        let changes = &mut self.0[at].changes;
        match changes.iter_mut().find(|change| change.domain == domain) {
            Some(change) => change.by += by,
            None => changes.push(Change { domain, node, by }),
        }
    }
}

fn domain_of(snapshot: &Snapshot, topology_key: &str, node: NodeIdx) -> Option<u32> {
    domain_in(snapshot.labels().get(topology_key)?, node)
}

/// The node's value of a label, if it has the label.
pub(super) fn domain_in(column: &LabelColumn, node: NodeIdx) -> Option<u32> {
    let id = column.values()[node.slot()];
    (id != LabelColumn::NONE).then_some(id)
}
