//! PodTopologySpread's soft constraints: the fewer matching pods a node's domains hold, the better.
//! Upstream: plugins/podtopologyspread/scoring.go (v1.36.2).

use super::pod_topology_spread::{Constraint, PodTopologySpread, included_nodes};
use crate::cache::{LabelColumn, NodeIdx, NodeView, Snapshot};
use crate::framework::{Cycle, CycleState, MAX_NODE_SCORE, PluginError, PreScoreStatus, Result, ScorePlugin};
use crate::model::UnsatisfiableAction;

/// One soft constraint with what its domains hold.
#[derive(Debug)]
struct Weighed {
    constraint: Constraint,
    /// Matching pods: per node slot for the host name, else per value id.
    counts: Vec<i64>,
    /// `ln(domains + 2)`: the more domains, the less a pod in one of them says.
    weight: f64,
}

impl Weighed {
    #[expect(clippy::cast_precision_loss, reason = "upstream computes in float64, too")]
    fn score(&self, count: i64) -> f64 {
        count as f64 * self.weight + f64::from(self.constraint.max_skew - 1)
    }
}

/// Soft constraints over the feasible nodes.
#[derive(Debug)]
pub struct SoftSpread {
    constraints: Vec<Weighed>,
    /// Whether nodes that lack one of the labels score 0 and are left out of normalising.
    require_all: bool,
}

impl SoftSpread {
    fn is_ignored(&self, snapshot: &Snapshot, node: NodeIdx) -> bool {
        self.require_all && self.constraints.iter().any(|weighed| value(snapshot, weighed, node) == LabelColumn::NONE)
    }

    #[expect(clippy::cast_possible_truncation, reason = "upstream rounds the sum to int64")]
    fn score(&self, snapshot: &Snapshot, node: NodeIdx) -> i64 {
        if self.is_ignored(snapshot, node) {
            return 0;
        }
        let mut sum = 0.0;
        for weighed in &self.constraints {
            let domain = value(snapshot, weighed, node);
            if domain == LabelColumn::NONE {
                continue;
            }
            let at = if weighed.constraint.is_hostname { node.slot() } else { domain as usize };
            sum += weighed.score(weighed.counts[at]);
        }
        sum.round() as i64
    }
}

fn value(snapshot: &Snapshot, weighed: &Weighed, node: NodeIdx) -> u32 {
    let column = snapshot.labels().get(&weighed.constraint.topology_key);
    column.map_or(LabelColumn::NONE, |column| column.values()[node.slot()])
}

impl ScorePlugin for PodTopologySpread {
    type State = SoftSpread;

    fn pre_score(&self, cycle: Cycle<'_>, feasible: &[NodeIdx], _: &CycleState) -> Result<PreScoreStatus<SoftSpread>> {
        let constraints = self.constraints(cycle.pod, cycle.objects, UnsatisfiableAction::ScheduleAnyway);
        if constraints.is_empty() || cycle.snapshot.n_nodes() == 0 {
            return Ok(PreScoreStatus::Skip);
        }
        let require_all = !cycle.pod.topology_spread_constraints.is_empty() || !self.system_defaulted;
        let columns = constraints
            .iter()
            .map(|constraint| {
                cycle
                    .snapshot
                    .labels()
                    .get(&constraint.topology_key)
                    .map(LabelColumn::values)
                    .ok_or_else(|| PluginError::new(format!("label {:?} has no column", constraint.topology_key)))
            })
            .collect::<Result<Vec<&[u32]>>>()?;
        let has_all = |node: &NodeIdx| columns.iter().all(|values| values[node.slot()] != LabelColumn::NONE);
        let considered: Vec<NodeIdx> = feasible.iter().copied().filter(|node| !require_all || has_all(node)).collect();

        let included = included_nodes(cycle, &constraints, require_all);
        let constraints = constraints
            .into_iter()
            .zip(included)
            .zip(&columns)
            .map(|((constraint, included), values)| weigh(cycle.snapshot, constraint, &included, values, &considered))
            .collect();
        Ok(PreScoreStatus::Success(SoftSpread { constraints, require_all }))
    }

