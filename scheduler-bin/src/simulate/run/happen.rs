//! What happens outside and by plan: objects come and go, nodes fail, workloads change, CronJobs run.

use std::sync::Arc;
use std::time::Duration;

use scheduler_core::engine::Change;
use scheduler_core::model::{Node, Object, Pod};

use super::Run;
use crate::simulate::agenda::Due;
use crate::simulate::script::{Happening, Leaves, Name};
use crate::simulate::workload::{Concurrency, Controller, Rules, Workload};
use crate::simulate::{nodes, volumes};

/// How long pods stay on a node that is out of reach. Upstream: the tolerations that every pod gets (300 s).
const UNREACHABLE_PATIENCE: Duration = Duration::from_secs(300);

impl Run<'_> {
    pub(super) fn one(&mut self, what: Happening) -> Result<(), String> {
        match what {
            Happening::Pod(pod, leaves) => {
                let leaves = if self.manner.arrivals_only { Leaves::Never } else { leaves };
                self.pod_arrives(pod, leaves, None);
            }
            Happening::Object(object) => self.apply(object),
            Happening::Workload(workload) => self.workload(*workload),
            Happening::Delete(name) => self.delete(&name)?,
            Happening::Scale(name, replicas) => {
                let at =
                    *self.by_name.get(&name).ok_or_else(|| format!("{name} is not there, so it cannot be scaled"))?;
                self.controllers[at].workload.replicas = replicas;
                self.dirty.push(at);
            }
            Happening::Cordon(node) => self.change_node(&node, |node| nodes::cordoned(node, true))?,
            Happening::Uncordon(node) => self.change_node(&node, |node| nodes::cordoned(node, false))?,
            Happening::Drain(node) => {
                self.change_node(&node, |node| nodes::cordoned(node, true))?;
                self.evict_all(&node, false);
            }
            Happening::Fail(node) => {
                self.change_node(&node, nodes::unreachable)?;
                if !self.manner.arrivals_only {
                    self.agenda.push(self.now.after(UNREACHABLE_PATIENCE), Due::Evict(node));
                }
            }
            Happening::Recover(node) => self.change_node(&node, nodes::reachable)?,
        }
        Ok(())
    }

    pub(super) fn due(&mut self, due: Due) {
        match due {
            Due::Leave(uid) => self.pod_goes(&uid, "ended"),
            Due::Evict(node) => {
                let still = self.node(&node).is_some_and(|node| nodes::is_unreachable(&node));
                if still {
                    self.evict_all(&node, true);
                }
            }
            Due::Cron(at) => self.cron(at),
        }
    }

    pub(super) fn apply(&mut self, object: Object) {
        match object {
            Object::Pod(pod) => self.pod_arrives(pod, Leaves::Never, None),
            Object::Node(_) => {
                self.handle(Change::Applied(object));
                self.nodes_changed();
            }
            _ => self.handle(Change::Applied(object)),
        }
    }

    pub(super) fn nodes_changed(&mut self) {
        self.nodes_changed = true;
        for (at, controller) in self.controllers.iter().enumerate() {
            if controller.workload.rules == Rules::Daemon && !self.dirty.contains(&at) {
                self.dirty.push(at);
            }
        }
    }

    pub(super) fn node(&self, name: &str) -> Option<Arc<Node>> {
        let snapshot = self.scheduler.cache().snapshot();
        snapshot.find(name).map(|idx| Arc::new(snapshot.node(idx).clone()))
    }

    pub(super) fn change_node(&mut self, name: &str, change: impl Fn(&Node) -> Node) -> Result<(), String> {
        let node = self.node(name).ok_or_else(|| format!("node {name} is not there"))?;
        self.apply(Object::Node(Arc::new(change(&node))));
        Ok(())
    }

    pub(super) fn evict_all(&mut self, node: &str, daemons: bool) {
        let snapshot = self.scheduler.cache().snapshot();
        let Some(idx) = snapshot.find(node) else { return };
        let is_daemon = |pod: &Pod| pod.controller.as_ref().is_some_and(|owner| &*owner.kind == "DaemonSet");
        let leaving: Vec<Arc<str>> = snapshot
            .pods(idx)
            .iter()
            .filter(|pod| daemons || !is_daemon(pod))
            .map(|pod| Arc::clone(&pod.uid))
            .collect();
        for uid in leaving {
            self.pod_goes(&uid, "evicted");
        }
    }

    pub(super) fn workload(&mut self, workload: Workload) {
        if let Some(owner) = workload.owner.clone() {
            self.handle(Change::Applied(owner));
        }
        let at = match self.by_name.get(&workload.name) {
            Some(&at) => {
                self.controllers[at].change(workload);
                at
            }
            None => {
                self.by_name.insert(workload.name.clone(), self.controllers.len());
                self.controllers.push(Controller::new(workload));
                self.controllers.len() - 1
            }
        };
        self.plan_cron(at);
        self.dirty.push(at);
    }

    pub(super) fn plan_cron(&mut self, at: usize) {
        if let Rules::Cron { schedule, suspend: false, .. } = &self.controllers[at].workload.rules
            && let Some(next) = schedule.next(self.now)
        {
            self.agenda.push(next, Due::Cron(at));
        }
    }

    /// A CronJob's time has come.
    pub(super) fn cron(&mut self, at: usize) {
        let workload = self.controllers[at].workload.clone();
        let Rules::Cron { suspend: false, concurrency, job: (parallelism, completions), .. } = workload.rules else {
            return;
        };
        let is_its = |controller: &Controller| {
            controller.workload.name.kind == "Job"
                && controller.workload.name.name.starts_with(&format!("{}-", workload.name.name))
                && controller.workload.name.namespace == workload.name.namespace
        };
        let busy: Vec<Name> = self
            .controllers
            .iter()
            .filter(|controller| is_its(controller) && !controller.is_idle())
            .map(|controller| controller.workload.name.clone())
            .collect();
        if busy.is_empty() || concurrency != Concurrency::Forbid {
            if concurrency == Concurrency::Replace {
                for name in &busy {
                    // It is in the list of those that are there.
                    let _ = self.delete(name);
                }
            }
            let minutes = self.now.as_micros() / 60_000_000;
            let name = Name {
                kind: "Job".to_owned(),
                name: format!("{}-{minutes}", workload.name.name),
                ..workload.name.clone()
            };
            let lifetimes = self.controllers[at].next_lifetimes(completions);
            self.workload(Workload { name, rules: Rules::Job { parallelism, completions }, lifetimes, ..workload });
        }
        self.plan_cron(at);
    }

    pub(super) fn delete(&mut self, name: &Name) -> Result<(), String> {
        if let Some(at) = self.by_name.remove(name) {
            let owned: Vec<Arc<str>> = self.controllers[at].members().cloned().collect();
            self.controllers[at].retire();
            for uid in owned {
                self.pod_goes(&uid, "deleted");
            }
            return Ok(());
        }
        match name.kind.as_str() {
            "Pod" => {
                let key = (name.namespace.as_str().into(), name.name.as_str().into());
                if let Some(uid) = self.uids.get(&key).cloned() {
                    self.pod_goes(&uid, "deleted");
                }
            }
            "Node" => {
                if let Some(node) = self.node(&name.name) {
                    self.evict_all(&name.name, true);
                    self.handle(Change::Deleted(Object::Node(node)));
                    self.nodes_changed();
                }
            }
            _ => {
                if let Some(object) = volumes::find(self.scheduler.objects(), name) {
                    self.handle(Change::Deleted(object));
                }
            }
        }
        Ok(())
    }
}
