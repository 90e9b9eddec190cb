//! Preemption in a world where a node holds so many pods and no more: who must go, what is asked of the host, who may not preempt.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::DefaultPreemption;
use crate::cache::{Cache, NodeView, Objects, ResourceId};
use crate::config::KubeSchedulerConfiguration;
use crate::config::args::{DefaultPreemptionArgs, PluginArgs};
use crate::config::plugins::ExtensionPoint;
use crate::framework::{
    BindPlugin, BindStep, Binding, ClusterView, Cycle, CycleState, EffectKind, Extensions, FilterPlugin, FilterStates,
    FilterStatus, Filters, NominatedNode, Nominations, Plugin, PostFilterPlugin, PostFilterStatus, PreEnqueuePlugin,
    PreEnqueueStatus, Profile, QueueSortPlugin, QueuedEntity, Reason, Registry, Rejected, RejectedNode, Result,
};
use crate::model::{
    Labels, Node, NodeTemplate, Pod, PodDisruptionBudget, PodTemplate, PreemptionPolicy, Resources, Selector, Timestamp,
};
use crate::queue::Nominator;

/// A node has room for as many pods as it says. Reads no state, as plugins without PreFilter do.
struct Room;

impl Plugin for Room {
    fn name(&self) -> &'static str {
        "Room"
    }
}

impl FilterPlugin for Room {
    type State = ();

    fn filter(&self, _: Option<&()>, _: Cycle<'_>, node: NodeView<'_>) -> Result<FilterStatus> {
        let n_pods = i64::try_from(node.pods().len()).expect("few pods");
        Ok(FilterStatus::fits_if(n_pods < node.allocatable(ResourceId::PODS)))
    }

    fn reasons(&self, _: Option<&()>, _: Cycle<'_>, _: NodeView<'_>, out: &mut Vec<Reason>) {
        out.push("no room".into());
    }
}

/// Stands in for the plugins that every profile must have.
struct Rest;

impl Plugin for Rest {
    fn name(&self) -> &'static str {
        "Rest"
    }
}

impl QueueSortPlugin for Rest {
    fn compare(&self, _: &QueuedEntity, _: &QueuedEntity) -> Ordering {
        Ordering::Equal
    }
}

impl BindPlugin for Rest {
    fn bind(&self, _: &mut Binding, _: ClusterView<'_>) -> Result<BindStep> {
        Ok(BindStep::Skip)
    }
}

fn profile() -> Profile {
    let mut registry = Registry::new();
    registry
        .register("Room", &[ExtensionPoint::Filter], |_| Ok(Extensions::new().filter(&Arc::new(Room))))
        .and_then(|()| {
            registry.register("Rest", &[ExtensionPoint::QueueSort, ExtensionPoint::Bind], |_| {
                let rest = Arc::new(Rest);
                Ok(Extensions::new().queue_sort(&rest).bind(&rest))
            })
        })
        .unwrap();
    let text = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{plugins: \
                {multiPoint: {disabled: [{name: '*'}], enabled: [{name: Room}, {name: Rest}]}}}]}";
    let config = KubeSchedulerConfiguration::from_text(text).unwrap();
    let effective = config.effective_plugins(&registry).unwrap();
    Profile::build(&config.profiles[0], &effective[0], 100, &registry).unwrap()
}

struct World {
    cache: Cache,
    objects: Objects,
    nominator: Nominator,
    plugin: DefaultPreemption,
    profile: Profile,
}

fn pod(name: &str, priority: i32) -> Pod {
    let labels = [("app", name)].into_iter().collect();
    let template = PodTemplate { namespace: "d".into(), priority, labels, ..PodTemplate::default() };
    Pod { name: name.into(), uid: name.into(), ..template.into() }
}

impl World {
    /// Nodes with the pods on them; each node is full.
    fn new(nodes: &[(&str, &[Pod])]) -> Self {
        let mut cache = Cache::new();
        for (name, pods) in nodes {
            let allocatable = Resources { pods: i64::try_from(pods.len()).unwrap(), ..Resources::default() };
            let template = NodeTemplate { allocatable, ..NodeTemplate::default() };
            cache.set_node(Arc::new(Node { name: (*name).into(), ..template.into() }));
            for pod in *pods {
                cache.set_pod(Arc::new(Pod { node_name: Some((*name).into()), ..pod.clone() }));
            }
        }
        let Some(PluginArgs::DefaultPreemption(args)) = PluginArgs::defaults(super::NAME) else { unreachable!() };
        Self {
            cache,
            objects: Objects::default(),
            nominator: Nominator::default(),
            plugin: DefaultPreemption::new(args),
            profile: profile(),
        }
    }