    fn score(&self, state: Option<&SoftSpread>, cycle: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
        Ok(state.ok_or_else(PluginError::not_found)?.score(cycle.snapshot, node.idx()))
    }

    #[expect(clippy::cast_possible_truncation, reason = "upstream rounds the sum to int64")]
    fn score_chunk(
        &self,
        state: Option<&SoftSpread>,
        cycle: Cycle<'_>,
        _: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let state = state.ok_or_else(PluginError::not_found)?;
        let columns: smallvec::SmallVec<[&[u32]; 4]> = state
            .constraints
            .iter()
            .map(|weighed| {
                let column = cycle.snapshot.labels().get(&weighed.constraint.topology_key);
                column.map(LabelColumn::values).ok_or_else(PluginError::not_found)
            })
            .collect::<Result<_>>()?;
        for (score, node) in scores.iter_mut().zip(nodes) {
            let slot = node.slot();
            if state.require_all && columns.iter().any(|values| values[slot] == LabelColumn::NONE) {
                *score = 0;
                continue;
            }
            let mut sum = 0.0;
            for (weighed, values) in state.constraints.iter().zip(&columns) {
                let domain = values[slot];
                if domain != LabelColumn::NONE {
                    let at = if weighed.constraint.is_hostname { slot } else { domain as usize };
                    sum += weighed.score(weighed.counts[at]);
                }
            }
            *score = sum.round() as i64;
        }
        Ok(())
    }

    fn normalize(
        &self,
        state: Option<&SoftSpread>,
        cycle: Cycle<'_>,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let state = state.ok_or_else(PluginError::not_found)?;
        const IGNORED: i64 = -1;
        let (mut lowest, mut highest) = (i64::MAX, 0);
        for (score, node) in scores.iter_mut().zip(nodes) {
            if state.is_ignored(cycle.snapshot, *node) {
                *score = IGNORED;
                continue;
            }
            lowest = lowest.min(*score);
            highest = highest.max(*score);
        }
        for score in scores {
            *score = match *score {
                IGNORED => 0,
                _ if highest == 0 => MAX_NODE_SCORE,
                raw => MAX_NODE_SCORE * (highest + lowest - raw) / highest,
            };
        }
        Ok(())
    }
}

/// Counts the domains of the considered nodes, and the matching pods in them over all included nodes. Nodes without
/// the label form one more domain, though they get no score for it.
#[expect(clippy::cast_precision_loss, reason = "upstream computes in float64, too")]
fn weigh(
    snapshot: &Snapshot,
    constraint: Constraint,
    included: &[u64],
    values: &[u32],
    considered: &[NodeIdx],
) -> Weighed {
    let counted = constraint.counted(snapshot);
    if constraint.is_hostname {
        // Inclusion policies do not bear on the count of a single node.
        let mut counts = vec![0; snapshot.n_slots()];
        for (node, count) in counted {
            counts[node.slot()] = i64::from(count);
        }
        return Weighed { constraint, counts, weight: (considered.len() as f64 + 2.0).ln() };
    }
    const ABSENT: i64 = -1;
    let n_ids = snapshot.labels().get(&constraint.topology_key).map_or(0, LabelColumn::n_ids);
    let mut counts = vec![ABSENT; n_ids];
    let mut n_domains = 0_usize;
    let mut lacks_label = false;
    for node in considered {
        let domain = values[node.slot()];
        if domain == LabelColumn::NONE {
            lacks_label = true;
        } else if counts[domain as usize] == ABSENT {
            counts[domain as usize] = 0;
            n_domains += 1;
        }
    }
    n_domains += usize::from(lacks_label);
    for (node, count) in counted {
        let (slot, domain) = (node.slot(), values[node.slot()]);
        let is_included = included[slot / 64] >> (slot % 64) & 1 == 1;
        if is_included && domain != LabelColumn::NONE && counts[domain as usize] != ABSENT {
            counts[domain as usize] += i64::from(count);
        }
    }
    Weighed { constraint, counts, weight: (n_domains as f64 + 2.0).ln() }
}
