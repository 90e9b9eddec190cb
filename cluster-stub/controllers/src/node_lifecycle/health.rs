//! Which nodes are silent, and how fast they may be given up. Remembers heartbeats; the time is an argument.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::taints::condition;

/// A new node may be silent for so long. Upstream: nodelifecycle v1.36.2 `--node-startup-grace-period`, 1 min.
const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// Pause between two nodes of one zone that are given up. Upstream: `--node-eviction-rate`, 0.1 per second.
const EVICTION_PAUSE: Duration = Duration::from_secs(10);
/// The same in a large zone in trouble. Upstream: `--secondary-node-eviction-rate`, 0.01 per second.
const SECONDARY_PAUSE: Duration = Duration::from_secs(100);
/// A zone with more nodes is large. Upstream: `--large-cluster-size-threshold`.
const LARGE_ZONE: usize = 50;

/// What a Lease's duration leaves to the grace period. Upstream: 50 s for a Lease of 40 s, both v1.36.2 defaults.
const GRACE_BEYOND_LEASE: Duration = Duration::from_secs(10);
/// A renewal that was on its way for less says nothing about how busy this process is.
const USUAL_DELAY: Duration = Duration::from_secs(1);

/// Conditions that become Unknown when a node is silent.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

#[derive(Debug)]
struct Heartbeat {
    /// Ready's heartbeat time and the Lease's renewal time as last seen.
    status: Option<Timestamp>,
    lease: Option<Timestamp>,
    /// When one of them last moved.
    probe: Timestamp,
}

/// Heartbeats of all nodes. Upstream: node_lifecycle_controller.go v1.36.2 `nodeHealthMap`.
#[derive(Debug, Default)]
pub(super) struct Health {
    heartbeats: HashMap<String, Heartbeat>,
    /// When the last pass over the nodes was, and how much later than it should have been all passes came: kubelets in the same
    /// process were held up as well, and their silence meanwhile says nothing.
    last_pass: Option<Timestamp>,
    held_up: Duration,
    /// How long a renewal was on its way when it was seen, in this pass and in the last.
    delays: [Duration; 2],
    last_given_up: HashMap<String, Timestamp>,
}

impl Health {
    /// A pass over all nodes begins, `period` after the last one if nothing has held this process up.
    pub(super) fn begin_pass(&mut self, now: Timestamp, period: Duration) {
        if let Some(last) = self.last_pass.replace(now) {
            let since = Duration::try_from(now.duration_since(last)).unwrap_or_default();
            self.held_up += since.saturating_sub(period);
        }
        self.delays = [Duration::ZERO, self.delays[0]];
    }

    /// The time as far as this process could use it.
    fn usable(&self, now: Timestamp) -> Timestamp {
        now - jiff::SignedDuration::try_from(self.held_up).unwrap_or_default()
    }

    /// Names of nodes that were seen before and are not among `nodes` any more; they are forgotten.
    pub(super) fn forget_missing(&mut self, nodes: &[&str]) -> Vec<String> {
        let nodes: HashSet<&str> = nodes.iter().copied().collect();
        let gone: Vec<String> = self.heartbeats.keys().filter(|name| !nodes.contains(name.as_str())).cloned().collect();
        for name in &gone {
            self.heartbeats.remove(name);
        }
        gone
    }

