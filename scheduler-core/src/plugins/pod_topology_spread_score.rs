//! PodTopologySpread's soft constraints: the fewer matching pods a node's domains hold, the better.
//! Upstream: plugins/podtopologyspread/scoring.go (v1.36.2).

use smallvec::SmallVec;

use super::pod_topology_spread::{PodTopologySpread, included_nodes, no_column};
use super::pod_topology_spread_constraints::{Constraint, Constraints};
use crate::cache::exact::{float, integer, nearest};
use crate::cache::{CountIdx, LabelColumn, LabelIdx, Lanes, NodeIdx, NodeView, SlotRun, Snapshot, vectorized};
use crate::framework::{Cycle, CycleState, MAX_NODE_SCORE, PluginError, PreScoreStatus, Result, ScorePlugin};

/// Where the matching pods of a soft constraint are counted.
#[derive(Debug)]
enum Counts {
    /// By the value id of the label, scored already.
    ByDomain(Vec<f64>),
    /// The host name: by node.
    ByNode(PerNode),
}

#[derive(Debug)]
enum PerNode {
    /// As events keep it.
    Kept(CountIdx),
    /// By slot.
    Counted(Vec<i64>),
}

/// One soft constraint with what its domains hold.
#[derive(Debug)]
struct Weighed {
    constraint: Constraint,
    label: LabelIdx,
    counts: Counts,
    /// `ln(domains + 2)`: the more domains, the less a pod in one of them says.
    weight: f64,
}

impl Weighed {
    #[expect(clippy::cast_precision_loss, reason = "upstream computes in float64, too")]
    #[inline]
    fn score(&self, count: i64) -> f64 {
        count as f64 * self.weight + f64::from(self.constraint.max_skew - 1)
    }

    fn score_of(&self, snapshot: &Snapshot, node: NodeIdx, domain: u32) -> f64 {
        match &self.counts {
            Counts::ByDomain(scores) => scores[domain as usize],
            Counts::ByNode(PerNode::Counted(counts)) => self.score(counts[node.slot()]),
            Counts::ByNode(PerNode::Kept(column)) => {
                self.score(i64::from(snapshot.pod_counts().nodes(*column).get(node)))
            }
        }
    }
}

/// Soft constraints over the feasible nodes.
#[derive(Debug)]
pub struct SoftSpread {
    constraints: Vec<Weighed>,
    /// Whether nodes that lack one of the labels score 0 and are left out of normalising, and there are such nodes.
    ignores_some: bool,
    by_value: Option<ByValue>,
}

/// What slots score by the value id of one label, unless they hold matching pods and those count: for one constraint over
/// the nodes and one over domains of nodes at most, kept counts, and every node with its name's label.
#[derive(Debug)]
struct ByValue {
    /// The position of the constraint over domains, if there is one, with the scores.
    domains: Option<(usize, Vec<i64>)>,
    /// Of slots whose value has none.
    other: i64,
    /// The position of the constraint over nodes, if there is one.
    nodes: Option<usize>,
}

impl ByValue {
    fn new(constraints: &[Weighed], columns: &[&LabelColumn], snapshot: &Snapshot) -> Option<Self> {
        let (mut by_domain, mut by_node) = (None, None);
        for (at, (weighed, column)) in constraints.iter().zip(columns).enumerate() {
            let before = match &weighed.counts {
                Counts::ByDomain(scores) => by_domain.replace((at, scores)).map(|(at, _)| at),
                Counts::ByNode(PerNode::Kept(_)) if column.n_labelled() == snapshot.n_nodes() => by_node.replace(at),
                Counts::ByNode(_) => return None,
            };
            if before.is_some() {
                return None;
            }
        }
        let without_pods = by_node.map_or(0.0, |at| constraints[at].score(0));
        Some(Self {
            domains: by_domain
                .map(|(at, scores)| (at, scores.iter().map(|score| rounded(score + without_pods)).collect())),
            other: rounded(without_pods),
            nodes: by_node,
        })
    }
}

