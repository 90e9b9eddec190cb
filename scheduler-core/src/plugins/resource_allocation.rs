//! Scoring by allocation, shared by NodeResourcesFit and NodeResourcesBalancedAllocation: inputs and formulas.
//! Upstream: plugins/noderesources/{resource_allocation,least_allocated,most_allocated,requested_to_capacity_ratio,balanced_allocation}.go (v1.36.2).

use std::sync::Arc;

use smallvec::SmallVec;

use super::resource_runs::{BalanceOfTwo, MAX_RUN, PercentOfTwo, Run};
use crate::cache::{Amounts, LANES, NodeIdx, NodeView, ResourceColumns, ResourceId, SlotRun, exact, ones, vectorized};
use crate::config::args::ResourceSpec;
use crate::framework::MAX_NODE_SCORE;
use crate::model::{Pod, is_scalar_resource};

/// So many nodes are worth being brought together.
const MIN_GATHERED: usize = 16;

/// How use turns into a score.
#[derive(Debug, Clone)]
pub(super) enum Strategy {
    /// The more is free, the better.
    LeastAllocated,
    /// The less is free, the better.
    MostAllocated,
    /// By a broken line of (utilisation 0..=100, score 0..=10).
    RequestedToCapacityRatio(Box<[(i64, i64)]>),
    /// The more evenly the resources are used with the pod than without, the better.
    Balanced,
}

/// Scores nodes by one strategy over some resources.
#[derive(Debug)]
pub(super) struct AllocationScorer {
    strategy: Strategy,
    resources: Vec<(Arc<str>, i64)>,
}

/// Which of a node's two sums of requests counts.
#[derive(Debug, Clone, Copy)]
enum Usage {
    /// The real one.
    Requested,
    /// With defaults for containers that name no CPU.
    NonZeroMilliCpu,
    /// With defaults for containers that name no memory.
    NonZeroMemory,
}

#[derive(Debug, Clone, Copy)]
struct Input {
    id: ResourceId,
    usage: Usage,
    request: i64,
    weight: i64,
}

/// An input with its columns.
type Resolved<'a> = (&'a Input, Amounts<'a>);

/// The resources that a score of one pod looks at, resolved to columns.
#[derive(Debug)]
pub struct Inputs(SmallVec<[Input; 2]>);

impl Inputs {
    fn resolve<'a>(&'a self, columns: &'a ResourceColumns) -> SmallVec<[Resolved<'a>; 2]> {
        let amounts = |input: &Input| match input.usage {
            Usage::Requested => columns.amounts(input.id),
            Usage::NonZeroMilliCpu => columns.non_zero_milli_cpu_amounts(),
            Usage::NonZeroMemory => columns.non_zero_memory_amounts(),
        };
        self.0.iter().map(|input| (input, amounts(input))).collect()
    }
}

impl Input {
    /// `None` if the pod's request or the weight is too large for a vector.
    fn run<'a>(&self, allocatable: &'a [i64], usage: &'a [i64]) -> Option<Run<'a>> {
        let weight = i32::try_from(self.weight).ok().filter(|weight| (1..1 << 20).contains(weight))?;
        let run = Run { allocatable, usage, request: self.request, weight: f64::from(weight) };
        (0..exact::LIMIT).contains(&self.request).then_some(run)
    }
}

impl AllocationScorer {
    pub(super) fn new(strategy: Strategy, resources: &[ResourceSpec]) -> Self {
        let strategy = match strategy {
            Strategy::RequestedToCapacityRatio(shape) => Strategy::RequestedToCapacityRatio(
                shape.iter().map(|(utilization, score)| (*utilization, score * (MAX_NODE_SCORE / 10))).collect(),
            ),
            other => other,
        };
        Self { strategy, resources: resources.iter().map(|spec| (spec.name.as_str().into(), spec.weight)).collect() }
    }

    /// Requests with the defaults of scoring, pod-level ones ignored.
    pub(super) fn inputs_for_scoring(&self, pod: &Pod, columns: &ResourceColumns) -> Inputs {
        self.inputs(columns, |name| match name {
            "cpu" => (pod.resources.scoring_milli_cpu, Usage::NonZeroMilliCpu),
            "memory" => (pod.resources.scoring_memory, Usage::NonZeroMemory),
            other => (pod.resources.scoring().get(other), Usage::Requested),
        })
    }

