//! Nodes that cannot help are not dry-run in full. The verdict must be the same as that of the full dry run.

use std::sync::Arc;

use proptest::prelude::*;

use super::{DryRuns, Preemptor};
use crate::cache::{Cache, Objects};
use crate::config::KubeSchedulerConfiguration;
use crate::framework::{Cycle, CycleState, FilterStates, Filters, Profile, Rejected, RejectedNode};
use crate::model::{HostPort, Node, NodeTemplate, Pod, PodResources, PodTemplate, Resources, Timestamp};

fn default_profile() -> Profile {
    let registry = crate::plugins::registry();
    let config = KubeSchedulerConfiguration::default();
    let effective = config.effective_plugins(&registry).expect("the default configuration is valid");
    Profile::build(&config.profiles[0], &effective[0], 100, &registry).expect("the default plugins can be built")
}

fn pod(uid: String, priority: i32, milli_cpu: i64, memory: i64, port: Option<u16>) -> Pod {
    let requests = Resources { milli_cpu, memory, ..Resources::default() };
    let port = port.map(|port| HostPort { ip: "0.0.0.0".into(), protocol: "TCP".into(), port });
    let template = PodTemplate {
        namespace: "d".into(),
        scheduler_name: "default-scheduler".into(),
        priority,
        host_ports: port.into_iter().collect(),
        resources: PodResources { requests, ..PodResources::default() },
        ..PodTemplate::default()
    };
    Pod { name: uid.as_str().into(), uid: uid.into(), ..template.into() }
}

/// Priority, milli CPU, bytes, port.
type Sketch = (i32, i64, i64, Option<u16>);

fn sketch() -> impl Strategy<Value = Sketch> {
    (0..4, 0_i64..5, 0_i64..5, prop::option::weighted(0.2, 1_u16..3))
}

fn dry_run(profile: &Profile, cache: &Cache, pod: &Pod, with_fast_path: bool) -> DryRuns {
    let (objects, snapshot) = (Objects::default(), cache.snapshot());
    let cycle = Cycle { pod, snapshot, objects: &objects, now: Timestamp::ZERO, seed: 0 };
    let filters = Filters::new(profile, &());
    let mut states = FilterStates::default();
    states.slots.resize_with(profile.filters.len(), Default::default);
    for &at in &profile.pre_filter_order {
        filters.pre_filter(at, cycle, &mut CycleState::default(), &mut states).expect("no plugin breaks here");
    }
    let mut rejected = Rejected { n_nodes: snapshot.n_nodes(), ..Rejected::default() };
    for node in snapshot.iter() {
        let by = filters.filter_with_nominated(&states, cycle, snapshot.view(node)).expect("no plugin breaks here");
        rejected.nodes.extend(by.map(|by| RejectedNode {
            node,
            status: by.status,
            // Without the name of the plugin nothing is known of the node before the dry run.
            plugin: with_fast_path.then_some(by.plugin),
        }));
    }
    let preemptor = Preemptor { cycle, filters: &filters, states: &states, rejected: &rejected };
    let nodes = preemptor.potential_nodes();
    preemptor.dry_run(&nodes, 0, usize::MAX)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn skipping_hopeless_nodes_changes_no_verdict(
        nodes in prop::collection::vec((1_i64..10, 1_i64..10, 1_i64..5, prop::collection::vec(sketch(), 0..5)), 1..8),
        (priority, milli_cpu, memory, port) in sketch(),
    ) {
        let mut cache = Cache::new();
        for (n, (milli_cpu, memory, pods, sketches)) in nodes.into_iter().enumerate() {
            let name: Arc<str> = format!("n{n}").into();
            let allocatable = Resources { milli_cpu, memory, pods, ..Resources::default() };
            let template = NodeTemplate { allocatable, ..NodeTemplate::default() };
            cache.set_node(Arc::new(Node { name: Arc::clone(&name), ..template.into() }));
            for (p, (priority, milli_cpu, memory, port)) in sketches.into_iter().enumerate() {
                let pod = pod(format!("{n}-{p}"), priority, milli_cpu, memory, port);
                cache.set_pod(Arc::new(Pod { node_name: Some(Arc::clone(&name)), ..pod }));
            }
        }
        let profile = default_profile();
        let new = pod("new".to_owned(), priority, milli_cpu, memory, port);
        let (fast, full) = (dry_run(&profile, &cache, &new, true), dry_run(&profile, &cache, &new, false));
        prop_assert_eq!(fast.candidates, full.candidates);
        prop_assert_eq!(fast.failures, full.failures);
        prop_assert_eq!(fast.without_victims, full.without_victims);
        prop_assert!(fast.errors.is_empty() && full.errors.is_empty());
    }
}