    /// Whether `name` was seen before.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.heartbeats.contains_key(name)
    }

    /// Notes what was heard of `node` and answers the node with Unknown conditions if it has been silent for too long and
    /// does not say so already. Upstream: node_lifecycle_controller.go v1.36.2 `tryUpdateNodeHealth`; besides, the grace period
    /// grows with the Lease's own duration and with the delay with which renewals arrive, since a busy process must not give
    /// up its own nodes.
    pub(super) fn check(
        &mut self,
        node: &Node,
        lease: Option<&LeaseSpec>,
        grace: Duration,
        now: Timestamp,
    ) -> Option<Node> {
        let ready = condition(node, "Ready");
        let status = ready.and_then(|ready| ready.last_heartbeat_time.as_ref()).map(|time| time.0);
        let created = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
        let seconds =
            lease.and_then(|lease| lease.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
        let lease = lease.and_then(|lease| lease.renew_time.as_ref()).map(|time| time.0);
        let (real, now) = (now, self.usable(now));
        let name = node.metadata.name.clone().unwrap_or_default();
        let heartbeat = self.heartbeats.entry(name).or_insert_with(|| Heartbeat {
            status,
            lease: None,
            probe: if ready.is_some() { now } else { created },
        });
        if heartbeat.status != status {
            heartbeat.status = status;
            heartbeat.probe = now;
        }
        if lease > heartbeat.lease {
            let is_first = heartbeat.lease.is_none();
            heartbeat.lease = lease;
            heartbeat.probe = now;
            let delay = lease.map(|lease| Duration::try_from(real.duration_since(lease)).unwrap_or_default());
            // A Lease that is seen for the first time may be from before this process.
            if let Some(delay) = delay.filter(|_| !is_first) {
                self.delays[0] = self.delays[0].max(delay);
            }
        }
        let grace = if ready.is_some() { grace } else { STARTUP_GRACE };
        let by_lease = seconds.map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds) + GRACE_BEYOND_LEASE);
        // Between two passes a renewal waits to be seen; that is no delay.
        let delay = self.delays[0].max(self.delays[1]).saturating_sub(USUAL_DELAY);
        let grace = grace.max(by_lease) + delay;
        let silent = Duration::try_from(now.duration_since(heartbeat.probe)).is_ok_and(|silent| silent > grace);
        if !silent || ready.is_some_and(|ready| ready.status == "Unknown") {
            return None;
        }
        let mut changed = node.clone();
        let conditions = changed.status.get_or_insert_default().conditions.get_or_insert_default();
        for kind in CONDITIONS {
            match conditions.iter_mut().find(|condition| condition.type_ == kind) {
                None => conditions.push(NodeCondition {
                    type_: kind.to_owned(),
                    status: "Unknown".to_owned(),
                    reason: Some("NodeStatusNeverUpdated".to_owned()),
                    message: Some("Kubelet never posted node status.".to_owned()),
                    last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                    last_transition_time: Some(Time(real)),
                }),
                Some(condition) if condition.status != "Unknown" => {
                    condition.status = "Unknown".to_owned();
                    condition.reason = Some("NodeStatusUnknown".to_owned());
                    condition.message = Some("Kubelet stopped posting node status.".to_owned());
                    condition.last_transition_time = Some(Time(real));
                }
                Some(_) => {}
            }
        }
        Some(changed)
    }

    /// Which of `candidates` (zone and name) may be tainted NoExecute now. `zones` counts the ready and the other nodes of
    /// every zone. Upstream: node_lifecycle_controller.go v1.36.2 `handleDisruption`, `ComputeZoneState`.
    pub(super) fn may_give_up(
        &mut self,
        candidates: &[(String, String)],
        zones: &BTreeMap<String, (usize, usize)>,
        now: Timestamp,
    ) -> Vec<String> {
        // When nothing at all answers, it is more likely that we are cut off than that all nodes died.
        if zones.values().all(|(ready, _)| *ready == 0) {
            return Vec::new();
        }
        let mut allowed = Vec::new();
        for (zone, name) in candidates {
            let (ready, others) = zones.get(zone).copied().unwrap_or_default();
            let total = ready + others;
            let partly_down = ready > 0 && others > 2 && others * 100 >= total * 55;
            let pause = match (partly_down, total > LARGE_ZONE) {
                (false, _) => EVICTION_PAUSE,
                (true, true) => SECONDARY_PAUSE,
                (true, false) => continue,
            };
            let waited = self
                .last_given_up
                .get(zone)
                .is_none_or(|last| Duration::try_from(now.duration_since(*last)).is_ok_and(|waited| waited >= pause));
            if waited {
                self.last_given_up.insert(zone.clone(), now);
                allowed.push(name.clone());
            }
        }
        allowed
    }
}

