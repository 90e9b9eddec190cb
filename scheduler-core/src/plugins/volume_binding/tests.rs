//! Which volumes a pod gets where, what is promised to whom, and how binding goes on.

use std::sync::Arc;
use std::time::Duration;

use super::VolumeBinding;
use super::assume::Assumptions;
use super::bind::Plan;
use super::find::{Conflicts, PodClaims, PodVolumes, Refusal};
use crate::cache::{Cache, Objects};
use crate::config::args::{PluginArgs, VolumeBindingArgs};
use crate::framework::{
    ActionType, ClusterEvent, ClusterView, EffectError, EffectKind, EnqueueExtensions, EventResource, Hint, Step,
};
use crate::model::{
    CsiDriver, CsiNode, CsiStorageCapacity, Labels, Node, NodeSelector, NodeSelectorTerm, Object, ObjectRef, Operator,
    PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, Quantity, Requirement, Selector, StorageClass,
    Timestamp, Volume, VolumeBindingMode, VolumeSource,
};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|&(key, value)| (key, value)).collect()
}

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

fn in_zone(zone: &str) -> NodeSelectorTerm {
    let requirement = Requirement { key: "zone".into(), operator: Operator::In, values: [zone.into()].into() };
    NodeSelectorTerm { match_expressions: [requirement].into(), ..NodeSelectorTerm::default() }
}

fn node(name: &str, zone: &str) -> Node {
    Node { name: name.into(), labels: labels(&[("zone", zone)]), ..Node::default() }
}

fn pod(claims: &[&str]) -> Pod {
    let volume = |name: &&str| Volume {
        name: (*name).into(),
        source: VolumeSource::PersistentVolumeClaim { claim_name: (*name).into(), read_only: false },
    };
    let volumes = claims.iter().map(volume).collect();
    let template = PodTemplate { namespace: "d".into(), volumes, ..PodTemplate::default() };
    Pod { name: "p".into(), uid: "p-uid".into(), ..template.into() }
}

fn claim(name: &str, size: &str) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        name: name.into(),
        namespace: "d".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "1".into(),
        labels: Labels::default(),
        annotations: Labels::default(),
        is_terminating: false,
        controller_uid: None,
        access_modes: ["ReadWriteOnce".into()].into(),
        selector: None,
        request: quantity(size),
        volume_name: "".into(),
        storage_class_name: Some("late".into()),
        volume_mode: "Filesystem".into(),
        volume_attributes_class_name: None,
        phase: "Pending".into(),
    }
}

fn bound(name: &str, volume: &str) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        annotations: labels(&[("pv.kubernetes.io/bind-completed", "yes")]),
        volume_name: volume.into(),
        phase: "Bound".into(),
        ..claim(name, "1Gi")
    }
}

fn volume(name: &str, size: &str, zone: &str) -> PersistentVolume {
    PersistentVolume {
        name: name.into(),
        uid: format!("{name}-uid").into(),
        resource_version: "1".into(),
        labels: Labels::default(),
        annotations: Labels::default(),
        is_terminating: false,
        capacity: quantity(size),
        access_modes: ["ReadWriteOnce".into(), "ReadOnlyMany".into()].into(),
        claim_ref: None,
        storage_class_name: "late".into(),
        node_affinity: Some(NodeSelector { terms: [in_zone(zone)].into() }),
        volume_mode: "Filesystem".into(),
        volume_attributes_class_name: None,
        source: VolumeSource::Other,
        phase: "Available".into(),
    }
}

fn reserved(name: &str, zone: &str, claim: &str) -> PersistentVolume {
    let claim_ref = ObjectRef { namespace: "d".into(), name: claim.into(), ..ObjectRef::default() };
    PersistentVolume { claim_ref: Some(claim_ref), ..volume(name, "1Gi", zone) }
}

fn class(name: &str, provisioner: &str, mode: VolumeBindingMode) -> StorageClass {
    StorageClass {
        name: name.into(),
        provisioner: provisioner.into(),
        volume_binding_mode: mode,
        allowed_topologies: [].into(),
        annotations: Labels::default(),
    }
}

fn late(provisioner: &str) -> StorageClass {
    class("late", provisioner, VolumeBindingMode::WaitForFirstConsumer)
}

fn world(objects: impl IntoIterator<Item = Object>) -> Objects {
    let mut world = Objects::default();
    for object in objects {
        world.apply(&object);
    }
    world
}

