//! InterPodAffinity's preferences, the incoming pod's and those of pods on nodes.
//! Upstream: plugins/interpodaffinity/scoring.go (v1.36.2).

use std::sync::Arc;

use super::inter_pod_affinity::{InterPodAffinity, count_key};
use super::inter_pod_affinity_counts::counted;
use crate::cache::exact::{float, integer};
use crate::cache::{LabelColumn, Lanes, NodeIdx, NodeView, SlotRun, Snapshot, TermEntry, vectorized};
use crate::framework::{Cycle, CycleState, MAX_NODE_SCORE, PluginError, PreScoreStatus, Result, ScorePlugin};

/// What each domain of each topology key scores: by value id.
#[derive(Debug)]
pub struct TopologyScores(Vec<(Arc<str>, Vec<i64>)>);

/// Adds up scores by topology key and domain.
struct Adder<'a> {
    snapshot: &'a Snapshot,
    by_key: Vec<(Arc<str>, Vec<i64>)>,
}

impl Adder<'_> {
    /// Counts by domain where events keep them, else node by node. A term that reaches no node with the label leaves no
    /// trace.
    fn add(
        &mut self,
        key: &Arc<str>,
        weight: i64,
        by_domain: Option<&[u32]>,
        nodes: impl FnOnce(&mut dyn FnMut(NodeIdx, i64)),
    ) {
        let Some(column) = self.snapshot.labels().get(key) else { return };
        let values = column.values();
        let by_key = &mut self.by_key;
        let mut add = |domain: u32, count: i64| {
            let at = by_key.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
                by_key.push((Arc::clone(key), vec![0; column.n_ids()]));
                by_key.len() - 1
            });
            let score = &mut by_key[at].1[domain as usize];
            *score = score.wrapping_add(weight.wrapping_mul(count));
        };
        if let Some(by_domain) = by_domain {
            for (domain, count) in (0..).zip(by_domain).filter(|(_, count)| **count > 0) {
                add(domain, i64::from(*count));
            }
            return;
        }
        nodes(&mut |node, count| {
            let domain = values[node.slot()];
            if domain != LabelColumn::NONE {
                add(domain, count);
            }
        });
    }

    fn add_entry(&mut self, entry: &TermEntry, weight: i32) {
        self.add(&entry.term.topology_key, i64::from(weight), entry.by_domain(), |each| {
            for (node, count) in entry.nodes.iter() {
                each(node, i64::from(count));
            }
        });
    }
}

impl ScorePlugin for InterPodAffinity {
    type State = TopologyScores;

    fn pre_score(&self, cycle: Cycle<'_>, _: &[NodeIdx], _: &CycleState) -> Result<PreScoreStatus<TopologyScores>> {
        let (pod, snapshot) = (cycle.pod, cycle.snapshot);
        let (preferred, preferred_anti) = match &pod.affinity {
            Some(affinity) => (&*affinity.preferred_pod, &*affinity.preferred_anti),
            None => (&[][..], &[][..]),
        };
        let has_preferences = !preferred.is_empty() || !preferred_anti.is_empty();
        if self.ignore_preferred_terms_of_existing_pods && !has_preferences {
            return Ok(PreScoreStatus::Skip);
        }
        let mut adder = Adder { snapshot, by_key: Vec::new() };
        let own = preferred.iter().map(|term| (term, 1)).chain(preferred_anti.iter().map(|term| (term, -1)));
        for (weighted, sign) in own {
            let key = count_key(&weighted.term, cycle.objects);
            let weight = i64::from(weighted.weight) * sign;
            let topology_key = &weighted.term.topology_key;
            let counts = snapshot.pod_counts();
            let domains = counts.find(&key).and_then(|column| counts.find_over_all_nodes(column, topology_key));
            let by_domain = domains.map(|domains| counts.domains_at(domains).pods_by_domain());
            adder.add(topology_key, weight, by_domain, |each| counted(snapshot, &key, each));
        }
        let namespace_labels = cycle.objects.namespace_labels(&pod.namespace);
        if self.hard_weight > 0 {
            let terms = snapshot.required_affinity_terms();
            for (_, entry) in terms.matching(&pod.namespace, &pod.labels, &namespace_labels) {
                adder.add_entry(entry, self.hard_weight);
            }
        }
        let terms = snapshot.preferred_affinity_terms();
        for (_, entry) in terms.matching(&pod.namespace, &pod.labels, &namespace_labels) {
            adder.add_entry(entry, entry.weight);
        }
        if adder.by_key.is_empty() {
            return Ok(PreScoreStatus::Skip);
        }
        Ok(PreScoreStatus::Success(TopologyScores(adder.by_key)))
    }

