//! PodTopologySpread among pods that are alike: what they sign, and which nodes the constraints cannot tell apart.

use std::hash::{Hash, Hasher};

use super::pod_topology_spread_constraints::{Constraint, Constraints, Place};
use crate::cache::{LabelColumn, NodeIdx, Snapshot};
use crate::framework::{Cycle, Sharing, Signature};

/// The class of a node has room for so many constraints.
const MAX_CONSTRAINTS: usize = 2;

/// How a constraint tells nodes apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    /// By the domain.
    Domain,
    /// By the pods in the domain, since each node is a domain of its own.
    PodsInDomain,
    /// By the pods on the node.
    PodsOnNode,
}

pub(super) fn sign(constraints: &Constraints, cycle: Cycle<'_>, signature: &mut Signature) -> Sharing {
    if constraints.is_empty() {
        return Sharing::ByNode;
    }
    if constraints.hard.len() + constraints.soft.len() > MAX_CONSTRAINTS {
        return Sharing::Never;
    }
    constraints.hard.hash(signature);
    constraints.soft.hash(signature);
    signature.write_u8(u8::from(constraints.soft_require_all));
    for (constraint, part) in parts(constraints, cycle.snapshot) {
        part.hash(signature);
        // What inclusion looks at.
        constraints.inclusion(true, constraint, cycle.pod).hash(signature);
    }
    Sharing::ByClass
}

pub(super) fn classify(constraints: &Constraints, cycle: Cycle<'_>, nodes: &[NodeIdx], classes: &mut [u64]) {
    let (snapshot, counts) = (cycle.snapshot, cycle.snapshot.pod_counts());
    classes.fill(0);
    for (at, (_, part)) in parts(constraints, snapshot).enumerate() {
        let Some(Place { label: Some(label), domains, nodes: on_nodes }) = constraints.places.get(at) else { continue };
        let values = snapshot.labels().at(*label).values();
        let domains = domains.map(|domains| counts.domains_at(domains));
        let on_nodes = on_nodes.map(|column| counts.nodes(column));
        for (class, node) in classes.iter_mut().zip(nodes) {
            let domain = values[node.slot()];
            let value = match part {
                // A node without the label is a class of its own in any case.
                _ if domain == LabelColumn::NONE => u32::MAX,
                Part::Domain => domain,
                Part::PodsInDomain => domains.map_or(0, |domains| domains.n_pods(domain)),
                Part::PodsOnNode => on_nodes.map_or(0, |counts| counts.get(*node)),
            };
            *class |= u64::from(value) << (32 * at);
        }
    }
}

fn parts<'a>(constraints: &'a Constraints, snapshot: &'a Snapshot) -> impl Iterator<Item = (&'a Constraint, Part)> {
    let is_unique = |place: &Place| place.label.is_some_and(|label| snapshot.labels().at(label).is_unique());
    let hard =
        constraints.hard.iter().zip(&constraints.places).map(move |(constraint, place)| {
            (constraint, if is_unique(place) { Part::PodsInDomain } else { Part::Domain })
        });
    let soft = constraints
        .soft
        .iter()
        .map(|constraint| (constraint, if constraint.is_hostname { Part::PodsOnNode } else { Part::Domain }));
    hard.chain(soft)
}