fn find(pod: &Pod, objects: &Objects, node: &Node) -> Result<PodVolumes, Conflicts> {
    let claims = PodClaims::of(pod, objects, &Assumptions::default());
    claims.unwrap_or_else(|_| panic!("the pod is not refused")).expect("it has claims").find_on(node, objects).unwrap()
}

fn chosen(found: &PodVolumes) -> Vec<(String, String)> {
    found.bindings.iter().map(|b| (b.claim.name.to_string(), b.volume.name.to_string())).collect()
}

#[test]
fn a_bound_volume_must_exist_and_be_within_reach() {
    let objects = world([bound("c", "v").into(), volume("v", "1Gi", "a").into()]);
    assert!(find(&pod(&["c"]), &objects, &node("n", "a")).is_ok());
    let out_of_reach = find(&pod(&["c"]), &objects, &node("n", "b")).unwrap_err();
    assert_eq!(out_of_reach, Conflicts { node_conflict: true, ..Conflicts::default() });
    let objects = world([bound("c", "gone").into()]);
    let missing = find(&pod(&["c"]), &objects, &node("n", "a")).unwrap_err();
    assert_eq!(missing, Conflicts { volume_missing: true, ..Conflicts::default() });
}

#[test]
fn why_a_pod_cannot_be_placed_at_all() {
    let immediate = class("now", "x", VolumeBindingMode::Immediate);
    let with_class =
        |class: Option<&str>| PersistentVolumeClaim { storage_class_name: class.map(Into::into), ..claim("c", "1Gi") };
    let cases: Vec<(&str, Vec<Object>, Option<&str>)> = vec![
        ("no claim", vec![], Some("persistentvolumeclaim \"c\" not found")),
        (
            "being deleted",
            vec![PersistentVolumeClaim { is_terminating: true, ..bound("c", "v") }.into()],
            Some("persistentvolumeclaim \"c\" is being deleted"),
        ),
        (
            "lost",
            vec![PersistentVolumeClaim { phase: "Lost".into(), ..bound("c", "v") }.into()],
            Some("persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\""),
        ),
        ("immediate and unbound", vec![with_class(Some("now")).into(), immediate.into()], None),
        ("no class", vec![with_class(None).into()], None),
        ("unknown class", vec![with_class(Some("what")).into()], None),
        (
            "a volume of its own choice, not bound yet",
            vec![PersistentVolumeClaim { volume_name: "v".into(), ..claim("c", "1Gi") }.into(), late("x").into()],
            None,
        ),
    ];
    for (name, objects, want) in cases {
        match (PodClaims::of(&pod(&["c"]), &world(objects), &Assumptions::default()), want) {
            (Err(Refusal::Reason(got)), Some(want)) => assert_eq!(got, want, "{name}"),
            (Err(Refusal::UnboundImmediate), None) => {}
            _ => panic!("{name}"),
        }
    }
}

#[test]
fn an_ephemeral_claim_must_be_made_for_the_pod() {
    let mut pod = pod(&[]);
    pod.volumes = [Volume { name: "data".into(), source: VolumeSource::Ephemeral }].into();
    let refusal = |objects| match PodClaims::of(&pod, &world(objects), &Assumptions::default()) {
        Err(Refusal::Reason(reason)) => Some(reason),
        _ => None,
    };
    let waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-data\"";
    assert_eq!(refusal(vec![]).as_deref(), Some(waiting));
    let foreign = "PVC d/p-data was not created for pod d/p (pod is not owner)";
    assert_eq!(refusal(vec![bound("p-data", "v").into()]).as_deref(), Some(foreign));
    let own = PersistentVolumeClaim { controller_uid: Some("p-uid".into()), ..bound("p-data", "v") };
    assert_eq!(refusal(vec![own.into()]), None);
}