    /// Real requests. `None` when the pod asks for none of the resources.
    pub(super) fn inputs_for_balance(&self, pod: &Pod, columns: &ResourceColumns) -> Option<Inputs> {
        let requests = pod.resources.used();
        if self.resources.iter().all(|(name, _)| requests.get(name) == 0) {
            return None;
        }
        Some(self.inputs(columns, |name| (requests.get(name), Usage::Requested)))
    }

    fn inputs(&self, columns: &ResourceColumns, request: impl Fn(&str) -> (i64, Usage)) -> Inputs {
        Inputs(
            self.resources
                .iter()
                .filter(|(name, _)| name.as_ref() != "pods")
                .filter_map(|(name, weight)| {
                    let (request, usage) = request(name);
                    if request == 0 && is_scalar_resource(name) {
                        return None;
                    }
                    Some(Input { id: columns.id(name)?, usage, request, weight: *weight })
                })
                .collect(),
        )
    }

    pub(super) fn score(&self, inputs: &Inputs, node: NodeView<'_>) -> i64 {
        let usage = |input: &Input| match input.usage {
            Usage::Requested => node.requested(input.id),
            Usage::NonZeroMilliCpu => node.non_zero_milli_cpu(),
            Usage::NonZeroMemory => node.non_zero_memory(),
        };
        let used = inputs
            .0
            .iter()
            .map(|input| Used {
                allocatable: node.allocatable(input.id),
                without_pod: usage(input),
                with_pod: usage(input).wrapping_add(input.request),
                weight: input.weight,
            })
            .filter(|used| used.allocatable != 0);
        self.score_used(used)
    }

    pub(super) fn score_chunk(
        &self,
        inputs: &Inputs,
        columns: &ResourceColumns,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) {
        let resolved = inputs.resolve(columns);
        for (nodes, scores) in nodes.chunks(MAX_RUN).zip(scores.chunks_mut(MAX_RUN)) {
            if !self.score_gathered(&resolved, nodes, scores) {
                for (score, node) in scores.iter_mut().zip(nodes) {
                    *score = self.score_slot(&resolved, node.slot());
                }
            }
        }
    }

    /// Whether CPU and memory are all that it looks at.
    pub(super) fn is_of_cpu_and_memory(&self) -> bool {
        let has = |wanted: &str| self.resources.iter().any(|(name, _)| name.as_ref() == wanted);
        self.resources.len() == 2 && has("cpu") && has("memory")
    }

