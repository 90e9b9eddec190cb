//! What extenders say of the candidates: each that has a say in preemption sees what those before it left.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Candidate;
use crate::framework::{Cycle, Extender, MetaVictims, PluginError, Result, Victims};

/// The candidates that extenders leave or name instead. Upstream v1.36.2: preemption.go callExtenders.
pub(super) fn call_extenders(
    extenders: &[Arc<dyn Extender>],
    cycle: Cycle<'_>,
    candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>> {
    let is_asked = |extender: &&Arc<dyn Extender>| extender.supports_preemption() && extender.is_interested(cycle.pod);
    let mut asked = extenders.iter().filter(is_asked).peekable();
    if asked.peek().is_none() || candidates.is_empty() {
        return Ok(candidates);
    }
    let order: Vec<Arc<str>> = candidates.iter().map(|candidate| Arc::clone(&candidate.node_name)).collect();
    let of_candidate =
        |Candidate { node_name, victims, n_pdb_violations }| (node_name, Victims { pods: victims, n_pdb_violations });
    let mut victims: BTreeMap<Arc<str>, Victims> = candidates.into_iter().map(of_candidate).collect();
    for extender in asked {
        let answer = extender.process_preemption(cycle.pod, &victims);
        let mut left = match answer.and_then(|answer| to_victims(&**extender, cycle, answer)) {
            Ok(left) => left,
            Err(_) if extender.is_ignorable() => continue,
            Err(error) => return Err(error),
        };
        if extender.is_ignorable() {
            left.retain(|_, victims| !victims.pods.is_empty());
        } else if let Some((node, _)) = left.iter().find(|(_, victims)| victims.pods.is_empty()) {
            return Err(PluginError::new(format!("expected at least one victim pod on node {node:?}")));
        }
        victims = left;
        if victims.is_empty() {
            break;
        }
    }
    let to_candidate =
        |(node_name, Victims { pods, n_pdb_violations })| Candidate { node_name, victims: pods, n_pdb_violations };
    // In the order of the dry runs, so that extenders that change nothing change nothing; then what they added.
    let mut left = Vec::with_capacity(victims.len());
    left.extend(order.iter().filter_map(|node| victims.remove_entry(node)));
    left.extend(victims);
    Ok(left.into_iter().map(to_candidate).collect())
}

/// The pods that an answer means. Upstream v1.36.2: extender.go convertToVictims.
fn to_victims(
    extender: &dyn Extender,
    cycle: Cycle<'_>,
    answer: BTreeMap<Arc<str>, MetaVictims>,
) -> Result<BTreeMap<Arc<str>, Victims>> {
    let snapshot = cycle.snapshot;
    let of_node = |(name, meta): (Arc<str>, MetaVictims)| {
        let node = snapshot.find(&name);
        let node = node.ok_or_else(|| PluginError::new(format!("nodeinfo not found for node name {name:?}")))?;
        let find = |uid: &Arc<str>| {
            snapshot.pods(node).iter().find(|pod| pod.uid == *uid).cloned().ok_or_else(|| {
                PluginError::new(format!(
                    "extender: {} claims to preempt pod (UID: &{{{uid}}}) on node: {name}, but the pod is not found on that node",
                    extender.name()
                ))
            })
        };
        let pods = meta.uids.iter().map(find).collect::<Result<_>>()?;
        Ok((name, Victims { pods, n_pdb_violations: meta.n_pdb_violations }))
    };
    answer.into_iter().map(of_node).collect()
}