#[test]
fn the_smallest_free_volume_that_matches_is_chosen() {
    let with = |change: &dyn Fn(&mut PersistentVolume)| {
        let mut changed = volume("v1", "2Gi", "a");
        change(&mut changed);
        changed
    };
    let cases: Vec<(&str, PersistentVolume, bool)> = vec![
        ("matches", with(&|_| {}), true),
        ("too small", with(&|v| v.capacity = quantity("1Mi")), false),
        ("exactly large enough", with(&|v| v.capacity = quantity("1Gi")), true),
        ("out of reach", volume("v1", "2Gi", "b"), false),
        ("without affinity", with(&|v| v.node_affinity = None), true),
        ("another class", with(&|v| v.storage_class_name = "other".into()), false),
        ("block", with(&|v| v.volume_mode = "Block".into()), false),
        ("lacks the access mode", with(&|v| v.access_modes = ["ReadOnlyMany".into()].into()), false),
        ("released", with(&|v| v.phase = "Released".into()), false),
        ("being deleted", with(&|v| v.is_terminating = true), false),
        ("other attributes", with(&|v| v.volume_attributes_class_name = Some("fast".into())), false),
        ("for another claim", reserved("v1", "a", "other"), false),
        ("for this claim", reserved("v1", "a", "c"), true),
    ];
    for (name, candidate, want) in cases {
        let objects = world([claim("c", "1Gi").into(), late("kubernetes.io/no-provisioner").into(), candidate.into()]);
        let found = find(&pod(&["c"]), &objects, &node("n", "a"));
        assert_eq!(found.is_ok(), want, "{name}");
        if let Err(conflicts) = found {
            assert_eq!(conflicts, Conflicts { bind_conflict: true, ..Conflicts::default() }, "{name}");
        }
    }
    let objects = world([
        claim("c", "1Gi").into(),
        late("kubernetes.io/no-provisioner").into(),
        volume("large", "9Gi", "a").into(),
        volume("small", "2Gi", "a").into(),
    ]);
    assert_eq!(chosen(&find(&pod(&["c"]), &objects, &node("n", "a")).unwrap()), [("c".into(), "small".into())]);
}

#[test]
fn a_volume_reserved_for_the_claim_wins_and_binds_it_to_its_place() {
    let objects = world([
        claim("c", "1Gi").into(),
        late("kubernetes.io/no-provisioner").into(),
        reserved("mine", "a", "c").into(),
        volume("free", "1Gi", "b").into(),
    ]);
    assert_eq!(chosen(&find(&pod(&["c"]), &objects, &node("n", "a")).unwrap()), [("c".into(), "mine".into())]);
    assert!(find(&pod(&["c"]), &objects, &node("n", "b")).is_err(), "the free one is not for a claim that has its own");
}

#[test]
fn two_claims_get_two_volumes_the_smaller_claim_first() {
    let objects = world([
        claim("big", "3Gi").into(),
        claim("small", "1Gi").into(),
        late("kubernetes.io/no-provisioner").into(),
        volume("v1", "2Gi", "a").into(),
        volume("v2", "4Gi", "a").into(),
    ]);
    let found = find(&pod(&["big", "small"]), &objects, &node("n", "a")).unwrap();
    assert_eq!(chosen(&found), [("small".into(), "v1".into()), ("big".into(), "v2".into())]);
    let found = find(
        &pod(&["big", "small"]),
        &world([
            claim("big", "3Gi").into(),
            claim("small", "1Gi").into(),
            late("kubernetes.io/no-provisioner").into(),
            volume("v2", "4Gi", "a").into(),
        ]),
        &node("n", "a"),
    );
    assert!(found.is_err(), "one volume is not enough for two");
}

#[test]
fn what_cannot_be_matched_is_made_where_class_and_driver_allow() {
    let topology = |zone| StorageClass { allowed_topologies: [in_zone(zone)].into(), ..late("csi") };
    let driver = |storage_capacity| CsiDriver { name: "csi".into(), storage_capacity };
    let capacity = |size: &str, maximum: Option<&str>, zone: Option<&str>| CsiStorageCapacity {
        name: "cap".into(),
        namespace: "d".into(),
        storage_class_name: "late".into(),
        node_topology: zone.map(|zone| Selector::from_labels(&labels(&[("zone", zone)]))),
        capacity: Some(quantity(size)),
        maximum_volume_size: maximum.map(quantity),
    };
    let space = Conflicts { not_enough_space: true, ..Conflicts::default() };
    let place = Conflicts { bind_conflict: true, ..Conflicts::default() };
    let cases: Vec<(&str, Vec<Object>, Option<&Conflicts>)> = vec![
        ("anywhere", vec![late("csi").into()], None),
        ("here", vec![topology("a").into()], None),
        ("elsewhere only", vec![topology("b").into()], Some(&place)),
        ("the driver publishes nothing", vec![late("csi").into(), driver(false).into()], None),
        ("the driver publishes, and there is nothing", vec![late("csi").into(), driver(true).into()], Some(&space)),
        ("room here", vec![late("csi").into(), driver(true).into(), capacity("5Gi", None, Some("a")).into()], None),
        (
            "room elsewhere",
            vec![late("csi").into(), driver(true).into(), capacity("5Gi", None, Some("b")).into()],
            Some(&space),
        ),
        (
            "too little room",
            vec![late("csi").into(), driver(true).into(), capacity("1Mi", None, Some("a")).into()],
            Some(&space),
        ),
        (
            "the largest volume counts",
            vec![late("csi").into(), driver(true).into(), capacity("9Gi", Some("1Mi"), Some("a")).into()],
            Some(&space),
        ),
        (
            "no topology is nowhere",
            vec![late("csi").into(), driver(true).into(), capacity("5Gi", None, None).into()],
            Some(&space),
        ),
    ];
    for (name, mut objects, want) in cases {
        objects.push(claim("c", "1Gi").into());
        let found = find(&pod(&["c"]), &world(objects), &node("n", "a"));
        assert_eq!(found.as_ref().err(), want, "{name}");
        if let Ok(found) = found {
            assert_eq!(found.provisions.len(), 1, "{name}");
        }
    }
}

