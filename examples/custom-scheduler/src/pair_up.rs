//! PairUp: two pods with one value of the label `pair` are bound together, or after a minute not at all.
use std::{sync::Arc, time::Duration};

use scheduler_core::cache::NodeView;
use scheduler_core::framework::{self, Cycle, CycleState, PermitStatus, Plugin, Result, WaitingPods};

pub struct PairUp;

impl Plugin for PairUp {}

impl framework::PermitPlugin for PairUp {
    fn permit(&self, cycle: Cycle, _: &mut CycleState, _: NodeView, waiting: &mut WaitingPods) -> Result<PermitStatus> {
        let Some(pair) = cycle.pod.labels.get("pair") else { return Ok(PermitStatus::Success) };
        let partner = waiting.iter().find(|(pod, _)| pod.labels.get("pair") == Some(pair));
        let Some(uid) = partner.map(|(pod, _)| Arc::clone(&pod.uid)) else {
            return Ok(PermitStatus::Wait(Duration::from_secs(60)));
        };
        waiting.allow(&uid, self.name());
        Ok(PermitStatus::Success)
    }
}
