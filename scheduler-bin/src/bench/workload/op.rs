//! Operations of a workload with their parameters resolved: what is created, waited for and measured, in which order.

use std::time::Duration;

use scheduler_core::config::KubeSchedulerConfiguration;

use super::template::Template;

/// One step of a workload.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `createNodes`
    CreateNodes {
        /// How many.
        count: usize,
        /// What they look like; the default is 4 CPUs, 32Gi and 110 pods.
        template: Option<Template>,
        /// A label and the values that nodes get in turn.
        label: Option<(String, Vec<String>)>,
        /// A label with another value on every node.
        unique_label: Option<String>,
    },
    /// `createNamespaces`: `PREFIX-0`, `PREFIX-1`, …
    CreateNamespaces {
        /// First part of the names.
        prefix: String,
        /// How many.
        count: usize,
        /// Labels and the like.
        template: Option<Template>,
    },
    /// `createPods`
    CreatePods(CreatePods),
    /// `createPodSets`: the same pods in each of several namespaces.
    CreatePodSets {
        /// How many namespaces.
        count: usize,
        /// First part of their names.
        namespace_prefix: String,
        /// The pods of each.
        pods: CreatePods,
    },
    /// `createAny`
    CreateAny {
        /// Where; `None` for kinds without namespaces.
        namespace: Option<String>,
        /// How many.
        count: usize,
        /// The object.
        template: Template,
    },
    /// `churn`: in the background until the workload ends.
    Churn(Churn),
    /// `deletePods`
    DeletePods {
        /// Whose pods.
        namespace: String,
        /// `None` deletes all at once.
        per_second: Option<u32>,
        /// Whether the next operation waits until all are deleted.
        wait: bool,
    },
    /// `barrier`
    Barrier {
        /// Where; empty is everywhere.
        namespaces: Vec<String>,
        /// What must have happened to the pods.
        stage: Stage,
    },
    /// `sleep`
    Sleep(Duration),
    /// `startCollectingMetrics`
    StartCollecting {
        /// Part of the result's name.
        name: String,
        /// Whose pods are counted.
        namespaces: Vec<String>,
    },
    /// `stopCollectingMetrics`
    StopCollecting,
}

/// Pods to create.
#[derive(Clone, Debug)]
pub(crate) struct CreatePods {
    /// How many.
    pub(crate) count: usize,
    /// Where; `None` is `namespace-POSITION` of the operation.
    pub(crate) namespace: Option<String>,
    /// What they look like.
    pub(crate) template: Template,
    /// Whether the throughput until all are scheduled is measured.
    pub(crate) collect_metrics: bool,
    /// Whether the next operation waits until all are scheduled.
    pub(crate) wait: bool,
}

/// What goes on in the background.
#[derive(Clone, Debug)]
pub(crate) struct Churn {
    /// Whether objects go again.
    pub(crate) mode: ChurnMode,
    /// How many of each template; 0 is without end.
    pub(crate) number: usize,
    /// Pause between two rounds.
    pub(crate) interval: Duration,
    /// Where; `None` is `namespace-POSITION` of the operation.
    pub(crate) namespace: Option<String>,
    /// What is created in each round.
    pub(crate) templates: Vec<Template>,
}

/// Modes of `churn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChurnMode {
    /// Objects stay.
    Create,
    /// Objects are created in `number` rounds and deleted in the next `number` rounds.
    Recreate,
}

/// What a barrier waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Every pod has a node.
    Scheduled,
    /// Every pod was tried, or is gated.
    Attempted,
}

/// A workload, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Test case and workload, such as `SchedulingBasic/5000Nodes_10000Pods`.
    pub(crate) name: String,
    /// What happens.
    pub(crate) ops: Vec<Op>,
    /// Average pods/s below which upstream's own test fails; 0 when it has none.
    pub(crate) threshold: f64,
    /// Feature gates that the configuration sets and that mean nothing here.
    pub(crate) feature_gates: Vec<String>,
    /// The scheduler's configuration, where the workload names a file.
    pub(crate) configuration: Option<KubeSchedulerConfiguration>,
}
