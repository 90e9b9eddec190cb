//! The test kit for plugin authors: nodes and pods in a line, one plugin run alone, one whole cycle. No test framework
//! of its own: everything here is called from plain `#[test]` functions.
//!
//! | you want | use |
//! |---|---|
//! | a node, a pod | [`node`], [`pod`]: builders with the words of a manifest |
//! | what exists before the pod comes | [`Cluster`] |
//! | what one plugin says | [`run_plugin`]: verdict, reasons and score on every node, PreFilter and PreScore included |
//! | what the scheduler decides | [`schedule`] with the default profile, [`run_cycle`] with your own |
//!
//! ```
//! use scheduler_core::testing::{Cluster, node, pod, schedule};
//!
//! let cluster = Cluster::new()
//!     .with(node("small").cpu("1"))
//!     .with(node("large").cpu("8"))
//!     .with(node("busy").cpu("8"))
//!     .with(pod("tenant").cpu("7").on("busy"));
//! let decision = schedule(pod("web").cpu("2"), &cluster);
//! assert_eq!(decision.node(), Some("large"));
//! assert_eq!(decision.reasons("small"), ["Insufficient cpu"]);
//! ```
//!
//! Builders and runs panic on a mistake of the test itself, such as a quantity that cannot be read: they are for tests.

mod cluster;
mod cycle;
mod node_builder;
mod plugin_run;
mod pod_builder;

pub use cluster::Cluster;
pub use cycle::{Decision, pool, run_cycle, schedule};
pub use node_builder::{NodeBuilder, node};
pub use plugin_run::{NodeRun, PluginRun, run_plugin};
pub use pod_builder::{PodBuilder, pod};

/// A quantity of a test, written as in a manifest.
fn quantity(text: &str) -> crate::model::Quantity {
    crate::model::Quantity::parse(text).unwrap_or_else(|error| panic!("quantity {text:?}: {error}"))
}

/// A taint or toleration of a test: `key`, `key=value`, each with `:Effect`.
fn taint(text: &str) -> crate::model::Taint {
    use crate::model::{Taint, TaintEffect};
    let (pair, effect) = text.split_once(':').unwrap_or_else(|| panic!("taint {text:?}: expected key=value:Effect"));
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let effect = match effect {
        "NoSchedule" => TaintEffect::NoSchedule,
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        other => panic!("taint {text:?}: unknown effect {other:?}"),
    };
    Taint { key: key.into(), value: value.into(), effect }
}