    fn protect(mut self, app: &str, disruptions_allowed: i32) -> Self {
        let labels: Labels = [("app", app)].into_iter().collect();
        let budget = PodDisruptionBudget {
            name: app.into(),
            namespace: "d".into(),
            selector: Selector::from_labels(&labels),
            disruptions_allowed,
            disrupted_pods: [].into(),
        };
        self.objects.apply(&budget.into());
        self
    }

    fn preempt(&self, pod: &Pod) -> PostFilterStatus {
        let snapshot = self.cache.snapshot();
        let cycle = Cycle { pod, snapshot, objects: &self.objects, now: Timestamp::from_secs(1_000), seed: 7 };
        let reject = |node| RejectedNode { node, status: FilterStatus::Unschedulable, plugin: Some("Room") };
        let rejected = Rejected {
            nodes: snapshot.iter().map(reject).collect(),
            n_nodes: snapshot.n_nodes(),
            unschedulable_plugins: BTreeSet::from(["Room"]),
            ..Rejected::default()
        };
        let filters = Filters::new(&self.profile, &self.nominator);
        let mut states = FilterStates::default();
        states.slots.resize_with(self.profile.filters.len(), Default::default);
        self.plugin.post_filter(cycle, &mut CycleState::default(), &filters, &states, &rejected).unwrap()
    }

    /// The nominated node and the names of the deleted pods.
    fn victims(&self, pod: &Pod) -> Option<(String, Vec<String>)> {
        match self.preempt(pod) {
            PostFilterStatus::Success { nominated: NominatedNode::Set(node), effects } => {
                let deleted = effects.iter().filter_map(|effect| match effect {
                    EffectKind::DeleteVictim { victim, .. } => Some(victim.name.to_string()),
                    _ => None,
                });
                Some((node.to_string(), deleted.collect()))
            }
            _ => None,
        }
    }

    fn refusal(&self, pod: &Pod) -> (String, NominatedNode) {
        match self.preempt(pod) {
            PostFilterStatus::Unschedulable { reasons, nominated } => (reasons.join(", "), nominated),
            other => panic!("{other:?}"),
        }
    }
}

fn names(node: &str, victims: &[&str]) -> Option<(String, Vec<String>)> {
    Some((node.to_owned(), victims.iter().map(|&name| name.to_owned()).collect()))
}

#[test]
fn the_number_of_candidates_is_the_share_or_the_minimum_never_more_than_the_nodes() {
    let cases = [(10, 100, 50, 50), (10, 100, 500, 100), (10, 100, 5_000, 500), (0, 1, 10, 1), (100, 0, 7, 7)];
    for (percentage, absolute, n_nodes, want) in cases {
        let plugin = DefaultPreemption::new(DefaultPreemptionArgs {
            min_candidate_nodes_percentage: percentage,
            min_candidate_nodes_absolute: absolute,
        });
        assert_eq!(plugin.n_candidates(n_nodes), want, "{percentage} % or {absolute} of {n_nodes}");
    }
}

#[test]
fn the_least_important_pod_goes_and_the_others_stay() {
    let world = World::new(&[("n", &[pod("high", 5), pod("low", 1), pod("mid", 3)])]);
    assert_eq!(world.victims(&pod("new", 9)), names("n", &["low"]));
    assert_eq!(world.victims(&pod("new", 2)), names("n", &["low"]));
}

#[test]
fn a_protected_pod_is_spared_before_a_more_important_one() {
    let world = World::new(&[("n", &[pod("guarded", 1), pod("free", 2)])]).protect("guarded", 0);
    assert_eq!(world.victims(&pod("new", 9)), names("n", &["free"]));
    let world = World::new(&[("n", &[pod("guarded", 1), pod("free", 2)])]).protect("guarded", 1);
    assert_eq!(world.victims(&pod("new", 9)), names("n", &["guarded"]), "the budget has one to spare");
    let world = World::new(&[("n", &[pod("guarded", 1)])]).protect("guarded", 0);
    assert_eq!(world.victims(&pod("new", 9)), names("n", &["guarded"]), "budgets are best effort");
}

#[test]
fn the_node_with_the_cheapest_victims_is_chosen() {
    let nodes: [(&str, &[Pod]); 3] = [("n1", &[pod("a", 5)]), ("n2", &[pod("b", 2)]), ("n3", &[pod("c", 3)])];
    assert_eq!(World::new(&nodes).victims(&pod("new", 9)), names("n2", &["b"]));
    assert_eq!(World::new(&nodes).protect("b", 0).victims(&pod("new", 9)), names("n3", &["c"]));
}

