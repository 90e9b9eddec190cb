//! The nodes of the fleet: registered at start, taken over from others, or known only for their pods.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, ObjectReference};

use super::requests::Renewal;
use super::{Fleet, Message, Outcome, requests};
use crate::FLEET_IDENTITY;
use crate::admission::Amounts;
use crate::events::Outgoing;
use crate::nodes::{self, Claim};
use cluster_stub_base::correlator::Occurrence;

/// Between two status reports of a node that keeps losing its conditions.
const REPORT_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// Between two tries to register a node. Upstream: pkg/kubelet v1.36.2 kubelet_node_status.go, its first step.
const REGISTRATION_RETRY: std::time::Duration = std::time::Duration::from_millis(100);

/// A node as the fleet knows it.
pub(super) struct NodeEntry {
    pub(super) node: Arc<Node>,
    pub(super) client: kube::Client,
    /// `system:node:<name>`.
    pub(super) user: Arc<str>,
    claim: Claim,
    /// Whether it registered itself here, so that its status is ours to complete.
    own: bool,
    /// Its pods' `hostIP`, unless it has an address of its own.
    address: String,
    /// Pods that were admitted and are not done.
    pub(super) admitted: HashSet<Arc<str>>,
    /// What they request in all.
    pub(super) used: Amounts,
    pub(super) renewed: Option<Timestamp>,
    pub(super) reported: Option<Timestamp>,
    reporting: bool,
}

impl NodeEntry {
    /// Whether its Lease and conditions are kept fresh.
    pub(super) fn keeps_alive(&self) -> bool {
        self.claim == Claim::TakeOver && self.node.metadata.uid.is_some()
    }

    pub(super) fn host_ip(&self) -> String {
        nodes::internal_ip(&self.node).unwrap_or(&self.address).to_owned()
    }
}

impl Fleet {
    /// Creates the nodes of the options. One that exists gets a complete status again.
    pub(super) fn register_nodes(&mut self) {
        let version = self.shared.runtime.version();
        for mut node in self.shared.options.nodes.clone() {
            let Some(name) = node.metadata.name.clone() else { continue };
            let entry = self.entry(&name, Arc::new(Node::default()), Claim::TakeOver);
            nodes::complete(&mut node, &entry.address, &version, Timestamp::now());
            entry.own = true;
            entry.reporting = true;
            let node = Arc::new(node);
            entry.node = node.clone();
            let client = entry.client.clone();
            self.node_events(&name);
            let shared = self.shared.clone();
            // A Node as it was asked for may have labels that no kubelet may give itself.
            let fleet = (shared.clients)(FLEET_IDENTITY);
            self.shared.spawn(async move {
                let name: Arc<str> = Arc::from(name);
                loop {
                    let permit = shared.requests.acquire().await;
                    let outcome = match requests::create_node(fleet.clone(), &node).await {
                        Outcome::Gone => requests::report_node(client.clone(), &node).await,
                        outcome => outcome,
                    };
                    drop(permit);
                    if outcome != Outcome::Failed {
                        let _ = shared.messages.send(Message::NodeReported(name, outcome));
                        return;
                    }
                    tokio::time::sleep(REGISTRATION_RETRY).await;
                }
            });
        }
    }

    fn entry(&mut self, name: &str, node: Arc<Node>, claim: Claim) -> &mut NodeEntry {
        let next_address = &mut self.next_address;
        let shared = &self.shared;
        self.nodes.entry(Arc::from(name)).or_insert_with(|| {
            let address = nodes::nth_address(*next_address);
            *next_address += 1;
            let user = format!("system:node:{name}");
            NodeEntry {
                node,
                client: (shared.clients)(&user),
                user: Arc::from(user),
                claim,
                own: false,
                address,
                admitted: HashSet::new(),
                used: Amounts::new(),
                renewed: None,
                reported: None,
                reporting: false,
            }
        })
    }

