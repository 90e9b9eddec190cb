//! Random clusters.

pub(crate) mod world;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Options, Scheduler};

pub(crate) fn scheduler() -> Scheduler {
    scheduler_that_scores(100)
}

/// A scheduler that looks for so many feasible nodes in a hundred.
pub(crate) fn scheduler_that_scores(percentage: i32) -> Scheduler {
    let registry = scheduler_core::plugins::registry();
    let configuration = KubeSchedulerConfiguration {
        percentage_of_nodes_to_score: percentage,
        ..KubeSchedulerConfiguration::default()
    };
    Scheduler::new(&configuration, &registry, Options::default()).expect("the default configuration is valid")
}