impl SoftSpread {
    fn is_ignored(&self, snapshot: &Snapshot, node: NodeIdx) -> bool {
        self.ignores_some && self.constraints.iter().any(|weighed| value(snapshot, weighed, node) == LabelColumn::NONE)
    }

    fn score(&self, snapshot: &Snapshot, node: NodeIdx) -> i64 {
        if self.is_ignored(snapshot, node) {
            return 0;
        }
        let mut sum = 0.0;
        for weighed in &self.constraints {
            let domain = value(snapshot, weighed, node);
            if domain != LabelColumn::NONE {
                sum += weighed.score_of(snapshot, node, domain);
            }
        }
        rounded(sum)
    }

    fn new(
        cycle: Cycle<'_>,
        constraints: &Constraints,
        feasible: impl Iterator<Item = (NodeIdx, usize)> + Clone,
        n_feasible: usize,
    ) -> Result<Self> {
        let snapshot = cycle.snapshot;
        let places = &constraints.places[constraints.hard.len()..];
        let mut labels = SmallVec::<[LabelIdx; 2]>::new();
        for (place, constraint) in places.iter().zip(&*constraints.soft) {
            labels.push(place.label.ok_or_else(|| no_column(&constraint.topology_key))?);
        }
        let columns: SmallVec<[&LabelColumn; 2]> = labels.iter().map(|label| snapshot.labels().at(*label)).collect();
        let lacks_some = columns.iter().any(|column| column.n_labelled() < snapshot.n_nodes());
        let ignores_some = constraints.soft_require_all && lacks_some;
        let has_all = |node: NodeIdx| columns.iter().all(|column| column.values()[node.slot()] != LabelColumn::NONE);
        let considered = feasible.filter(|(node, _)| !ignores_some || has_all(*node));
        let n_considered = if ignores_some { considered.clone().map(|(_, n_nodes)| n_nodes).sum() } else { n_feasible };
        let mut included = None;
        let weighed = constraints.soft.iter().enumerate().map(|(at, constraint)| {
            let is_everywhere = columns[at].n_labelled() == snapshot.n_nodes();
            if constraint.is_hostname {
                return weigh_nodes(snapshot, (constraint, labels[at]), places[at].nodes, n_considered);
            }
            let column = (labels[at], columns[at]);
            match places[at].domains.map(|domains| snapshot.pod_counts().domains_at(domains)) {
                Some(counts) => {
                    let n_pods = |domain| i64::from(counts.n_pods(domain));
                    weigh_domains(constraint, column, is_everywhere, considered.clone(), n_pods)
                }
                None => {
                    let included = included
                        .get_or_insert_with(|| included_nodes(cycle, &constraints.soft, constraints.soft_require_all));
                    let counts = count_domains(snapshot, constraint, columns[at], &included[at]);
                    weigh_domains(constraint, column, is_everywhere, considered.clone(), |domain| {
                        counts[domain as usize]
                    })
                }
            }
        });
        let constraints: Vec<Weighed> = weighed.collect();
        let by_value = if ignores_some { None } else { ByValue::new(&constraints, &columns, snapshot) };
        Ok(Self { constraints, ignores_some, by_value })
    }
}

/// Rounded half away from zero, as Go's `math.Round`.
#[inline(always)]
fn rounded(sum: f64) -> i64 {
    let size = sum.abs();
    let nearest = nearest(size);
    let rounded = integer(if size - nearest >= 0.5 { nearest + 1.0 } else { nearest });
    if sum < 0.0 { -rounded } else { rounded }
}

fn value(snapshot: &Snapshot, weighed: &Weighed, node: NodeIdx) -> u32 {
    snapshot.labels().at(weighed.label).values()[node.slot()]
}