#[test]
fn a_claim_with_a_selected_node_goes_there_and_nowhere_else() {
    let annotations = labels(&[("volume.kubernetes.io/selected-node", "n1")]);
    let selected = PersistentVolumeClaim { annotations, ..claim("c", "1Gi") };
    let objects = world([selected.into(), late("csi").into(), volume("v", "1Gi", "a").into()]);
    let found = find(&pod(&["c"]), &objects, &node("n1", "a")).unwrap();
    assert!(found.bindings.is_empty() && found.provisions.len() == 1, "no free volume is looked for");
    assert!(find(&pod(&["c"]), &objects, &node("n2", "a")).is_err());
}

#[test]
fn a_promised_volume_is_not_promised_again_until_taken_back() {
    let objects = world([
        claim("c1", "1Gi").into(),
        claim("c2", "1Gi").into(),
        late("kubernetes.io/no-provisioner").into(),
        volume("v", "1Gi", "a").into(),
    ]);
    let here = node("n", "a");
    let plan = Plan::new(&here.name, &find(&pod(&["c1"]), &objects, &here).unwrap());
    let mut assumptions = Assumptions::default();
    assumptions.assume(&plan);
    assumptions.expire(&objects);
    let fits = |name: &str, assumptions: &Assumptions| {
        let claims = PodClaims::of(&pod(&[name]), &objects, assumptions).unwrap_or_else(|_| panic!("not refused"));
        claims.unwrap().find_on(&here, &objects).unwrap().is_ok()
    };
    assert!(!fits("c2", &assumptions));
    assert!(fits("c1", &assumptions), "another pod of the same claim may follow");
    assumptions.revert(&plan);
    assumptions.revert(&plan);
    assert!(fits("c2", &assumptions));
}

#[test]
fn a_newer_version_of_the_volume_ends_the_promise() {
    let old = volume("v", "1Gi", "a");
    let objects = world([claim("c", "1Gi").into(), late("kubernetes.io/no-provisioner").into(), old.clone().into()]);
    let here = node("n", "a");
    let mut assumptions = Assumptions::default();
    assumptions.assume(&Plan::new(&here.name, &find(&pod(&["c"]), &objects, &here).unwrap()));
    assert!(assumptions.volume(&Arc::new(old.clone())).claim_ref.is_some());
    let newer = PersistentVolume { resource_version: "2".into(), ..old };
    assert!(assumptions.volume(&Arc::new(newer.clone())).claim_ref.is_none());
    assumptions.expire(&world([newer.clone().into()]));
    let again = PersistentVolume { resource_version: "1".into(), ..newer };
    assert!(assumptions.volume(&Arc::new(again)).claim_ref.is_none(), "it was forgotten");
}

/// A world in which a plan goes on.
struct Progress {
    cache: Cache,
    objects: Objects,
    plan: Plan,
}

const TIMEOUT: Duration = Duration::from_secs(600);

impl Progress {
    fn new(objects: impl IntoIterator<Item = Object>) -> Self {
        let here = node("n", "a");
        let objects = world(objects);
        let plan = Plan::new(&here.name, &find(&pod(&["c"]), &objects, &here).unwrap());
        let mut cache = Cache::new();
        cache.set_node(Arc::new(here));
        Self { cache, objects, plan }
    }

