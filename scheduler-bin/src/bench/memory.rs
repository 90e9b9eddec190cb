//! How much memory the engine takes: counted by the allocator with the feature `count-allocations`, otherwise the growth
//! of a fresh process's anonymous memory. A process that freed memory before would reuse it, and the growth would say too
//! little; one whose allocator keeps free pages for a second and rounds up to huge pages, as it does otherwise, would say
//! too much.

use std::process::Command;

use benches::workload::{self, Shape};
use scheduler_core::engine::Scheduler;
use serde::{Deserialize, Serialize};

use super::shapes::Case;

/// Lets mimalloc give free pages back to the system at once, and take no huge pages, of which most columns fill parts only.
const EXACT: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "0"), ("MIMALLOC_ALLOW_THP", "0")];

/// Growth below this is lost among the pages of the allocator.
const LEAST_GROWTH: u64 = 4 << 20;

/// Bytes in use before and after a cluster was loaded.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Footprint {
    before: u64,
    with_nodes: u64,
    with_pods: u64,
}

impl Footprint {
    /// Bytes for each of `n_nodes` nodes; `None` when they are too few to see.
    pub(crate) fn bytes_per_node(&self, n_nodes: usize) -> Option<u64> {
        share(self.with_nodes.checked_sub(self.before)?, n_nodes)
    }

    /// Bytes for each of `n_pods` bound pods; `None` when they are too few to see.
    pub(crate) fn bytes_per_pod(&self, n_pods: usize) -> Option<u64> {
        share(self.with_pods.checked_sub(self.with_nodes)?, n_pods)
    }

    /// Loads a cluster into `scheduler` and looks before, between and afterwards. For a process that did nothing yet.
    pub(crate) fn measure(scheduler: &mut Scheduler, n_nodes: usize, n_bound: usize) -> Option<Self> {
        let before = in_use()?;
        workload::add_nodes(scheduler, n_nodes);
        let with_nodes = in_use()?;
        workload::add_bound_pods(scheduler, n_nodes, n_bound);
        Some(Self { before, with_nodes, with_pods: in_use()? })
    }

    /// [`Self::measure`] in a process of its own; `None` where that cannot be done.
    pub(crate) fn in_fresh_process(case: &Case) -> Option<Self> {
        let output = Command::new(std::env::current_exe().ok()?)
            .args(["bench", "--footprint", "--shape", Shape::Basic.name()])
            .args(["--nodes", &case.n_nodes.to_string(), "--existing", &case.n_existing.to_string()])
            .envs(EXACT)
            .output()
            .ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }
}

fn share(growth: u64, n: usize) -> Option<u64> {
    (is_counted() || growth >= LEAST_GROWTH).then(|| growth.checked_div(u64::try_from(n).ok()?)).flatten()
}

/// Where [`Footprint`]s come from.
pub(crate) fn source() -> &'static str {
    if is_counted() { "allocator" } else { "resident anonymous memory" }
}

#[cfg(feature = "count-allocations")]
mod counted {
    //! What the counting allocator knows.

    use stats_alloc::INSTRUMENTED_SYSTEM;

    /// Allocations so far, reallocations included; `None` when the program uses another allocator.
    pub(crate) fn n_allocations() -> Option<u64> {
        let stats = INSTRUMENTED_SYSTEM.stats();
        (stats.allocations > 0).then(|| (stats.allocations + stats.reallocations) as u64)
    }

    pub(super) fn in_use() -> Option<u64> {
        let stats = INSTRUMENTED_SYSTEM.stats();
        (stats.allocations > 0).then(|| stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64)
    }
}

#[cfg(not(feature = "count-allocations"))]
mod counted {
    //! Nobody counts.

    pub(crate) fn n_allocations() -> Option<u64> {
        None
    }

    pub(super) fn in_use() -> Option<u64> {
        None
    }
}

pub(crate) use counted::n_allocations;

fn is_counted() -> bool {
    n_allocations().is_some()
}

fn in_use() -> Option<u64> {
    counted::in_use().or_else(resident)
}

/// The process's resident memory in bytes without files, such as the program itself; Linux only.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_too_small_to_see_are_not_told() {
        let mebibyte = 1 << 20;
        let footprint = Footprint { before: 10 * mebibyte, with_nodes: 20 * mebibyte, with_pods: 21 * mebibyte };
        assert_eq!(footprint.bytes_per_node(1024), Some(10 * 1024));
        assert_eq!(footprint.bytes_per_pod(10), None, "one mebibyte");
        assert_eq!(footprint.bytes_per_node(0), None);
        let shrunk = Footprint { with_nodes: 9 * mebibyte, ..footprint };
        assert_eq!(shrunk.bytes_per_node(1), None);
    }
}
