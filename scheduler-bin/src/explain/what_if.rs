//! Questions to the engine that change nothing: the cluster with other objects in it, for the length of one answer.

use std::sync::Arc;

use scheduler_core::cache::Snapshot;
use scheduler_core::engine::{Change, Examination, Scheduler};
use scheduler_core::model::{Node, Object, Pod, Timestamp};

/// An engine that is asked.
pub(crate) struct WhatIf<'a> {
    scheduler: &'a mut Scheduler,
    now: Timestamp,
}

/// Something that is different in the cluster.
#[derive(Clone, Debug)]
pub(crate) enum Different {
    /// A node is there, or is another one.
    Node(Arc<Node>),
    /// A pod is not there.
    WithoutPod(Arc<Pod>),
}

impl<'a> WhatIf<'a> {
    /// Asks `scheduler`, which knows the cluster as it is at `now`.
    pub(crate) fn new(scheduler: &'a mut Scheduler, now: Timestamp) -> Self {
        Self { scheduler, now }
    }

    /// The cluster.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        self.scheduler.cache().snapshot()
    }

    /// The engine.
    pub(crate) fn scheduler(&self) -> &Scheduler {
        self.scheduler
    }

    /// What the engine says of a pod; `None` if no profile serves it.
    pub(crate) fn examine(&mut self, pod: &Pod) -> Option<Examination> {
        self.scheduler.examine(pod, self.now, |_| ()).map(|(examination, ())| examination)
    }

    /// What the engine says of a pod in a cluster that is different, which is as before afterwards.
    pub(crate) fn examine_with(&mut self, pod: &Pod, different: &[Different]) -> Option<Examination> {
        let mut undo = Vec::new();
        for part in different {
            match part {
                Different::Node(node) => {
                    let before =
                        self.snapshot().find(&node.name).map(|idx| Arc::new(self.snapshot().node(idx).clone()));
                    undo.push(match before {
                        Some(before) => Change::Applied(Object::Node(before)),
                        None => Change::Deleted(Object::Node(Arc::clone(node))),
                    });
                    self.scheduler.handle(Change::Applied(Object::Node(Arc::clone(node))), self.now);
                }
                Different::WithoutPod(gone) => {
                    undo.push(Change::Applied(Object::Pod(Arc::clone(gone))));
                    self.scheduler.handle(Change::Deleted(Object::Pod(Arc::clone(gone))), self.now);
                }
            }
        }
        let examination = self.examine(pod);
        for change in undo.into_iter().rev() {
            self.scheduler.handle(change, self.now);
        }
        examination
    }
}
