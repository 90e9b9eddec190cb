//! Workloads on virtual time: which pods a controller would make and take away. Knows nothing of nodes but their names.
//!
//! The rules are those of the controllers in short: rolling updates by maxSurge and maxUnavailable, ordered StatefulSets,
//! Jobs with parallelism and completions, CronJobs by their schedule. A pod counts as available once it is bound.

mod cron;
mod parse;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use scheduler_core::model::{Object, Pod};

pub(crate) use cron::Schedule;
pub(crate) use parse::{admit, duration_of, is_workload, namespace_of, parse};

use super::script::{Leaves, Name};

/// What a pod of a workload is made from.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// The pod without a name of its own.
    pub(crate) pod: Pod,
    /// How long each pod works; `None` for ever.
    pub(crate) duration: Option<Duration>,
    /// Short hash of the template, as in pod-template-hash.
    pub(crate) hash: String,
}

/// The rules by which pods come and go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rules {
    /// Deployment with rolling updates: pods above and below `replicas` that an update may make.
    Rolling {
        /// Most pods above.
        max_surge: Share,
        /// Most pods below.
        max_unavailable: Share,
    },
    /// Deployment with strategy Recreate.
    Recreate,
    /// ReplicaSet, ReplicationController: only the number counts, a new template is for new pods.
    Replicas,
    /// StatefulSet; `parallel` is podManagementPolicy Parallel.
    Stateful {
        /// Whether pods need not wait for each other.
        parallel: bool,
    },
    /// DaemonSet.
    Daemon,
    /// Job.
    Job {
        /// Pods at once.
        parallelism: u32,
        /// Pods that must end.
        completions: u32,
    },
    /// CronJob.
    Cron {
        /// When.
        schedule: Box<Schedule>,
        /// Whether it is paused.
        suspend: bool,
        /// What happens when the last Job still runs.
        concurrency: Concurrency,
        /// Its Jobs' parallelism and completions.
        job: (u32, u32),
    },
}

/// A number, or a percentage of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Pods.
    Number(u32),
    /// Percent.
    Percent(u32),
}

impl Share {
    fn of(self, replicas: u32, round_up: bool) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Percent(percent) => {
                let hundredths = u64::from(percent) * u64::from(replicas);
                let whole = if round_up { hundredths.div_ceil(100) } else { hundredths / 100 };
                u32::try_from(whole).unwrap_or(u32::MAX)
            }
        }
    }
}

/// A CronJob's `concurrencyPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concurrency {
    /// Jobs may overlap.
    Allow,
    /// A run is left out while a Job works.
    Forbid,
    /// The Job that works is replaced.
    Replace,
}

/// A workload as its manifest says.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Kind, namespace and name.
    pub(crate) name: Name,
    /// `spec.replicas`.
    pub(crate) replicas: u32,
    /// What its pods are made from.
    pub(crate) template: Arc<Template>,
    /// How they come and go.
    pub(crate) rules: Rules,
    /// How long its first, second, … pod worked when the trace was taken; later ones follow the template.
    pub(crate) lifetimes: Vec<Option<Duration>>,
    /// The object that default spreading reads, such as the Deployment's ReplicaSet.
    pub(crate) owner: Option<Object>,
}

impl Workload {
    /// What it runs first: a CronJob its first Job, any other workload itself.
    pub(crate) fn first_run(self) -> Self {
        match self.rules {
            Rules::Cron { job: (parallelism, completions), .. } => {
                Self { rules: Rules::Job { parallelism, completions }, ..self }
            }
            _ => self,
        }
    }
}

/// A pod of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The pod.
    pub(crate) uid: Arc<str>,
    /// Hash of the template that it was made from.
    hash: String,
    /// Its ordinal, or the order in which it was made.
    ordinal: u32,
    /// Whether it has a node.
    bound: bool,
    /// The node that a DaemonSet's pod is for.
    node: Option<Arc<str>>,
}

/// A workload at work.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    /// What is wanted.
    pub(crate) workload: Workload,
    members: Vec<Member>,
    /// Where each stands in `members`, by uid.
    positions: FxHashMap<Arc<str>, usize>,
    /// Members that were made from another template.
    n_stale: usize,
    n_made: u32,
    n_succeeded: u32,
}

/// What a controller does next.
#[derive(Debug)]
pub(crate) enum Action {
    /// A pod is created.
    Create(Arc<Pod>, Leaves),
    /// A pod is deleted.
    Delete(Arc<str>),
}

impl Controller {
    /// A controller that has made no pods yet.
    pub(crate) fn new(workload: Workload) -> Self {
        let (members, positions) = (Vec::new(), FxHashMap::default());
        Self { workload, members, positions, n_stale: 0, n_made: 0, n_succeeded: 0 }
    }

    /// The workload was changed.
    pub(crate) fn change(&mut self, workload: Workload) {
        self.workload = workload;
        let hash = &self.workload.template.hash;
        self.n_stale = self.members.iter().filter(|member| member.hash != *hash).count();
    }

    /// A pod got its node.
    pub(crate) fn bound(&mut self, uid: &str) {
        if let Some(&at) = self.positions.get(uid) {
            self.members[at].bound = true;
        }
    }

    /// A pod is gone; `ended` when it did its work.
    pub(crate) fn gone(&mut self, uid: &str, ended: bool) {
        if self.remove(uid) && ended {
            self.n_succeeded += 1;
        }
    }

    fn remove(&mut self, uid: &str) -> bool {
        let Some(at) = self.positions.remove(uid) else { return false };
        let member = self.members.swap_remove(at);
        self.n_stale -= usize::from(member.hash != self.workload.template.hash);
        if let Some(moved) = self.members.get(at) {
            self.positions.insert(Arc::clone(&moved.uid), at);
        }
        true
    }

    /// The workload was deleted: it makes no more pods.
    pub(crate) fn retire(&mut self) {
        self.members.clear();
        self.positions.clear();
        self.n_stale = 0;
        self.workload.replicas = 0;
        self.workload.rules = Rules::Replicas;
    }

    /// Whether a binding may be what it waits for: updates and ordered sets go on step by step.
    pub(crate) fn waits_for_binding(&self) -> bool {
        match self.workload.rules {
            Rules::Rolling { .. } => self.n_stale > 0,
            Rules::Stateful { .. } | Rules::Daemon => true,
            _ => false,
        }
    }

    /// Takes the recorded lifetimes of the next `n` pods.
    pub(crate) fn next_lifetimes(&mut self, n: u32) -> Vec<Option<Duration>> {
        let n = (n as usize).min(self.workload.lifetimes.len());
        self.workload.lifetimes.drain(..n).collect()
    }

    /// Whether no pods are there.
    pub(crate) fn is_idle(&self) -> bool {
        self.members.is_empty()
    }

    /// The pods that are there.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.iter().map(|member| &member.uid)
    }
}