    /// Does not look at the feasible nodes.
    fn pre_score_mask(
        &self,
        cycle: Cycle<'_>,
        _: Option<&[u64]>,
        shared: &CycleState,
    ) -> Result<Option<PreScoreStatus<TopologyScores>>> {
        self.pre_score(cycle, &[], shared).map(Some)
    }

    fn score(
        &self,
        state: Option<&TopologyScores>,
        cycle: Cycle<'_>,
        _: &CycleState,
        node: NodeView<'_>,
    ) -> Result<i64> {
        let state = state.ok_or_else(PluginError::not_found)?;
        Ok(state
            .0
            .iter()
            .filter_map(|(key, scores)| {
                let domain = cycle.snapshot.labels().get(key)?.values()[node.idx().slot()];
                scores.get(domain as usize)
            })
            .fold(0, |sum, score| sum.wrapping_add(*score)))
    }

    fn score_chunk(
        &self,
        state: Option<&TopologyScores>,
        cycle: Cycle<'_>,
        _: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let state = state.ok_or_else(PluginError::not_found)?;
        scores.fill(0);
        for (key, by_domain) in &state.0 {
            let Some(column) = cycle.snapshot.labels().get(key) else { continue };
            let values = column.values();
            for (score, node) in scores.iter_mut().zip(nodes) {
                let of_domain = by_domain.get(values[node.slot()] as usize).copied().unwrap_or(0);
                *score = score.wrapping_add(of_domain);
            }
        }
        Ok(())
    }

    fn score_slots(
        &self,
        state: Option<&TopologyScores>,
        cycle: Cycle<'_>,
        _: &CycleState,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> Result<bool> {
        let Some(TopologyScores(by_key)) = state else { return Ok(false) };
        scores.fill(0);
        for (key, by_domain) in by_key {
            let Some(column) = cycle.snapshot.labels().get(key) else { continue };
            for (score, domain) in scores.iter_mut().zip(&column.values()[slots.range()]) {
                *score = score.wrapping_add(by_domain.get(*domain as usize).copied().unwrap_or(0));
            }
        }
        Ok(true)
    }

    fn normalize(&self, state: Option<&TopologyScores>, _: Cycle<'_>, _: &[NodeIdx], scores: &mut [i64]) -> Result<()> {
        state.ok_or_else(PluginError::not_found)?;
        let lowest = scores.iter().copied().min().unwrap_or(0);
        let highest = scores.iter().copied().max().unwrap_or(0);
        spread_out(lowest, highest, scores);
        Ok(())
    }

    fn normalize_between(&self, state: Option<&TopologyScores>, lowest: i64, highest: i64, scores: &mut [i64]) -> bool {
        if state.is_some() {
            spread_out(lowest, highest, scores);
        }
        state.is_some()
    }
}

/// The lowest score becomes 0 and the highest 100; nothing is left of scores that are all the same.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "upstream computes in float64, too")]
fn spread_out(lowest: i64, highest: i64, scores: &mut [i64]) {
    let range = highest.wrapping_sub(lowest);
    if range <= 0 {
        scores.fill(0);
    } else if range < 1 << 51 {
        vectorized(SpreadOut { lowest, range, scores });
    } else {
        for score in scores {
            let part = score.wrapping_sub(lowest) as f64 / range as f64;
            *score = (MAX_NODE_SCORE as f64 * part) as i64;
        }
    }
}

/// The same in vectors, for a range below 2^51.
struct SpreadOut<'a> {
    lowest: i64,
    range: i64,
    scores: &'a mut [i64],
}

impl Lanes for SpreadOut<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let range = float(self.range);
        for score in self.scores {
            *score = integer((100.0 * (float(score.wrapping_sub(self.lowest)) / range)).floor());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn scores_are_spread_out_in_vectors_as_one_by_one(
            scores in prop::collection::vec(prop_oneof![4 => -1000_i64..1000, 1 => -1_i64 << 49..1 << 49], 1..20),
        ) {
            let (lowest, highest) = (scores.iter().min().copied(), scores.iter().max().copied());
            let (lowest, highest) = (lowest.expect("one"), highest.expect("one"));
            let range = (highest - lowest) as f64;
            let one = |score: &i64| if range > 0.0 { (100.0 * ((score - lowest) as f64 / range)) as i64 } else { 0 };
            let want: Vec<i64> = scores.iter().map(one).collect();
            let mut got = scores;
            spread_out(lowest, highest, &mut got);
            prop_assert_eq!(got, want);
        }
    }
}
