//! The limit: a loop over four columns that finds the node with the most room left. No plugin, no class, no tie, no pod
//! state; a scheduler that looks at every node and does anything more cannot be faster.

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use rayon::ThreadPool;
use rayon::prelude::*;
use scheduler_core::model::Pod;

use crate::workload::{bound_pod, node};

/// Rounds that are timed at least.
const MIN_ROUNDS: usize = 15;
/// Time after which no further round begins.
const ENOUGH: Duration = Duration::from_millis(50);

/// Columns of a cluster, one entry a node.
#[derive(Debug, Clone)]
pub struct BareLoop {
    allocatable_milli_cpu: Vec<i64>,
    allocatable_memory: Vec<i64>,
    requested_milli_cpu: Vec<i64>,
    requested_memory: Vec<i64>,
}

impl BareLoop {
    /// The columns of the cluster that [`crate::workload::cluster`] makes.
    #[must_use]
    pub fn new(n_nodes: usize, n_bound: usize) -> Self {
        let mut columns = Self {
            allocatable_milli_cpu: Vec::with_capacity(n_nodes),
            allocatable_memory: Vec::with_capacity(n_nodes),
            requested_milli_cpu: vec![0; n_nodes],
            requested_memory: vec![0; n_nodes],
        };
        for node in (0..n_nodes).map(node) {
            columns.allocatable_milli_cpu.push(node.allocatable.milli_cpu);
            columns.allocatable_memory.push(node.allocatable.memory);
        }
        for j in 0..n_bound {
            let pod = bound_pod(j, n_nodes);
            let requests = &pod.resources.requests;
            columns.requested_milli_cpu[j % n_nodes] += requests.milli_cpu;
            columns.requested_memory[j % n_nodes] += requests.memory;
        }
        columns
    }

    /// Score and position of the best node of `nodes` that has room for `pod`; `(i64::MIN, 0)` if none has.
    #[must_use]
    pub fn best(&self, nodes: Range<usize>, pod: &Pod) -> (i64, usize) {
        let (milli_cpu, memory) = (pod.resources.requests.milli_cpu, pod.resources.requests.memory);
        let mut best = (i64::MIN, 0);
        let have = self.allocatable_milli_cpu[nodes.clone()].iter().zip(&self.allocatable_memory[nodes.clone()]);
        let used = self.requested_milli_cpu[nodes.clone()].iter().zip(&self.requested_memory[nodes.clone()]);
        for (i, ((have_cpu, have_memory), (used_cpu, used_memory))) in have.zip(used).enumerate() {
            let (free_cpu, free_memory) = (have_cpu - used_cpu - milli_cpu, have_memory - used_memory - memory);
            if free_cpu >= 0 && free_memory >= 0 {
                let score = (free_cpu * 100 / have_cpu + free_memory * 100 / have_memory) / 2;
                if score > best.0 {
                    best = (score, nodes.start + i);
                }
            }
        }
        best
    }

    /// [`Self::best`] of all nodes, shared out evenly among the threads of `pool`.
    #[must_use]
    pub fn best_of_all(&self, pool: &ThreadPool, pod: &Pod) -> (i64, usize) {
        let n_nodes = self.allocatable_milli_cpu.len();
        let n_threads = pool.current_num_threads();
        let share = n_nodes.div_ceil(n_threads).max(1);
        let part = |thread: usize| self.best((thread * share).min(n_nodes)..((thread + 1) * share).min(n_nodes), pod);
        pool.install(|| {
            (0..n_threads).into_par_iter().map(part).reduce(|| (i64::MIN, 0), |a, b| if b.0 > a.0 { b } else { a })
        })
    }

    /// Median time of one pass over all nodes; on one thread or on all of `pool`, whichever is faster.
    #[must_use]
    pub fn time(&self, pool: &ThreadPool, pod: &Pod) -> Duration {
        let n_nodes = self.allocatable_milli_cpu.len();
        let alone = median(|| self.best(0..n_nodes, black_box(pod)));
        if pool.current_num_threads() == 1 {
            return alone;
        }
        alone.min(median(|| self.best_of_all(pool, black_box(pod))))
    }
}

/// Median duration of `work`. Short work is timed many times at once, or the clock would be most of it.
fn median<T>(work: impl Fn() -> T) -> Duration {
    let started = Instant::now();
    black_box(work());
    let n_at_once = u32::try_from(10_000 / started.elapsed().as_nanos().max(1)).unwrap_or(0).max(1);
    let mut rounds = Vec::new();
    let started = Instant::now();
    while rounds.len() < MIN_ROUNDS || started.elapsed() < ENOUGH {
        let round = Instant::now();
        for _ in 0..n_at_once {
            black_box(work());
        }
        rounds.push(round.elapsed() / n_at_once);
    }
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Shape, new_pod};
    use rayon::ThreadPoolBuilder;

    #[test]
    fn the_best_node_is_the_same_on_any_number_of_threads() {
        let columns = BareLoop::new(101, 2_020);
        let pod = new_pod(Shape::Basic, 3, 101);
        let alone = columns.best(0..101, &pod);
        assert!(alone.0 > 0);
        for n_threads in 1..4 {
            let pool = ThreadPoolBuilder::new().num_threads(n_threads).build().expect("threads can be started");
            assert_eq!(columns.best_of_all(&pool, &pod), alone, "{n_threads} threads");
        }
    }

    #[test]
    fn a_pod_larger_than_every_node_has_none() {
        let columns = BareLoop::new(3, 0);
        let mut pod = new_pod(Shape::Basic, 0, 3);
        pod.resources.requests.memory = 129 << 30;
        assert_eq!(columns.best(0..3, &pod), (i64::MIN, 0));
    }
}