    fn advance(&mut self, results: &[Result<(), EffectError>], seconds: i64) -> Result<Step, String> {
        let now = Timestamp::from_secs(seconds);
        let view = ClusterView { snapshot: self.cache.snapshot(), objects: &self.objects, now };
        self.plan.advance(results, TIMEOUT, view).map_err(|error| error.to_string())
    }

    /// Asks for the effects and reports their success.
    fn start(&mut self) {
        assert!(matches!(self.advance(&[], 0), Ok(Step::Do(effects)) if effects.len() == 1));
        assert!(matches!(self.advance(&[Ok(())], 0), Ok(Step::Wait { .. })));
    }
}

fn to_match() -> [Object; 3] {
    [claim("c", "1Gi").into(), late("kubernetes.io/no-provisioner").into(), volume("v", "1Gi", "a").into()]
}

fn to_provision() -> [Object; 2] {
    [claim("c", "1Gi").into(), late("csi").into()]
}

#[test]
fn a_reserved_volume_is_waited_for_until_the_claim_is_bound() {
    let mut progress = Progress::new(to_match());
    match progress.advance(&[], 0) {
        Ok(Step::Do(effects)) => match &effects[..] {
            [EffectKind::BindVolume { claim, volume: Some(volume), node }] => {
                assert_eq!((&*claim.name, &*volume.name, &**node), ("c", "v", "n"));
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(progress.advance(&[Ok(())], 1), Ok(Step::Wait { until, .. }) if until == Timestamp::from_secs(601))
    );
    let claim_ref =
        Some(ObjectRef { namespace: "d".into(), name: "c".into(), uid: "c-uid".into(), ..ObjectRef::default() });
    let written = PersistentVolume { claim_ref, resource_version: "2".into(), ..volume("v", "1Gi", "a") };
    progress.objects.apply(&written.into());
    assert!(matches!(progress.advance(&[], 2), Ok(Step::Wait { .. })));
    progress.objects.apply(&PersistentVolumeClaim { resource_version: "3".into(), ..bound("c", "v") }.into());
    assert!(matches!(progress.advance(&[], 3), Ok(Step::Done)));
}

#[test]
fn a_made_volume_is_waited_for_until_the_claim_is_bound() {
    let mut progress = Progress::new(to_provision());
    progress.start();
    let selected = [("volume.kubernetes.io/selected-node", "n")];
    let annotated =
        PersistentVolumeClaim { annotations: labels(&selected), resource_version: "2".into(), ..claim("c", "1Gi") };
    progress.objects.apply(&annotated.into());
    assert!(matches!(progress.advance(&[], 2), Ok(Step::Wait { .. })));
    let annotations = labels(&[selected[0], ("pv.kubernetes.io/bind-completed", "yes")]);
    let done = PersistentVolumeClaim { annotations, resource_version: "3".into(), ..bound("c", "made") };
    progress.objects.apply(&done.into());
    assert!(matches!(progress.advance(&[], 3), Ok(Step::Wait { .. })), "the volume is not seen yet");
    progress.objects.apply(&volume("made", "1Gi", "a").into());
    assert!(matches!(progress.advance(&[], 4), Ok(Step::Done)));
}

#[test]
fn what_makes_binding_fail() {
    let refused = EffectError { message: "conflict".to_owned(), not_found: false };
    let mut progress = Progress::new(to_match());
    assert!(matches!(progress.advance(&[], 0), Ok(Step::Do(_))));
    assert_eq!(progress.advance(&[Err(refused)], 1).unwrap_err(), "conflict");

    let mut progress = Progress::new(to_match());
    progress.start();
    assert!(matches!(progress.advance(&[], 599), Ok(Step::Wait { .. })));
    assert_eq!(progress.advance(&[], 600).unwrap_err(), "binding volumes: context deadline exceeded");

    let mut progress = Progress::new(to_match());
    progress.start();
    progress.objects.apply(&PersistentVolume { resource_version: "2".into(), ..volume("v", "1Gi", "a") }.into());
    assert_eq!(progress.advance(&[], 2).unwrap_err(), "ClaimRef got reset for pv \"v\"");

    let mut progress = Progress::new(to_provision());
    progress.start();
    progress.objects.apply(&PersistentVolumeClaim { resource_version: "2".into(), ..claim("c", "1Gi") }.into());
    assert_eq!(progress.advance(&[], 2).unwrap_err(), "provisioning failed for PVC \"c\"");

    let mut progress = Progress::new(to_provision());
    progress.start();
    let annotations =
        labels(&[("volume.kubernetes.io/selected-node", "n"), ("pv.kubernetes.io/bind-completed", "yes")]);
    progress
        .objects
        .apply(&PersistentVolumeClaim { annotations, resource_version: "2".into(), ..bound("c", "far") }.into());
    progress.objects.apply(&volume("far", "1Gi", "b").into());
    let want = "pv \"far\" node affinity doesn't match node \"n\": no matching NodeSelectorTerms";
    assert_eq!(progress.advance(&[], 2).unwrap_err(), want);
    progress.cache.remove_node("n");
    assert_eq!(progress.advance(&[], 2).unwrap_err(), "failed to get node \"n\": node \"n\" not found");

    let mut progress = Progress::new(to_match());
    progress.start();
    progress.objects.remove(&claim("c", "1Gi").into());
    assert_eq!(progress.advance(&[], 2).unwrap_err(), "failed to check binding: claim d/c not found");
}

#[test]
fn events_that_may_help() {
    let csi_node = |plugins: &str| CsiNode {
        name: "n".into(),
        annotations: labels(&[("storage.alpha.kubernetes.io/migrated-plugins", plugins)]),
        drivers: [].into(),
    };
    let driver = |storage_capacity| Object::from(CsiDriver { name: "csi".into(), storage_capacity });
    let capacity = |size: &str| CsiStorageCapacity {
        name: "cap".into(),
        namespace: "d".into(),
        storage_class_name: "late".into(),
        node_topology: None,
        capacity: Some(quantity(size)),
        maximum_volume_size: None,
    };
    let topology = |zone| StorageClass { allowed_topologies: [in_zone(zone)].into(), ..late("csi") };
    let cases: Vec<(&str, Option<Object>, Option<Object>, Hint)> = vec![
        ("its claim", None, Some(claim("c", "1Gi").into()), Hint::Queue),
        ("its claim changes", Some(claim("c", "1Gi").into()), Some(bound("c", "v").into()), Hint::Queue),
        ("another claim", None, Some(claim("other", "1Gi").into()), Hint::Skip),
        ("a volume", None, Some(volume("v", "1Gi", "a").into()), Hint::Queue),
        ("a class", None, Some(late("csi").into()), Hint::Queue),
        ("a class allows another place", Some(topology("a").into()), Some(topology("b").into()), Hint::Queue),
        ("a class changes otherwise", Some(topology("a").into()), Some(topology("a").into()), Hint::Skip),
        ("a CSINode", None, Some(csi_node("").into()), Hint::Queue),
        ("a CSINode serves more", Some(csi_node("").into()), Some(csi_node("x").into()), Hint::Queue),
        ("a CSINode changes otherwise", Some(csi_node("x").into()), Some(csi_node("x").into()), Hint::Skip),
        ("more room", Some(capacity("1Gi").into()), Some(capacity("2Gi").into()), Hint::Queue),
        ("less room", Some(capacity("2Gi").into()), Some(capacity("1Gi").into()), Hint::Skip),
        ("the driver of no inline volume", Some(driver(true)), Some(driver(false)), Hint::Skip),
        ("a node", None, Some(node("n", "a").into()), Hint::Queue),
    ];
    let Some(PluginArgs::VolumeBinding(args)) = PluginArgs::defaults(super::NAME) else { unreachable!() };
    let plugin = VolumeBinding::new(&VolumeBindingArgs { bind_timeout_seconds: 1, ..args });
    let (cache, objects) = (Cache::new(), Objects::default());
    let view = ClusterView { snapshot: cache.snapshot(), objects: &objects, now: Timestamp::ZERO };
    for (name, old, new, want) in cases {
        let event = ClusterEvent { resource: EventResource::WildCard, action: ActionType::UPDATE, old, new };
        assert_eq!(plugin.hint(&pod(&["c"]), &event, view).unwrap(), want, "{name}");
    }
    let mut inline = pod(&[]);
    let source = VolumeSource::Csi { driver: "csi".into(), volume_handle: "".into() };
    inline.volumes = [Volume { name: "v".into(), source }].into();
    for (old, new, want) in [(true, false, Hint::Queue), (false, true, Hint::Skip)] {
        let (old, new) = (Some(driver(old)), Some(driver(new)));
        let event = ClusterEvent { resource: EventResource::CsiDriver, action: ActionType::UPDATE, old, new };
        assert_eq!(plugin.hint(&inline, &event, view).unwrap(), want);
    }
}
