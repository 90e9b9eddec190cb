//! One step of a controller: compares the pods that are there with those that are wanted. Called again after every change.

use std::sync::Arc;

use scheduler_core::model::{
    Affinity, Node, NodeSelector, NodeSelectorTerm, Operator, Pod, Requirement, TaintEffect, Timestamp, Toleration,
    TolerationOperator,
};

use super::{Action, Controller, Member, Rules, Share};
use crate::simulate::script::Leaves;

/// Taints that every DaemonSet's pod tolerates. Upstream: controller/daemon/util `AddOrUpdateDaemonPodTolerations` (v1.36.2).
const DAEMON_TOLERATIONS: [(&str, TaintEffect); 6] = [
    ("node.kubernetes.io/not-ready", TaintEffect::NoExecute),
    ("node.kubernetes.io/unreachable", TaintEffect::NoExecute),
    ("node.kubernetes.io/disk-pressure", TaintEffect::NoSchedule),
    ("node.kubernetes.io/memory-pressure", TaintEffect::NoSchedule),
    ("node.kubernetes.io/pid-pressure", TaintEffect::NoSchedule),
    ("node.kubernetes.io/unschedulable", TaintEffect::NoSchedule),
];

impl Controller {
    /// What is to be done now; nothing when all is as wanted. `nodes` are looked at by DaemonSets only.
    pub(crate) fn plan(&mut self, now: Timestamp, nodes: &[Arc<Node>]) -> Vec<Action> {
        match self.workload.rules.clone() {
            Rules::Rolling { max_surge, max_unavailable } => self.roll(now, max_surge, max_unavailable),
            Rules::Recreate => {
                let hash = self.workload.template.hash.clone();
                if self.members.iter().any(|member| member.hash != hash) {
                    return self.delete_where(|member| member.hash != hash, usize::MAX);
                }
                self.bring_to(now, self.workload.replicas)
            }
            Rules::Replicas => self.bring_to(now, self.workload.replicas),
            Rules::Stateful { parallel } => self.stateful(now, parallel),
            Rules::Daemon => self.daemon(now, nodes),
            Rules::Job { parallelism, completions } => {
                let left = completions.saturating_sub(self.n_succeeded);
                self.bring_to(now, parallelism.min(left))
            }
            Rules::Cron { .. } => Vec::new(),
        }
    }

    fn roll(&mut self, now: Timestamp, max_surge: Share, max_unavailable: Share) -> Vec<Action> {
        let replicas = self.workload.replicas;
        let surge = max_surge.of(replicas, true);
        let unavailable = match max_unavailable.of(replicas, false) {
            0 if surge == 0 => 1,
            number => number,
        };
        let hash = self.workload.template.hash.clone();
        let count = |wanted: &dyn Fn(&Member) -> bool| self.members.iter().filter(|member| wanted(member)).count();
        let (n_all, n_new) = (self.members.len(), count(&|member| member.hash == hash));
        let (replicas, surge, unavailable) = (replicas as usize, surge as usize, unavailable as usize);
        if n_new > replicas {
            return self.delete_where(|member| member.hash == hash, n_new - replicas);
        }
        if n_new < replicas && n_all < replicas + surge {
            let missing = (replicas - n_new).min(replicas + surge - n_all);
            return (0..missing).map(|_| self.create(now)).collect();
        }
        if n_all == n_new {
            return Vec::new();
        }
        let floor = replicas.saturating_sub(unavailable);
        let n_new_unavailable = count(&|member| member.hash == hash && !member.bound);
        // Old pods that wait for a node go first, as far as enough others remain.
        let may_clean = n_all.saturating_sub(floor + n_new_unavailable);
        let actions = self.delete_where(|member| member.hash != hash && !member.bound, may_clean);
        if !actions.is_empty() {
            return actions;
        }
        let n_available = self.members.iter().filter(|member| member.bound).count();
        self.delete_where(|member| member.hash != hash && member.bound, n_available.saturating_sub(floor))
    }

    fn bring_to(&mut self, now: Timestamp, wanted: u32) -> Vec<Action> {
        let wanted = wanted as usize;
        match self.members.len() {
            n if n > wanted => self.delete_where(|_| true, n - wanted),
            n => (n..wanted).map(|_| self.create(now)).collect(),
        }
    }

    fn stateful(&mut self, now: Timestamp, parallel: bool) -> Vec<Action> {
        let replicas = self.workload.replicas;
        for ordinal in 0..replicas {
            match self.members.iter().find(|member| member.ordinal == ordinal) {
                None if parallel => {
                    let missing: Vec<u32> = (ordinal..replicas)
                        .filter(|ordinal| self.members.iter().all(|member| member.ordinal != *ordinal))
                        .collect();
                    return missing.into_iter().map(|ordinal| self.create_ordinal(now, ordinal)).collect();
                }
                None => return vec![self.create_ordinal(now, ordinal)],
                Some(member) if !member.bound && !parallel => return Vec::new(),
                Some(_) => {}
            }
        }
        if let Some(last) = self.members.iter().map(|member| member.ordinal).max().filter(|last| *last >= replicas) {
            return self.delete_where(|member| member.ordinal == last, 1);
        }
        if self.members.iter().any(|member| !member.bound) {
            return Vec::new();
        }
        let hash = self.workload.template.hash.clone();
        let stale = self.members.iter().filter(|member| member.hash != hash).map(|member| member.ordinal).max();
        stale.map_or_else(Vec::new, |stale| self.delete_where(|member| member.ordinal == stale, 1))
    }