impl PodTopologySpread {
    fn soft_spread(
        &self,
        cycle: Cycle<'_>,
        feasible: impl Iterator<Item = (NodeIdx, usize)> + Clone,
        n_feasible: usize,
        shared: &CycleState,
    ) -> Result<PreScoreStatus<SoftSpread>> {
        let computed;
        let constraints = match shared.get::<Constraints>() {
            Some(constraints) => constraints,
            None => {
                computed = self.constraints(cycle.pod, cycle.objects).find_indexes(cycle);
                &computed
            }
        };
        if constraints.soft.is_empty() || cycle.snapshot.n_nodes() == 0 {
            return Ok(PreScoreStatus::Skip);
        }
        Ok(PreScoreStatus::Success(SoftSpread::new(cycle, constraints, feasible, n_feasible)?))
    }
}

impl ScorePlugin for PodTopologySpread {
    type State = SoftSpread;

    fn pre_score(
        &self,
        cycle: Cycle<'_>,
        feasible: &[NodeIdx],
        shared: &CycleState,
    ) -> Result<PreScoreStatus<SoftSpread>> {
        self.soft_spread(cycle, feasible.iter().map(|node| (*node, 1)), feasible.len(), shared)
    }

    fn pre_score_classes(
        &self,
        cycle: Cycle<'_>,
        feasible: &[(NodeIdx, usize)],
        shared: &CycleState,
    ) -> Result<PreScoreStatus<SoftSpread>> {
        let n_feasible = feasible.iter().map(|(_, n_nodes)| n_nodes).sum();
        self.soft_spread(cycle, feasible.iter().copied(), n_feasible, shared)
    }

    fn pre_score_mask(
        &self,
        cycle: Cycle<'_>,
        feasible: Option<&[u64]>,
        shared: &CycleState,
    ) -> Result<Option<PreScoreStatus<SoftSpread>>> {
        match feasible {
            Some(feasible) => {
                let nodes = SlotRun::new(0, feasible);
                self.soft_spread(cycle, nodes.iter().map(|(_, node)| (node, 1)), nodes.n_feasible(), shared).map(Some)
            }
            // How many nodes and domains are feasible bears on the weights.
            None => {
                let is_empty = shared.get::<Constraints>().is_some_and(|constraints| constraints.soft.is_empty());
                Ok(is_empty.then_some(PreScoreStatus::Skip))
            }
        }
    }

    fn score(&self, state: Option<&SoftSpread>, cycle: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
        Ok(state.ok_or_else(PluginError::not_found)?.score(cycle.snapshot, node.idx()))
    }

    fn score_chunk(
        &self,
        state: Option<&SoftSpread>,
        cycle: Cycle<'_>,
        _: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        const RUN: usize = 256;
        let state = state.ok_or_else(PluginError::not_found)?;
        let snapshot = cycle.snapshot;
        for (nodes, scores) in nodes.chunks(RUN).zip(scores.chunks_mut(RUN)) {
            let mut sums = [0.0; RUN];
            for weighed in &state.constraints {
                let values = snapshot.labels().at(weighed.label).values();
                match &weighed.counts {
                    Counts::ByDomain(by_domain) => {
                        for (sum, node) in sums.iter_mut().zip(nodes) {
                            // A node without the label is in no domain.
                            *sum += by_domain.get(values[node.slot()] as usize).copied().unwrap_or(0.0);
                        }
                    }
                    Counts::ByNode(PerNode::Kept(column)) => {
                        let (counts, none) = (snapshot.pod_counts().nodes(*column), weighed.score(0));
                        for (sum, node) in sums.iter_mut().zip(nodes) {
                            if values[node.slot()] == LabelColumn::NONE {
                                continue;
                            }
                            *sum += match counts.get(*node) {
                                0 => none,
                                count => weighed.score(i64::from(count)),
                            };
                        }
                    }
                    Counts::ByNode(PerNode::Counted(counts)) => {
                        for (sum, node) in sums.iter_mut().zip(nodes) {
                            if values[node.slot()] != LabelColumn::NONE {
                                *sum += weighed.score(counts[node.slot()]);
                            }
                        }
                    }
                }
            }
            vectorized(Round { sums: &sums[..nodes.len()], scores: &mut *scores });
            if state.ignores_some {
                for (score, node) in scores.iter_mut().zip(nodes) {
                    if state.is_ignored(snapshot, *node) {
                        *score = 0;
                    }
                }
            }
        }
        Ok(())
    }

