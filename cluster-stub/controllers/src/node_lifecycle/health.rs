//! Which nodes are silent, and how fast they may be given up. Remembers heartbeats; the time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::taints::condition;

/// A new node may be silent for so long. Upstream: nodelifecycle v1.36.2 `--node-startup-grace-period`, 1 min.
const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// Pause between two nodes of one zone that are given up. Upstream: `--node-eviction-rate`, 0.1 per second.
const EVICTION_PAUSE: Duration = Duration::from_secs(10);
/// The same in a large zone in trouble. Upstream: `--secondary-node-eviction-rate`, 0.01 per second.
const SECONDARY_PAUSE: Duration = Duration::from_secs(100);
/// A zone with more nodes is large. Upstream: `--large-cluster-size-threshold`.
const LARGE_ZONE: usize = 50;

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
    last_given_up: HashMap<String, Timestamp>,
}

impl Health {
    /// Names of nodes that were seen before and are not among `nodes` any more; they are forgotten.
    pub(super) fn forget_missing(&mut self, nodes: &[&str]) -> Vec<String> {
        let gone: Vec<String> =
            self.heartbeats.keys().filter(|name| !nodes.contains(&name.as_str())).cloned().collect();
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
    /// does not say so already. Upstream: node_lifecycle_controller.go v1.36.2 `tryUpdateNodeHealth`.
    pub(super) fn check(
        &mut self,
        node: &Node,
        renewed: Option<&MicroTime>,
        grace: Duration,
        now: Timestamp,
    ) -> Option<Node> {
        let ready = condition(node, "Ready");
        let status = ready.and_then(|ready| ready.last_heartbeat_time.as_ref()).map(|time| time.0);
        let created = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
        let lease = renewed.map(|time| time.0);
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
            heartbeat.lease = lease;
            heartbeat.probe = now;
        }
        let grace = if ready.is_some() { grace } else { STARTUP_GRACE };
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
                    last_transition_time: Some(Time(now)),
                }),
                Some(condition) if condition.status != "Unknown" => {
                    condition.status = "Unknown".to_owned();
                    condition.reason = Some("NodeStatusUnknown".to_owned());
                    condition.message = Some("Kubelet stopped posting node status.".to_owned());
                    condition.last_transition_time = Some(Time(now));
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

    use super::*;

    const GRACE: Duration = Duration::from_secs(50);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + seconds.seconds()
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
        let lease = |seconds| MicroTime(at(seconds));
        assert_eq!(health.check(&node(Some("True")), Some(&lease(0)), GRACE, at(0)), None);
        assert_eq!(health.check(&node(Some("True")), Some(&lease(10)), GRACE, at(40)), None);
        assert_eq!(health.check(&node(Some("True")), Some(&lease(10)), GRACE, at(90)), None);
        let changed = health.check(&node(Some("True")), Some(&lease(10)), GRACE, at(91)).expect("51 s of silence");
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
