//! Random clusters.

pub(crate) mod world;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Options, Scheduler};

pub(crate) fn scheduler() -> Scheduler {
    let registry = scheduler_core::plugins::registry();
    Scheduler::new(&KubeSchedulerConfiguration::default(), &registry, Options::default())
        .expect("the default configuration is valid")
}