    fn score_slots(
        &self,
        state: Option<&SoftSpread>,
        cycle: Cycle<'_>,
        _: &CycleState,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> Result<bool> {
        let Some((state, by_value)) = state.and_then(|state| Some((state, state.by_value.as_ref()?))) else {
            return Ok(false);
        };
        let snapshot = cycle.snapshot;
        let mut values: &[u32] = &[];
        match &by_value.domains {
            None => scores.fill(by_value.other),
            Some((at, of_values)) => {
                values = &snapshot.labels().at(state.constraints[*at].label).values()[slots.range()];
                for (score, value) in scores.iter_mut().zip(values) {
                    *score = of_values.get(*value as usize).copied().unwrap_or(by_value.other);
                }
            }
        }
        let of_nodes = by_value.nodes.map(|at| &state.constraints[at]);
        let Some((weighed, Counts::ByNode(PerNode::Kept(column)))) = of_nodes.map(|of| (of, &of.counts)) else {
            return Ok(true);
        };
        let counts = snapshot.pod_counts().nodes(*column);
        let by_domain = by_value.domains.as_ref().and_then(|(at, _)| match &state.constraints[*at].counts {
            Counts::ByDomain(scores) => Some(scores),
            Counts::ByNode(_) => None,
        });
        for (at, node) in slots.iter_in(counts.nonzero()) {
            let of_domain = by_domain.and_then(|scores| scores.get(values[at] as usize)).copied().unwrap_or(0.0);
            scores[at] = rounded(of_domain + weighed.score(i64::from(counts.get(node))));
        }
        Ok(true)
    }

    fn normalize(
        &self,
        state: Option<&SoftSpread>,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let state = state.ok_or_else(PluginError::not_found)?;
        if state.ignores_some {
            const IGNORED: i64 = -1;
            for (score, node) in scores.iter_mut().zip(nodes) {
                if state.is_ignored(cycle.snapshot, *node) {
                    *score = IGNORED;
                }
            }
        }
        let (lowest, highest) = vectorized(Considered(scores));
        vectorized(Normalize { scores, lowest, highest });
        Ok(())
    }

    fn normalize_between(&self, state: Option<&SoftSpread>, lowest: i64, highest: i64, scores: &mut [i64]) -> bool {
        let is_between = state.is_some_and(|state| !state.ignores_some) && lowest >= 0;
        if is_between {
            vectorized(Normalize { scores, lowest, highest });
        }
        is_between
    }
}

struct Round<'a> {
    sums: &'a [f64],
    scores: &'a mut [i64],
}

impl Lanes for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (score, sum) in self.scores.iter_mut().zip(self.sums) {
            *score = rounded(*sum);
        }
    }
}

/// The lowest and the highest score that is not negative.
struct Considered<'a>(&'a [i64]);

impl Lanes for Considered<'_> {
    type Output = (i64, i64);

    #[inline(always)]
    fn run(self) -> (i64, i64) {
        self.0.iter().fold((i64::MAX, 0), |(lowest, highest), &score| {
            (lowest.min(if score < 0 { i64::MAX } else { score }), highest.max(score))
        })
    }
}

/// Turns scores round between the lowest and the highest; negative ones are ignored and become 0.
struct Normalize<'a> {
    scores: &'a mut [i64],
    lowest: i64,
    highest: i64,
}