    pub(super) fn node_changed(&mut self, node: Node) {
        let Some(name) = node.metadata.name.clone() else { return };
        if let Some(listed) = &mut self.listed_nodes {
            listed.insert(name.clone());
        }
        let known = self.nodes.get(name.as_str());
        let replaced = known
            .is_some_and(|entry| entry.node.metadata.uid.is_some() && entry.node.metadata.uid != node.metadata.uid);
        if replaced {
            // Deleted and created again while nobody watched: another node.
            self.node_deleted(&name);
        }
        let own = self.nodes.get(name.as_str()).is_some_and(|entry| entry.own);
        let claim = match nodes::claim(&node) {
            Claim::Ignore => {
                if self.nodes.contains_key(name.as_str()) {
                    self.node_deleted(&name);
                }
                return;
            }
            Claim::PodsOnly if own => Claim::TakeOver,
            claim => claim,
        };
        let node = Arc::new(node);
        let entry = self.entry(&name, node.clone(), claim);
        entry.node = node.clone();
        entry.claim = claim;
        let now = Timestamp::now();
        let is_new = entry.renewed.is_none();
        let pause_is_over = entry.reported.is_none_or(|at| now.duration_since(at) >= REPORT_PAUSE);
        let wants = claim == Claim::TakeOver && nodes::wants_conditions(node.status.as_ref());
        let reports = wants && pause_is_over && !entry.reporting;
        let name: Arc<str> = Arc::from(name);
        if claim == Claim::TakeOver && is_new {
            // The first heartbeat of its status is due an interval from now: it has just been written.
            entry.reported.get_or_insert(now);
            self.renew(&name, now);
        }
        if reports {
            self.report_conditions(&name, now);
        }
        for pod in self.orphans.remove(&*name).into_iter().flat_map(std::collections::HashMap::into_values) {
            self.pod_changed(pod);
        }
    }

    /// The node is gone, or no longer ours: its pods' work stops here, without a word to the API.
    pub(super) fn node_deleted(&mut self, name: &str) {
        if self.nodes.remove(name).is_none() {
            return;
        }
        let of_node = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(name)
        };
        let uids: Vec<Arc<str>> =
            self.pods.iter().filter(|(_, entry)| of_node(entry.pod())).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            if let Some(pod) = self.forget(&uid) {
                // They start anew if a node of this name comes back before they are removed.
                self.orphans.entry(name.to_owned()).or_default().insert(uid.to_string(), pod);
            }
        }
    }

    pub(super) fn nodes_listed(&mut self) {
        let Some(listed) = self.listed_nodes.take() else { return };
        // A node of our own that is still being registered has no UID yet.
        let gone: Vec<Arc<str>> = self
            .nodes
            .iter()
            .filter(|(name, entry)| !listed.contains(&***name) && entry.node.metadata.uid.is_some())
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.node_deleted(&name);
        }
    }

    pub(super) fn renew(&mut self, name: &Arc<str>, now: Timestamp) {
        let interval = self.renew_interval();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let Some(uid) = entry.node.metadata.uid.clone() else { return };
        let is_first = entry.renewed.replace(now).is_none();
        // Upstream: nodeLeaseDurationSeconds is four renewals, v1.36.2.
        let renewal = Renewal { name: name.clone(), uid, at: now, holds: interval * 4, is_first };
        // The task that renews ends only at shutdown.
        let _ = self.shared.renewals.send((entry.client.clone(), renewal));
    }

    pub(super) fn report_conditions(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| !entry.reporting) else { return };
        let Some(status) = &entry.node.status else { return };
        entry.reporting = true;
        entry.reported = Some(now);
        let conditions = nodes::refreshed(status, now);
        let (shared, client, name) = (self.shared.clone(), entry.client.clone(), name.clone());
        self.shared.spawn(async move {
            let _permit = shared.requests.acquire().await;
            let outcome = requests::report_conditions(client, &name, &conditions).await;
            let _ = shared.messages.send(Message::NodeReported(name, outcome));
        });
    }

    pub(super) fn node_reported(&mut self, name: &Arc<str>, outcome: Outcome) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        entry.reporting = false;
        // A lost report is sent again with the next tick.
        entry.reported = Some(if outcome == Outcome::Failed { Timestamp::UNIX_EPOCH } else { Timestamp::now() });
    }

    /// The events of a kubelet that starts. Upstream: pkg/kubelet v1.36.2 kubelet_node_status.go.
    fn node_events(&self, name: &str) {
        let Some(entry) = self.nodes.get(name) else { return };
        let object = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        let states = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"];
        let starting = ("Starting", "Starting kubelet.".to_owned());
        let states = states.map(|state| (state, format!("Node {name} status is now: {state}")));
        for (reason, message) in std::iter::once(starting).chain(states) {
            let occurrence = Occurrence {
                object: object.clone(),
                event_type: "Normal",
                reason: reason.to_owned(),
                message,
                at: Timestamp::now(),
            };
            self.events.send(Outgoing { client: entry.client.clone(), node: Arc::from(name), occurrence });
        }
    }
}