    fn daemon(&mut self, now: Timestamp, nodes: &[Arc<Node>]) -> Vec<Action> {
        let template = Arc::clone(&self.workload.template);
        let hash = template.hash.clone();
        let tolerant = daemon_pod(&template.pod, "");
        let mut actions = Vec::new();
        for node in nodes {
            let fits = template.pod.selects_node(node) && tolerant.tolerates_all(&node.taints);
            let here = |member: &Member| member.node.as_deref() == Some(&*node.name);
            let known = self.members.iter().find(|member| here(member)).map(|member| member.hash == hash);
            match known {
                None if fits => {
                    let ordinal = self.n_made;
                    let mut pod = self.pod(now, &format!("{}-{}", self.workload.name.name, node.name));
                    pod = daemon_pod(&pod, &node.name);
                    actions.push(self.add(pod, ordinal, Some(Arc::clone(&node.name))));
                }
                // A new template replaces pods one after the other; a place that no longer fits is left.
                Some(false) if actions.is_empty() && self.members.iter().all(|member| member.bound) => {
                    return self.delete_where(here, 1);
                }
                Some(_) if !template.pod.selects_node(node) => actions.extend(self.delete_where(here, 1)),
                _ => {}
            }
        }
        actions
    }

    /// Deletes pods, those that wait first, then the newest.
    fn delete_where(&mut self, wanted: impl Fn(&Member) -> bool, most: usize) -> Vec<Action> {
        let mut candidates: Vec<(bool, u32, Arc<str>)> = self
            .members
            .iter()
            .filter(|member| wanted(member))
            .map(|member| (member.bound, member.ordinal, Arc::clone(&member.uid)))
            .collect();
        candidates.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        candidates.truncate(most);
        for (_, _, uid) in &candidates {
            self.remove(uid);
        }
        candidates.into_iter().map(|(_, _, uid)| Action::Delete(uid)).collect()
    }

    fn create(&mut self, now: Timestamp) -> Action {
        let ordinal = self.n_made;
        let name = format!("{}-{}-{ordinal}", self.workload.name.name, self.workload.template.hash);
        let pod = self.pod(now, &name);
        self.add(pod, ordinal, None)
    }

    fn create_ordinal(&mut self, now: Timestamp, ordinal: u32) -> Action {
        let pod = self.pod(now, &format!("{}-{ordinal}", self.workload.name.name));
        self.add(pod, ordinal, None)
    }

    fn pod(&self, now: Timestamp, name: &str) -> Pod {
        let uid = format!("{}/{name}/{}", self.workload.name.namespace, self.n_made);
        Pod { name: name.into(), uid: uid.into(), creation_timestamp: Some(now), ..self.workload.template.pod.clone() }
    }

    fn add(&mut self, pod: Pod, ordinal: u32, node: Option<Arc<str>>) -> Action {
        let lifetime = self.workload.lifetimes.get(self.n_made as usize).copied();
        let lifetime = lifetime.unwrap_or(self.workload.template.duration);
        self.n_made += 1;
        let hash = self.workload.template.hash.clone();
        self.positions.insert(Arc::clone(&pod.uid), self.members.len());
        self.members.push(Member { uid: Arc::clone(&pod.uid), hash, ordinal, bound: false, node });
        Action::Create(Arc::new(pod), lifetime.map_or(Leaves::Never, Leaves::After))
    }
}