#[test]
fn who_may_not_preempt_and_what_is_said() {
    let world = World::new(&[("n1", &[pod("a", 5)]), ("n2", &[pod("b", 5)])]);
    let mut never = pod("new", 9);
    never.preemption_policy = PreemptionPolicy::Never;
    let (text, nominated) = world.refusal(&never);
    assert_eq!(text, "preemption: not eligible due to preemptionPolicy=Never.");
    assert_eq!(nominated, NominatedNode::Keep);
    for priority in [5, 4] {
        let (text, nominated) = world.refusal(&pod("new", priority));
        let want = "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.";
        assert_eq!((text.as_str(), nominated), (want, NominatedNode::Clear), "equal or lower priority is no victim");
    }
}

#[test]
fn a_preemptor_waits_for_victims_of_preemption_that_are_still_going() {
    let going = |by_scheduler| Pod {
        deletion_timestamp: Some(Timestamp::ZERO),
        preempted_by_scheduler: by_scheduler,
        ..pod("a", 1)
    };
    let preemptor = Pod { nominated_node_name: Some("n".into()), ..pod("new", 9) };
    let (text, nominated) = World::new(&[("n", &[going(true)])]).refusal(&preemptor);
    assert_eq!(text, "preemption: not eligible due to a terminating pod on the nominated node.");
    assert_eq!(nominated, NominatedNode::Keep);
    let world = World::new(&[("n", &[going(false)])]);
    assert_eq!(
        world.victims(&preemptor),
        names("n", &[]),
        "deleted by somebody else: it counts, and is not deleted again"
    );
    let elsewhere = Pod { nominated_node_name: Some("gone".into()), ..pod("new", 9) };
    assert!(World::new(&[("n", &[going(true)])]).victims(&elsewhere).is_some(), "the nominated node is gone");
}

#[test]
fn what_the_host_is_asked_for() {
    let mut world = World::new(&[("n", &[pod("a", 1)])]);
    let lower = Arc::new(Pod { nominated_node_name: Some("n".into()), ..pod("lower", 2) });
    world.nominator.add(&lower, &NominatedNode::Keep);
    assert_eq!(world.nominator.nominated_on("n").len(), 1);
    let mut new = pod("new", 9);
    new.scheduler_name = "mine".into();
    let PostFilterStatus::Success { effects, .. } = world.preempt(&new) else { panic!("no success") };
    match &effects[..] {
        [
            EffectKind::PatchPodStatus { pod, condition: None, nominated: NominatedNode::Clear },
            EffectKind::DeleteVictim { preemptor, victim, node, condition },
        ] => {
            assert_eq!((&*pod.name, &*preemptor.name, &*victim.name, &**node), ("lower", "new", "a", "n"));
            assert_eq!((condition.condition_type, condition.reason), ("DisruptionTarget", "PreemptionByScheduler"));
            assert_eq!(condition.message, "mine: preempting to accommodate a higher priority pod");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_preemptor_is_held_until_its_victims_are_going() {
    let mut world = World::new(&[("n", &[pod("a", 1)])]);
    let new = pod("new", 9);
    let gate = |world: &World| {
        let view = ClusterView { snapshot: world.cache.snapshot(), objects: &world.objects, now: Timestamp::ZERO };
        world.plugin.pre_enqueue(&new, view)
    };
    assert_eq!(gate(&world), PreEnqueueStatus::Success);
    assert!(world.victims(&new).is_some());
    let held = PreEnqueueStatus::UnschedulableAndUnresolvable(vec![
        "waiting for the preemption for this pod to be finished".into(),
    ]);
    assert_eq!(gate(&world), held);
    let going = Pod { node_name: Some("n".into()), deletion_timestamp: Some(Timestamp::ZERO), ..pod("a", 1) };
    world.cache.set_pod(Arc::new(going));
    assert_eq!(gate(&world), PreEnqueueStatus::Success, "the deletion is seen");

    let world = World::new(&[("n", &[pod("a", 1)])]);
    assert!(world.victims(&new).is_some());
    world.plugin.effects_finished(&new);
    assert_eq!(gate(&world), PreEnqueueStatus::Success, "the host is done, even if it failed");
}

#[test]
fn a_nominated_pod_of_equal_priority_keeps_its_place() {
    let mut world = World::new(&[("n", &[pod("a", 1), pod("b", 2)])]);
    let rival = Arc::new(Pod { nominated_node_name: Some("n".into()), ..pod("rival", 9) });
    world.nominator.add(&rival, &NominatedNode::Keep);
    assert_eq!(world.victims(&pod("new", 9)), names("n", &["b", "a"]), "room for both is made");
    assert_eq!(world.victims(&pod("new", 10)), names("n", &["a"]), "a lower one is not minded");
}