impl Lanes for Normalize<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { scores, lowest, highest } = self;
        if highest >= 1 << 44 {
            for score in scores {
                *score = if *score < 0 { 0 } else { MAX_NODE_SCORE * (highest + lowest - *score) / highest };
            }
            return;
        }
        let (both, whole) = (highest.wrapping_add(lowest), float(highest));
        for score in scores {
            let scaled = integer((float(both.wrapping_sub(*score)) * 100.0 / whole).floor());
            let scaled = if highest == 0 { MAX_NODE_SCORE } else { scaled };
            *score = if *score < 0 { 0 } else { scaled };
        }
    }
}

/// Each considered node is a domain. Inclusion policies do not bear on the count of a single node.
#[expect(clippy::cast_precision_loss, reason = "upstream computes in float64, too")]
fn weigh_nodes(
    snapshot: &Snapshot,
    (constraint, label): (&Constraint, LabelIdx),
    kept: Option<CountIdx>,
    n_nodes: usize,
) -> Weighed {
    let is_counted = !constraint.count.selector.is_everything();
    let per_node = match kept.filter(|_| is_counted) {
        Some(column) => PerNode::Kept(column),
        None => {
            let mut counts = vec![0; snapshot.n_slots()];
            for (node, count) in constraint.counted(snapshot) {
                counts[node.slot()] = i64::from(count);
            }
            PerNode::Counted(counts)
        }
    };
    let weight = (n_nodes as f64 + 2.0).ln();
    Weighed { constraint: constraint.clone(), label, counts: Counts::ByNode(per_node), weight }
}

/// Counts the domains of the considered nodes, and the matching pods in them over all included nodes. Nodes without the
/// label form one more domain, though they get no score for it.
#[expect(clippy::cast_precision_loss, reason = "upstream computes in float64, too")]
fn weigh_domains(
    constraint: &Constraint,
    (label, column): (LabelIdx, &LabelColumn),
    is_everywhere: bool,
    considered: impl Iterator<Item = (NodeIdx, usize)>,
    n_pods: impl Fn(u32) -> i64,
) -> Weighed {
    let values = column.values();
    let mut exists = vec![false; column.n_ids()];
    let (mut n_domains, mut lacks_label) = (0, false);
    for (node, _) in considered {
        match exists.get_mut(values[node.slot()] as usize) {
            Some(exists) => {
                n_domains += usize::from(!*exists);
                *exists = true;
            }
            None => lacks_label = true,
        }
        // There are no more to be found, or only nodes without the label.
        if n_domains == column.n_values() && (lacks_label || is_everywhere) {
            break;
        }
    }
    let n_domains = n_domains + usize::from(lacks_label);
    let weight = (n_domains as f64 + 2.0).ln();
    let mut weighed = Weighed { constraint: constraint.clone(), label, counts: Counts::ByDomain(Vec::new()), weight };
    let scores = (0..).zip(&exists).map(|(domain, exists)| if *exists { weighed.score(n_pods(domain)) } else { 0.0 });
    weighed.counts = Counts::ByDomain(scores.collect());
    weighed
}

/// Matching pods on included nodes by value id, by looking at all pods that match.
fn count_domains(snapshot: &Snapshot, constraint: &Constraint, column: &LabelColumn, included: &[u64]) -> Vec<i64> {
    let mut counts = vec![0; column.n_ids()];
    for (node, count) in constraint.counted(snapshot) {
        let (slot, domain) = (node.slot(), column.values()[node.slot()]);
        if included[slot / 64] >> (slot % 64) & 1 == 1 && domain != LabelColumn::NONE {
            counts[domain as usize] += i64::from(count);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "below 2^50 it is exact")]
        fn halves_are_rounded_away_from_zero(eighths in -(1_i64 << 48)..1 << 48, shift in 0_u32..48) {
            let number = (eighths >> shift) as f64 / 8.0;
            prop_assert_eq!(rounded(number), number.round() as i64);
        }
    }
}