/// The zone of `node`: region and zone label. Upstream: component-helpers v1.36.2 `GetZoneKey`.
pub(super) fn zone(node: &Node) -> String {
    let label =
        |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or_default();
    format!("{}:{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use k8s_openapi::api::core::v1::NodeStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    const GRACE: Duration = Duration::from_secs(50);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + seconds.seconds()
    }

    fn lease(seconds: i64) -> LeaseSpec {
        LeaseSpec { renew_time: Some(MicroTime(at(seconds))), lease_duration_seconds: Some(40), ..LeaseSpec::default() }
    }

    fn node(ready: Option<&str>) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some("n".to_owned());
        node.metadata.creation_timestamp = Some(Time(at(0)));
        node.status = Some(NodeStatus {
            conditions: ready.map(|status| {
                vec![NodeCondition { type_: "Ready".to_owned(), status: status.to_owned(), ..NodeCondition::default() }]
            }),
            ..NodeStatus::default()
        });
        node
    }

    #[test]
    fn a_node_whose_lease_stops_becomes_unknown_after_the_grace_period() {
        let mut health = Health::default();
        assert_eq!(health.check(&node(Some("True")), Some(&lease(0)), GRACE, at(0)), None);
        assert_eq!(health.check(&node(Some("True")), Some(&lease(39)), GRACE, at(40)), None);
        assert_eq!(health.check(&node(Some("True")), Some(&lease(39)), GRACE, at(90)), None);
        let changed = health.check(&node(Some("True")), Some(&lease(39)), GRACE, at(91)).expect("51 s of silence");
        let conditions = changed.status.and_then(|status| status.conditions).unwrap_or_default();
        let texts: Vec<(&str, &str)> = conditions
            .iter()
            .map(|condition| (condition.type_.as_str(), condition.reason.as_deref().unwrap_or_default()))
            .collect();
        assert_eq!(texts[0], ("Ready", "NodeStatusUnknown"));
        assert_eq!(texts[1], ("MemoryPressure", "NodeStatusNeverUpdated"));
        assert_eq!(texts.len(), 4);
        assert_eq!(health.check(&node(Some("Unknown")), Some(&lease(10)), GRACE, at(200)), None, "said once");
    }

    #[test]
    fn a_longer_lease_means_a_longer_grace_period() {
        let mut health = Health::default();
        let long = LeaseSpec { lease_duration_seconds: Some(100), ..lease(0) };
        assert_eq!(health.check(&node(Some("True")), Some(&long), GRACE, at(0)), None);
        assert_eq!(health.check(&node(Some("True")), Some(&long), GRACE, at(110)), None);
        assert!(health.check(&node(Some("True")), Some(&long), GRACE, at(111)).is_some());
    }

    #[test]
    fn a_process_that_was_held_up_does_not_blame_its_nodes() {
        let period = Duration::from_secs(5);
        let mut health = Health::default();
        let mut pass = |seconds: i64, renewed: i64| {
            health.begin_pass(at(seconds), period);
            health.check(&node(Some("True")), Some(&lease(renewed)), GRACE, at(seconds)).is_some()
        };
        assert!(!pass(0, 0));
        assert!(!pass(5, 4));
        assert!(!pass(305, 4), "stopped for five minutes, or asleep");
        for seconds in (310..=350).step_by(5) {
            assert!(!pass(seconds, 4), "{seconds}: a grace period from then on");
        }
        assert!(pass(355, 4), "and no longer");
    }

    #[test]
    fn renewals_that_arrive_late_lengthen_the_grace_period() {
        let period = Duration::from_secs(5);
        let mut health = Health::default();
        let named = |name: &str| {
            let mut node = node(Some("True"));
            node.metadata.name = Some(name.to_owned());
            node
        };
        for (name, renewed) in [("silent", 0), ("slow", 0)] {
            assert_eq!(health.check(&named(name), Some(&lease(renewed)), GRACE, at(0)), None);
        }
        let mut silent_at = |seconds: i64, delay: i64| {
            health.begin_pass(at(seconds), period);
            let _ = health.check(&named("slow"), Some(&lease(seconds - delay)), GRACE, at(seconds));
            health.check(&named("silent"), Some(&lease(0)), GRACE, at(seconds)).is_some()
        };
        for seconds in (5..=80).step_by(5) {
            assert!(!silent_at(seconds, 31), "{seconds}: others come 31 s late");
        }
        assert!(silent_at(85, 31), "50 s and 30 s");
    }

    #[test]
    fn a_node_that_never_spoke_has_a_minute_from_its_creation() {
        let mut health = Health::default();
        assert_eq!(health.check(&node(None), None, GRACE, at(30)), None);
        assert_eq!(health.check(&node(None), None, GRACE, at(60)), None);
        assert!(health.check(&node(None), None, GRACE, at(61)).is_some());
        assert!(health.knows("n"));
        assert_eq!(health.forget_missing(&[]), ["n"]);
    }

    #[test]
    fn nodes_of_a_zone_are_given_up_one_by_one_and_not_when_all_are_silent() {
        let mut health = Health::default();
        let zones = |ready, others| BTreeMap::from([("z".to_owned(), (ready, others)), ("y".to_owned(), (1, 0))]);
        let candidates = [("z".to_owned(), "a".to_owned()), ("z".to_owned(), "b".to_owned())];
        assert_eq!(health.may_give_up(&candidates, &zones(3, 2), at(0)), ["a"]);
        assert!(health.may_give_up(&candidates[1..], &zones(3, 2), at(9)).is_empty());
        assert_eq!(health.may_give_up(&candidates[1..], &zones(3, 2), at(10)), ["b"]);
        assert!(health.may_give_up(&candidates, &zones(1, 4), at(100)).is_empty(), "most of a small zone");
        assert_eq!(health.may_give_up(&candidates, &zones(0, 4), at(200)), ["a"], "a whole zone of several");
        let all = BTreeMap::from([("z".to_owned(), (0, 4))]);
        assert!(health.may_give_up(&candidates, &all, at(300)).is_empty(), "everything");
    }
}
