//! Pods come, get their node and go; whoever counts or owns them is told.

use std::sync::Arc;

use scheduler_core::engine::Change;
use scheduler_core::model::{Object, Pod};

use super::{Life, Run, Told};
use crate::simulate::agenda::Due;
use crate::simulate::script::Leaves;

impl Run<'_> {
    pub(super) fn pod_arrives(&mut self, pod: Arc<Pod>, leaves: Leaves, workload: Option<usize>) {
        if pod.is_terminal() {
            if self.pods.contains_key(&pod.uid) {
                self.pod_goes(&pod.uid, "ended");
            }
            return;
        }
        let uid = Arc::clone(&pod.uid);
        if let Some(known) = self.pods.get_mut(&uid) {
            // A change of a pod that is there; where it is stays the engine's decision.
            let pod = match &known.node {
                Some(node) if pod.node_name.is_none() => {
                    Arc::new(Pod { node_name: Some(Arc::clone(node)), ..Pod::clone(&pod) })
                }
                _ => pod,
            };
            known.pod = Arc::clone(&pod);
            self.handle(Change::Applied(Object::Pod(pod)));
            return;
        }
        let node = pod.node_name.clone();
        self.handle(Change::Applied(Object::Pod(Arc::clone(&pod))));
        let is_first = node.is_none();
        let is_ours = !is_first || self.serves(&pod.scheduler_name);
        if !is_ours {
            *self.other_schedulers.entry(Arc::clone(&pod.scheduler_name)).or_default() += 1;
        } else if is_first {
            self.measure.counts.arrived += 1;
            self.n_pending += 1;
        } else if node.as_deref().is_some_and(|node| self.scheduler.cache().snapshot().find(node).is_some()) {
            self.measure.placed(&pod);
        }
        if !is_first {
            self.count_budgets(&pod, true);
        }
        match leaves {
            Leaves::At(at) => self.agenda.push(at, Due::Leave(Arc::clone(&uid))),
            Leaves::After(span) if node.is_some() => {
                self.agenda.push(self.now.after(span), Due::Leave(Arc::clone(&uid)))
            }
            _ => {}
        }
        self.uids.insert((Arc::clone(&pod.namespace), Arc::clone(&pod.name)), Arc::clone(&uid));
        self.pods.insert(uid, Life { pod, node, since: self.now, leaves, workload, message: Arc::default(), is_ours });
    }

    fn serves(&self, scheduler_name: &str) -> bool {
        self.scheduler.profiles().iter().any(|profile| *profile.scheduler_name == *scheduler_name)
    }

    pub(super) fn pod_goes(&mut self, uid: &Arc<str>, why: &'static str) {
        let Some(life) = self.pods.remove(uid) else { return };
        let key = (Arc::clone(&life.pod.namespace), Arc::clone(&life.pod.name));
        if self.uids.get(&key) == Some(uid) {
            self.uids.remove(&key);
        }
        let snapshot = self.scheduler.cache().snapshot();
        let is_counted = life.node.as_deref().is_some_and(|node| snapshot.find(node).is_some());
        self.handle(Change::Deleted(Object::Pod(Arc::clone(&life.pod))));
        match &life.node {
            Some(_) => {
                self.count_budgets(&life.pod, false);
                if is_counted {
                    self.measure.removed(&life.pod);
                }
                match why {
                    "preempted" => self.measure.counts.preempted += 1,
                    "evicted" => self.measure.counts.displaced += 1,
                    _ => self.measure.counts.left += 1,
                }
            }
            None if life.is_ours => {
                self.n_pending -= 1;
                self.measure.counts.gave_up += 1;
            }
            None => {}
        }
        if let Some(at) = life.workload {
            self.controllers[at].gone(uid, why == "ended");
            self.dirty.push(at);
        }
        (self.listener)(
            self.now,
            Told::Gone { pod: &life.pod, node: life.node.as_deref(), why, message: &life.message },
        );
    }

    pub(super) fn bind(&mut self, uid: &Arc<str>, node: &Arc<str>) {
        let Some(life) = self.pods.get_mut(uid) else { return };
        let pod = Arc::new(Pod {
            node_name: Some(Arc::clone(node)),
            nominated_node_name: None,
            start_time: Some(self.now),
            ..Pod::clone(&life.pod)
        });
        let waited = self.now.since(life.since);
        life.pod = Arc::clone(&pod);
        life.node = Some(Arc::clone(node));
        let (leaves, workload) = (life.leaves, life.workload);
        self.n_pending -= 1;
        self.measure.counts.scheduled += 1;
        self.measure.waits.add(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
        self.measure.placed(&pod);
        if let Leaves::After(span) = leaves {
            self.agenda.push(self.now.after(span), Due::Leave(Arc::clone(uid)));
        }
        if let Some(at) = workload {
            self.controllers[at].bound(uid);
            if self.controllers[at].waits_for_binding() {
                self.dirty.push(at);
            }
        }
        (self.listener)(self.now, Told::Bound { pod: &pod, node, waited });
        self.handle(Change::Applied(Object::Pod(Arc::clone(&pod))));
        self.count_budgets(&pod, true);
    }

    pub(super) fn count_budgets(&mut self, pod: &Pod, came: bool) {
        let changed: Vec<Object> = self.budgets.iter_mut().filter_map(|budget| budget.count(pod, came)).collect();
        for budget in changed {
            self.handle(Change::Applied(budget));
        }
    }
}
