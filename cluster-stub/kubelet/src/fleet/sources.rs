//! Follows pods and nodes in the API and passes them on to the fleet. Pods without a node are left out here.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::{ListPart, Message, Shared};
use crate::FLEET_IDENTITY;
use cluster_stub_base::reflector::{self, ChangeKind, Form, Sink};

/// Starts both watches, nodes first.
pub(super) fn start(shared: &Arc<Shared>) {
    let client = (shared.clients)(FLEET_IDENTITY);
    let nodes = Nodes(shared.messages.clone());
    let pods = Pods(shared.messages.clone());
    let (shutdown, nodes_client) = (shared.shutdown.clone(), client.clone());
    shared.tasks.spawn(async move {
        reflector::run(nodes_client, "/api/v1/nodes".to_owned(), Form::Full, &nodes, shutdown).await;
    });
    let shutdown = shared.shutdown.clone();
    shared.tasks.spawn(async move {
        reflector::run(client, "/api/v1/pods".to_owned(), Form::Full, &pods, shutdown).await;
    });
}

struct Pods(mpsc::UnboundedSender<Message>);
struct Nodes(mpsc::UnboundedSender<Message>);

/// As much of a pod as tells whether the rest is worth reading.
#[derive(Deserialize)]
struct Bound {
    #[serde(default)]
    spec: BoundSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct BoundSpec {
    node_name: Option<String>,
}

fn put(messages: &mpsc::UnboundedSender<Message>, message: Message) {
    // The fleet ends only at shutdown, and this task with it.
    let _ = messages.send(message);
}

impl Sink for Pods {
    fn list_started(&self) {
        put(&self.0, Message::PodList(ListPart::Started));
    }

    fn listed(&self, object: &str) -> Result<(), serde_json::Error> {
        self.changed(ChangeKind::Put, object)
    }

    fn list_ended(&self) {
        put(&self.0, Message::PodList(ListPart::Ended));
    }

    fn changed(&self, kind: ChangeKind, object: &str) -> Result<(), serde_json::Error> {
        if serde_json::from_str::<Bound>(object)?.spec.node_name.is_none_or(|name| name.is_empty()) {
            return Ok(());
        }
        let pod: Pod = serde_json::from_str(object)?;
        match kind {
            ChangeKind::Put => put(&self.0, Message::PodChanged(Box::new(pod))),
            ChangeKind::Delete => put(&self.0, Message::PodDeleted(pod.metadata.uid.unwrap_or_default())),
        }
        Ok(())
    }

    fn missing(&self) {
        self.list_started();
        self.list_ended();
    }
}

impl Sink for Nodes {
    fn list_started(&self) {
        put(&self.0, Message::NodeList(ListPart::Started));
    }

    fn listed(&self, object: &str) -> Result<(), serde_json::Error> {
        self.changed(ChangeKind::Put, object)
    }

    fn list_ended(&self) {
        put(&self.0, Message::NodeList(ListPart::Ended));
    }

    fn changed(&self, kind: ChangeKind, object: &str) -> Result<(), serde_json::Error> {
        let node: Node = serde_json::from_str(object)?;
        match kind {
            ChangeKind::Put => put(&self.0, Message::NodeChanged(Box::new(node))),
            ChangeKind::Delete => put(&self.0, Message::NodeDeleted(node.metadata.name.unwrap_or_default())),
        }
        Ok(())
    }

    fn missing(&self) {
        self.list_started();
        self.list_ended();
    }
}