/// The pod bound to one node by name, with a DaemonSet's tolerations. Upstream: `ReplaceDaemonSetPodNodeNameNodeAffinity`.
fn daemon_pod(pod: &Pod, node: &str) -> Pod {
    let field = Requirement { key: "metadata.name".into(), operator: Operator::In, values: Box::new([node.into()]) };
    let term = NodeSelectorTerm { match_fields: Box::new([field]), ..NodeSelectorTerm::default() };
    let mut affinity = pod.affinity.as_deref().cloned().unwrap_or_default();
    affinity = Affinity { required_node: Some(Arc::new(NodeSelector { terms: Box::new([term]) })), ..affinity };
    let more = DAEMON_TOLERATIONS.iter().map(|(key, effect)| Toleration {
        key: (*key).into(),
        operator: TolerationOperator::Exists,
        value: "".into(),
        effect: Some(*effect),
    });
    let tolerations = pod.tolerations.iter().cloned().chain(more).collect();
    let mut pod = pod.clone();
    (pod.affinity, pod.tolerations) = (Some(Box::new(affinity)), tolerations);
    pod
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::workload::parse;
    use serde_json::{Value, json};

    fn controller(kind: &str, spec: &Value) -> Controller {
        Controller::new(workload(kind, spec, "1"))
    }

    fn workload(kind: &str, spec: &Value, image: &str) -> super::super::Workload {
        let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w", "namespace": "default"}, "spec": spec});
        object["spec"]["template"] = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        parse(&object).expect("a workload")
    }

    /// Applies plans until nothing is left to do; created pods are bound at once if `bind`. Gives creations and deletions.
    fn settle(controller: &mut Controller, bind: bool) -> (usize, usize) {
        let (mut made, mut deleted) = (0, 0);
        loop {
            let actions = controller.plan(Timestamp::ZERO, &[]);
            if actions.is_empty() {
                return (made, deleted);
            }
            for action in actions {
                match action {
                    Action::Create(pod, _) => {
                        made += 1;
                        if bind {
                            controller.bound(&pod.uid);
                        }
                    }
                    Action::Delete(_) => deleted += 1,
                }
            }
        }
    }

    #[test]
    fn a_deployment_scales_up_and_down() {
        let mut web = controller("Deployment", &json!({"replicas": 3}));
        assert_eq!(settle(&mut web, true), (3, 0));
        web.workload.replicas = 1;
        assert_eq!(settle(&mut web, true), (0, 2));
        let uid = web.members().next().cloned().expect("one is left");
        web.gone(&uid, false);
        assert_eq!(settle(&mut web, true), (1, 0), "a lost pod is replaced");
    }

    #[test]
    fn a_rollout_that_cannot_be_placed_keeps_the_old_pods() {
        let spec = json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}});
        let mut web = controller("Deployment", &spec);
        settle(&mut web, true);
        web.change(workload("Deployment", &spec, "2"));
        assert_eq!(settle(&mut web, false), (2, 1), "one above, one below");
        let waiting: Vec<_> =
            web.members.iter().filter(|member| !member.bound).map(|member| member.uid.clone()).collect();
        for uid in waiting {
            web.bound(&uid);
        }
        assert_eq!(settle(&mut web, true), (2, 3), "the rest follows when they run");
        assert_eq!(web.members.len(), 4);
    }

    #[test]
    fn recreate_deletes_all_before_it_makes_any() {
        let spec = json!({"replicas": 2, "strategy": {"type": "Recreate"}});
        let mut web = controller("Deployment", &spec);
        settle(&mut web, true);
        web.change(workload("Deployment", &spec, "2"));
        assert!(web.plan(Timestamp::ZERO, &[]).iter().all(|action| matches!(action, Action::Delete(_))));
        assert_eq!(settle(&mut web, true), (2, 0));
    }

    #[test]
    fn a_stateful_set_waits_for_each_pod_in_turn() {
        let mut db = controller("StatefulSet", &json!({"replicas": 3}));
        assert_eq!(settle(&mut db, false), (1, 0));
        db.bound("default/w-0/0");
        assert_eq!(settle(&mut db, true), (2, 0));
        db.workload.replicas = 1;
        assert_eq!(settle(&mut db, true), (0, 2));
        let mut db = controller("StatefulSet", &json!({"replicas": 3, "podManagementPolicy": "Parallel"}));
        assert_eq!(settle(&mut db, false), (3, 0));
    }

    #[test]
    fn a_job_makes_pods_until_enough_have_ended() {
        let mut job = controller("Job", &json!({"parallelism": 2, "completions": 3}));
        assert_eq!(settle(&mut job, true), (2, 0));
        let first = job.members().next().cloned().expect("it works");
        job.gone(&first, true);
        assert_eq!(settle(&mut job, true), (1, 0));
        let all: Vec<_> = job.members().cloned().collect();
        for uid in all {
            job.gone(&uid, true);
        }
        assert_eq!(settle(&mut job, true), (0, 0), "three have ended");
    }

    #[test]
    fn a_daemon_set_has_a_pod_on_every_node_that_it_selects() {
        let node = |name: &str, disk: &str| {
            Arc::new(Node { name: name.into(), labels: [("disk", disk)].into_iter().collect(), ..Node::default() })
        };
        let nodes = [node("a", "ssd"), node("b", "hdd")];
        let mut agent = controller("DaemonSet", &json!({}));
        assert_eq!(agent.plan(Timestamp::ZERO, &nodes).len(), 2);
        assert_eq!(agent.plan(Timestamp::ZERO, &nodes).len(), 0);
        let mut object = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "w"}, "spec": {}});
        object["spec"]["template"] = json!({"spec": {"nodeSelector": {"disk": "ssd"}, "containers": []}});
        let mut agent = Controller::new(parse(&object).expect("a workload"));
        let actions = agent.plan(Timestamp::ZERO, &nodes);
        assert!(matches!(&actions[..], [Action::Create(pod, _)] if &*pod.name == "w-a" && pod.selects_node(&nodes[0])));
    }
}
