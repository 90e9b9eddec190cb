//! Schedulers with a single Filter or Score plugin, to see what one plugin costs.

use scheduler_core::cache::NodeView;
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::config::plugins::ExtensionPoint;
use scheduler_core::engine::{Options, Scheduler};
use scheduler_core::framework::{Cycle, CycleState, Extensions, Plugin, Result, ScorePlugin};

/// The pair of extension points at which the plugin is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pair {
    /// PreFilter and Filter.
    Filter,
    /// PreScore and Score.
    Score,
}

/// A scheduler with `plugin` alone at `pair`; `None` leaves it out, which shows what the cycle costs without it. Scores
/// are all zero unless the plugin gives them, so that every feasible node is looked for.
///
/// # Panics
/// When there is no such plugin.
#[must_use]
pub fn scheduler(pair: Pair, plugin: Option<&str>) -> Scheduler {
    let mut registry = scheduler_core::plugins::registry();
    registry
        .register("AllEqual", &[ExtensionPoint::Score], |_| Ok(Extensions::new().score(&std::sync::Arc::new(AllEqual))))
        .expect("no in-tree plugin has this name");
    let effective = |points: &[&str], scored: bool| {
        let mut lists =
            vec!["queueSort: {enabled: [{name: PrioritySort}]}", "bind: {enabled: [{name: DefaultBinder}]}"]
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>();
        if let Some(plugin) = plugin {
            lists.extend(points.iter().map(|point| format!("{point}: {{enabled: [{{name: {plugin}}}]}}")));
        }
        if !scored {
            lists.push("score: {enabled: [{name: AllEqual}]}".to_owned());
        }
        let plugins: String = lists.iter().map(|list| format!("    {list}\n")).collect();
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npercentageOfNodesToScore: 100\n\
             profiles:\n- plugins:\n    multiPoint: {{disabled: [{{name: '*'}}]}}\n{plugins}"
        )
    };
    // Not every plugin has the first point of its pair.
    let tries = match pair {
        Pair::Filter => [effective(&["preFilter", "filter"], false), effective(&["filter"], false)],
        Pair::Score => [effective(&["preScore", "score"], plugin.is_some()), effective(&["score"], plugin.is_some())],
    };
    tries
        .iter()
        .find_map(|text| {
            let configuration = KubeSchedulerConfiguration::from_text(text).ok()?;
            Scheduler::new(&configuration, &registry, Options::default()).ok()
        })
        .expect("the plugin has this pair of extension points")
}

/// Scores nothing.
struct AllEqual;

impl Plugin for AllEqual {
    fn name(&self) -> &'static str {
        "AllEqual"
    }
}

impl ScorePlugin for AllEqual {
    type State = ();

    fn score(&self, _: Option<&()>, _: Cycle<'_>, _: &CycleState, _: NodeView<'_>) -> Result<i64> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Shape, add_nodes, new_pod};
    use scheduler_core::engine::{Change, Outcome};
    use scheduler_core::model::Timestamp;

    /// How many of 40 nodes, two of them tainted, a pod fits on.
    fn n_feasible(pair: Pair, plugin: Option<&str>) -> usize {
        let mut scheduler = scheduler(pair, plugin);
        add_nodes(&mut scheduler, 40);
        scheduler.handle(Change::Applied(new_pod(Shape::Basic, 0, 40).into()), Timestamp::ZERO);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread can be started");
        match scheduler.schedule_one(Timestamp::ZERO, &pool).map(|attempt| attempt.outcome) {
            Some(Outcome::Scheduled { n_feasible, .. }) => n_feasible,
            other => panic!("{pair:?} {plugin:?}: {other:?}"),
        }
    }

    #[test]
    fn only_the_plugin_has_a_say() {
        let n_tainted = (0..40).filter(|i| (i + i / 10) % 20 == 7).count();
        for (pair, plugin, want) in [
            (Pair::Filter, None, 40),
            (Pair::Filter, Some("NodeResourcesFit"), 40),
            (Pair::Filter, Some("NodeName"), 40),
            (Pair::Filter, Some("TaintToleration"), 40 - n_tainted),
            (Pair::Score, None, 40),
            (Pair::Score, Some("ImageLocality"), 40),
            (Pair::Score, Some("TaintToleration"), 40),
        ] {
            assert_eq!(n_feasible(pair, plugin), want, "{pair:?} {plugin:?}");
        }
    }
}