    /// All slots of a run as they lie. For [`Strategy::Balanced`], `without_pod` is how even each is without the pod, if
    /// that is known. False if the slots must be scored one by one.
    pub(super) fn score_slots(
        &self,
        inputs: &Inputs,
        columns: &ResourceColumns,
        without_pod: Option<&[u8]>,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> bool {
        self.score_resolved(&inputs.resolve(columns), without_pod, slots, scores)
    }

    fn score_resolved(
        &self,
        resolved: &[Resolved<'_>],
        without_pod: Option<&[u8]>,
        slots: SlotRun<'_>,
        scores: &mut [i64],
    ) -> bool {
        let [(a, of_a), (b, of_b)] = resolved else { return false };
        let runs = [(a, of_a), (b, of_b)]
            .map(|(input, of)| input.run(&of.allocatable[slots.range()], &of.used[slots.range()]));
        let [Some(a), Some(b)] = runs else { return false };
        if !self.score_runs([a, b], without_pod, scores) {
            return false;
        }
        let (first, first_word) = (slots.range().start, slots.range().start / LANES);
        for (at, feasible) in (first_word..).zip(slots.feasible()) {
            for lane in ones(feasible & (of_a.irregular[at] | of_b.irregular[at])) {
                let slot = at * LANES + lane;
                scores[slot - first] = self.score_slot(resolved, slot);
            }
        }
        true
    }

    /// One node, for any strategy and any amounts.
    fn score_slot(&self, resolved: &[Resolved<'_>], slot: usize) -> i64 {
        let used = resolved
            .iter()
            .map(|(input, of)| Used {
                allocatable: of.allocatable[slot],
                without_pod: of.used[slot],
                with_pod: of.used[slot].wrapping_add(input.request),
                weight: input.weight,
            })
            .filter(|used| used.allocatable != 0);
        self.score_used(used)
    }

    /// Nodes anywhere: what is known of them is brought together first. False if they must be scored one by one, as a few
    /// are sooner.
    fn score_gathered(&self, resolved: &[Resolved<'_>], nodes: &[NodeIdx], scores: &mut [i64]) -> bool {
        let [(a, of_a), (b, of_b)] = resolved else { return false };
        let irregular = |node: &NodeIdx| {
            let word = node.slot() / LANES;
            (of_a.irregular[word] | of_b.irregular[word]) >> (node.slot() % LANES) & 1 == 1
        };
        if nodes.len() < MIN_GATHERED || nodes.iter().any(irregular) {
            return false;
        }
        let mut columns = [[0_i64; MAX_RUN]; 4];
        for (to, from) in columns.iter_mut().zip([of_a.allocatable, of_a.used, of_b.allocatable, of_b.used]) {
            for (to, node) in to.iter_mut().zip(nodes) {
                *to = from[node.slot()];
            }
        }
        let [a_whole, a_usage, b_whole, b_usage] = columns.each_ref().map(|column| &column[..nodes.len()]);
        let (Some(a), Some(b)) = (a.run(a_whole, a_usage), b.run(b_whole, b_usage)) else { return false };
        self.score_runs([a, b], None, scores)
    }

    /// Two resources in vectors, if the strategy allows it. False if not. A slot with irregular amounts gets anything.
    fn score_runs(&self, runs: [Run<'_>; 2], without_pod: Option<&[u8]>, out: &mut [i64]) -> bool {
        match self.strategy {
            Strategy::LeastAllocated => vectorized(PercentOfTwo::<true> { runs, out }),
            Strategy::MostAllocated => vectorized(PercentOfTwo::<false> { runs, out }),
            Strategy::Balanced => vectorized(BalanceOfTwo { runs, without_pod, out }),
            Strategy::RequestedToCapacityRatio(_) => return false,
        }
        true
    }

    #[inline]
    fn score_used(&self, used: impl Iterator<Item = Used> + Clone) -> i64 {
        match &self.strategy {
            Strategy::LeastAllocated => mean(used, Used::least_allocated),
            Strategy::MostAllocated => mean(used, Used::most_allocated),
            Strategy::RequestedToCapacityRatio(shape) => rounded_mean(used, |used| used.by_ratio(shape)),
            Strategy::Balanced => {
                let with_pod = balance(used.clone().map(|used| used.fraction(used.with_pod)));
                let without_pod = balance(used.map(|used| used.fraction(used.without_pod)));
                MAX_NODE_SCORE / 2 + (MAX_NODE_SCORE / 2 + with_pod - without_pod) / 2
            }
        }
    }
}

/// One resource of one node.
#[derive(Clone, Copy)]
struct Used {
    allocatable: i64,
    without_pod: i64,
    with_pod: i64,
    weight: i64,
}

impl Used {
    #[inline]
    fn least_allocated(self) -> i64 {
        if self.with_pod > self.allocatable {
            return 0;
        }
        percent(self.allocatable.wrapping_sub(self.with_pod), self.allocatable)
    }

    #[inline]
    fn most_allocated(self) -> i64 {
        percent(self.with_pod.min(self.allocatable), self.allocatable)
    }

    fn by_ratio(self, shape: &[(i64, i64)]) -> i64 {
        if self.with_pod > self.allocatable {
            return broken_line(shape, 100);
        }
        broken_line(shape, percent(self.with_pod, self.allocatable))
    }

    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "upstream computes in float64, too")]
    fn fraction(self, used: i64) -> f64 {
        (used as f64 / self.allocatable as f64).min(1.0)
    }
}

/// `100·part/whole`, truncated; wraps where upstream's int64 wraps.
#[inline]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "exact below 2^52, as the test shows")]
fn percent(part: i64, whole: i64) -> i64 {
    const EXACT: u64 = 1 << 52;
    let scaled = part.wrapping_mul(MAX_NODE_SCORE);
    if scaled.unsigned_abs() < EXACT && whole.unsigned_abs() < EXACT {
        // Correctly rounded division of integers below 2^52 never rounds up to the next integer: much faster than idiv.
        (scaled as f64 / whole as f64) as i64
    } else {
        scaled.wrapping_div(whole)
    }
}

/// Linear between the points, constant outside. Upstream: helper `BuildBrokenLinearFunction`.
fn broken_line(shape: &[(i64, i64)], utilization: i64) -> i64 {
    let Some(next) = shape.iter().position(|(at, _)| utilization <= *at) else {
        return shape.last().map_or(0, |(_, score)| *score);
    };
    let (next_at, next_score) = shape[next];
    let Some((at, score)) = next.checked_sub(1).map(|before| shape[before]) else { return next_score };
    score + (next_score - score) * (utilization - at) / (next_at - at)
}

#[inline]
fn mean(used: impl Iterator<Item = Used>, score: impl Fn(Used) -> i64) -> i64 {
    let (mut sum, mut weights) = (0_i64, 0_i64);
    for used in used {
        sum = sum.wrapping_add(score(used).wrapping_mul(used.weight));
        weights += used.weight;
    }
    if weights == 0 { 0 } else { sum / weights }
}

/// Resources that score nothing leave the mean.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "upstream computes in float64, too")]
fn rounded_mean(used: impl Iterator<Item = Used>, score: impl Fn(Used) -> i64) -> i64 {
    let (mut sum, mut weights) = (0_i64, 0_i64);
    for used in used {
        let score = score(used);
        if score > 0 {
            sum = sum.wrapping_add(score.wrapping_mul(used.weight));
            weights += used.weight;
        }
    }
    if weights == 0 { 0 } else { (sum as f64 / weights as f64).round() as i64 }
}

/// How even the use of two resources is, 0 to 100: [`Strategy::Balanced`] without a further pod.
pub(super) fn evenness(allocatable: [i64; 2], requested: [i64; 2]) -> u8 {
    let (mut fractions, mut n) = ([0.0; 2], 0);
    for at in 0..2 {
        if allocatable[at] != 0 {
            let (allocatable, requested) = (allocatable[at], requested[at]);
            let used = Used { allocatable, without_pod: requested, with_pod: requested, weight: 1 };
            fractions[n] = used.fraction(requested);
            n += 1;
        }
    }
    u8::try_from(balance(fractions[..n].iter().copied())).unwrap_or(0)
}

/// 100 when all fractions are equal, less the more they deviate.
#[inline]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "upstream computes in float64, too")]
fn balance(fractions: impl Iterator<Item = f64> + Clone) -> i64 {
    let (mut n, mut total, mut first_two) = (0_usize, 0.0, [0.0; 2]);
    for fraction in fractions.clone() {
        if n < 2 {
            first_two[n] = fraction;
        }
        total += fraction;
        n += 1;
    }
    let deviation = match n {
        0 | 1 => 0.0,
        2 => ((first_two[0] - first_two[1]) / 2.0_f64).abs(),
        _ => {
            let mean = total / n as f64;
            let squares: f64 = fractions.fold(0.0, |sum, fraction| sum + (fraction - mean) * (fraction - mean));
            (squares / n as f64).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, any, prop, prop_assert_eq, prop_assume, prop_oneof, proptest};
    use proptest::strategy::Strategy as _;

    use super::*;
    use crate::cache::{is_irregular, mask_of};

    /// Round amounts, so that fractions are often equal and quotients integers; now and then one that no vector takes.
    fn amount() -> impl proptest::strategy::Strategy<Value = i64> {
        prop_oneof![
            4 => (0_i64..40).prop_map(|cores| cores * 1_000),
            4 => 0_i64..1 << 30,
            2 => (0_i64..64).prop_map(|gibibytes| gibibytes << 30),
            1 => Just(0),
            1 => Just(exact::LIMIT),
            1 => -5_i64..0,
        ]
    }

    proptest! {
        #[test]
        fn percent_equals_integer_division(part in any::<i64>(), whole in any::<i64>(), shift in 0_u32..63) {
            let (part, whole) = (part >> shift, whole >> shift);
            prop_assume!(whole != 0);
            prop_assert_eq!(percent(part, whole), part.wrapping_mul(100).wrapping_div(whole));
        }

        #[test]
        fn a_run_of_slots_scores_as_each_node_does(
            amounts in prop::collection::vec((amount(), amount(), amount(), amount()), 1..300),
            skipped in prop::collection::vec(any::<bool>(), 320),
            (cpu_request, memory_request) in (amount(), amount()),
            (cpu_weight, memory_weight) in (1_i64..5, 1_i64..5),
        ) {
            let column = |pick: fn(&(i64, i64, i64, i64)) -> i64| {
                amounts.iter().map(pick).chain(std::iter::repeat(0)).take(amounts.len().next_multiple_of(LANES)).collect()
            };
            let columns: [Vec<i64>; 4] = [column(|of| of.0), column(|of| of.1), column(|of| of.2), column(|of| of.3)];
            let [cpu, cpu_used, memory, memory_used] = &columns;
            let irregular = |allocatable: &[i64], used: &[i64]| -> Vec<u64> {
                let of_word = |first: usize| {
                    mask_of(|lane| is_irregular(allocatable[first + lane], used[first + lane]))
                };
                (0..allocatable.len()).step_by(LANES).map(of_word).collect()
            };
            let irregular = [irregular(cpu, cpu_used), irregular(memory, memory_used)];
            let input = |id, request, weight| Input { id, usage: Usage::Requested, request, weight };
            let inputs = [
                input(ResourceId::MILLI_CPU, cpu_request, cpu_weight),
                input(ResourceId::MEMORY, memory_request, memory_weight),
            ];
            let resolved: [Resolved<'_>; 2] = [
                (&inputs[0], Amounts { allocatable: cpu, used: cpu_used, irregular: &irregular[0] }),
                (&inputs[1], Amounts { allocatable: memory, used: memory_used, irregular: &irregular[1] }),
            ];
            let feasible: Vec<u64> = (0..cpu.len() / LANES)
                .map(|word| mask_of(|lane| word * LANES + lane < amounts.len() && !skipped[word * LANES + lane]))
                .collect();
            let slots = SlotRun::new(0, &feasible);
            let nodes: Vec<NodeIdx> = slots.iter().map(|(_, node)| node).collect();
            for strategy in [Strategy::LeastAllocated, Strategy::MostAllocated, Strategy::Balanced] {
                let scorer = AllocationScorer::new(strategy, &[]);
                let each: Vec<i64> = nodes.iter().map(|node| scorer.score_slot(&resolved, node.slot())).collect();
                let mut gathered = vec![0; nodes.len()];
                if scorer.score_gathered(&resolved, &nodes, &mut gathered) {
                    prop_assert_eq!(&gathered, &each, "{:?}", scorer.strategy);
                }
                let of_slot = |at| evenness([cpu[at], memory[at]], [cpu_used[at], memory_used[at]]);
                let evenness: Vec<u8> = (0..cpu.len()).map(of_slot).collect();
                for without_pod in [None, Some(&evenness[..])] {
                    let mut of_slots = vec![0; cpu.len()];
                    if scorer.score_resolved(&resolved, without_pod, slots, &mut of_slots) {
                        let of_nodes: Vec<i64> = nodes.iter().map(|node| of_slots[node.slot()]).collect();
                        prop_assert_eq!(&of_nodes, &each, "{:?}", scorer.strategy);
                    }
                }
            }
        }

        #[test]
        fn percent_is_exact_just_below_an_integer(whole in 1_i64..1 << 44, score in 0_i64..=100) {
            let part = whole / 100 * score;
            for part in [part - 1, part, part + 1] {
                prop_assert_eq!(percent(part, whole), part * 100 / whole);
            }
        }
    }

    #[test]
    fn the_broken_line_is_constant_outside_its_points() {
        let shape = [(20, 0), (80, 60)];
        for (utilization, want) in [(0, 0), (20, 0), (50, 30), (80, 60), (100, 60)] {
            assert_eq!(broken_line(&shape, utilization), want);
        }
    }

    #[test]
    fn balance_of_none_one_two_and_three_fractions() {
        assert_eq!(balance([].into_iter()), 100);
        assert_eq!(balance([0.3].into_iter()), 100);
        assert_eq!(balance([1.0, 0.0].into_iter()), 50);
        assert_eq!(balance([0.5, 0.5, 0.5].into_iter()), 100);
    }
}
