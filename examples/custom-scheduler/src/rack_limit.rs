//! RackLimit: no more than `maxPods` pods of one app in a rack (Filter), and emptier racks first (Score).
use std::{collections::BTreeMap, sync::Arc};

use scheduler_core::cache::NodeView;
use scheduler_core::framework::{self, Cycle, CycleState, Extensions, FilterStatus, PreFilterStatus, Reason, Result};

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RackLimit {
    label: String,
    max_pods: i64,
}

/// Pods of the incoming pod's app, by rack: counted once a cycle, read for every node.
type PodsByRack = Arc<BTreeMap<Arc<str>, i64>>;

pub fn build(args: framework::Args) -> framework::Built {
    let plugin = Arc::new(framework::decode_args::<RackLimit>(args)?);
    Ok(Extensions::new().pre_filter(&plugin).filter(&plugin).score(&plugin))
}

impl RackLimit {
    fn room(&self, counts: Option<&PodsByRack>, node: NodeView) -> i64 {
        let n_pods = node.labels().get(&self.label).and_then(|rack| counts?.get(rack));
        self.max_pods - n_pods.unwrap_or(&0)
    }
}

impl framework::Plugin for RackLimit {}

impl framework::FilterPlugin for RackLimit {
    type State = PodsByRack;

    fn pre_filter(&self, cycle: Cycle, shared: &mut CycleState) -> Result<PreFilterStatus<PodsByRack>> {
        let Some(app) = cycle.pod.labels.get("app") else { return Ok(PreFilterStatus::Skip) };
        let mut counts = BTreeMap::new();
        for node in cycle.snapshot.iter().map(|node| cycle.snapshot.view(node)) {
            let Some(rack) = node.labels().get(&self.label) else { continue };
            let of_app = node.pods().iter().filter(|pod| pod.labels.get("app") == Some(app));
            of_app.for_each(|_| *counts.entry(Arc::clone(rack)).or_default() += 1);
        }
        let counts = Arc::new(counts);
        shared.insert(Arc::clone(&counts)); // for Score
        Ok(PreFilterStatus::success(counts))
    }

    fn filter(&self, counts: Option<&PodsByRack>, _: Cycle, node: NodeView) -> Result<FilterStatus> {
        Ok(FilterStatus::resolvable_never_unless(self.room(counts, node) > 0))
    }

    fn reasons(&self, _: Option<&PodsByRack>, _: Cycle, _: NodeView, out: &mut Vec<Reason>) {
        out.push("rack(s) had enough pods of this app".into());
    }
}

impl framework::ScorePlugin for RackLimit {
    type State = ();

    fn score(&self, _: Option<&()>, _: Cycle, shared: &CycleState, node: NodeView) -> Result<i64> {
        Ok(100 * self.room(shared.get(), node) / self.max_pods)
    }
}
