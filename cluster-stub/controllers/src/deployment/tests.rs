//! Reconciles of Deployments as tables: objects in, actions out.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStatus, DeploymentStrategy, ReplicaSet, ReplicaSetStatus,
    RollingUpdateDeployment,
};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::runtime::controller_ref::new_controller_ref;
use crate::runtime::pod::tests::{at, running_pod};

use super::plan::{Action, Plan, plan};
use super::revision::REVISION;
use super::status::{PROGRESSING, condition};

fn deployment(image: &str, replicas: i32) -> Deployment {
    let labels = Some([("app".to_owned(), "web".to_owned())].into());
    Deployment {
        metadata: ObjectMeta {
            name: Some("web".to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some("d".to_owned()),
            generation: Some(1),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: Some(replicas),
            progress_deadline_seconds: Some(600),
            revision_history_limit: Some(1),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::String("25%".to_owned())),
                    max_unavailable: Some(IntOrString::String("25%".to_owned())),
                }),
            }),
            selector: LabelSelector { match_labels: labels.clone(), match_expressions: None },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels, ..ObjectMeta::default() }),
                spec: Some(PodSpec {
                    containers: vec![Container { image: Some(image.to_owned()), ..Container::default() }],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

fn with_image(mut deployment: Deployment, image: &str) -> Deployment {
    let spec = deployment.spec.as_mut().expect("made with a spec");
    spec.template.spec.as_mut().expect("made with a spec").containers[0].image = Some(image.to_owned());
    deployment
}

/// As a user's update of the template leaves it.
fn updated(deployment: Deployment, image: &str) -> Deployment {
    let mut deployment = with_image(deployment, image);
    deployment.metadata.generation = deployment.metadata.generation.map(|generation| generation + 1);
    deployment
}

/// What the cluster looks like once the plan is carried out and all pods are up.
fn settle(deployment: &mut Deployment, sets: &mut Vec<ReplicaSet>, plan: &Plan) {
    for action in &plan.actions {
        match action {
            Action::Create(set) => {
                let mut set = set.as_ref().clone();
                set.metadata.uid = Some(format!("uid-{}", sets.len()));
                set.metadata.creation_timestamp = Some(Time(at(i64::try_from(sets.len()).expect("few"))));
                sets.push(set);
            }
            Action::Update { set, .. } => {
                for old in sets.iter_mut().filter(|old| old.metadata.name == set.metadata.name) {
                    *old = set.as_ref().clone();
                }
            }
            Action::Delete(set) => sets.retain(|old| old.metadata.name != set.metadata.name),
            Action::UpdateStatus(changed) | Action::UpdateDeployment(changed) => *deployment = changed.as_ref().clone(),
            Action::Event(..) => {}
        }
    }
    for set in sets {
        let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        set.status = Some(ReplicaSetStatus {
            replicas,
            ready_replicas: Some(replicas),
            available_replicas: Some(replicas),
            terminating_replicas: Some(0),
            observed_generation: Some(1),
            ..ReplicaSetStatus::default()
        });
    }
}

/// Reconciles until nothing is left to do, and answers how the sets were sized on the way.
fn run(deployment: &mut Deployment, sets: &mut Vec<ReplicaSet>, now: Timestamp) -> Vec<String> {
    let mut log = Vec::new();
    for _ in 0..50 {
        let plan = plan(deployment, sets.clone(), &[], now);
        if plan.actions.is_empty() {
            return log;
        }
        for action in &plan.actions {
            let size = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
            let revision =
                |set: &ReplicaSet| set.metadata.annotations.as_ref().and_then(|map| map.get(REVISION).cloned());
            match action {
                Action::Create(set) => log.push(format!("r{}: new {}", revision(set).unwrap_or_default(), size(set))),
                Action::Update { set, from: Some(from) } => {
                    log.push(format!("r{}: {from} to {}", revision(set).unwrap_or_default(), size(set)));
                }
                Action::Delete(set) => log.push(format!("r{}: deleted", revision(set).unwrap_or_default())),
                _ => {}
            }
        }
        settle(deployment, sets, &plan);
    }
    panic!("does not come to rest: {log:?}");
}

fn progressing(deployment: &Deployment) -> (String, String) {
    let status = deployment.status.clone().unwrap_or_default();
    let condition = condition(&status, PROGRESSING).cloned().expect("there is a deadline");
    (condition.status, condition.reason.unwrap_or_default())
}

#[test]
fn a_new_deployment_gets_one_set_and_completes() {
    let (mut web, mut sets) = (deployment("i:1", 3), Vec::new());
    let first = plan(&web, Vec::new(), &[], at(0));
    let [Action::Create(set), Action::UpdateStatus(status)] = first.actions.as_slice() else {
        panic!("{:?}", first.actions)
    };
    assert_eq!(set.metadata.owner_references.as_deref(), Some([new_controller_ref(&web)].as_slice()));
    let annotations = set.metadata.annotations.clone().unwrap_or_default();
    let values: Vec<&str> = annotations.values().map(String::as_str).collect();
    assert_eq!(values, ["3", "4", "1"], "desired-replicas, max-replicas, revision");
    assert_eq!(status.status.as_ref().and_then(|status| status.observed_generation), Some(1));
    let labels = set.metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["app", "pod-template-hash"]);
    assert_eq!(set.metadata.name, Some(format!("web-{}", labels["pod-template-hash"])));

    assert_eq!(run(&mut web, &mut sets, at(0)), ["r1: new 3"]);
    assert_eq!(progressing(&web), ("True".to_owned(), "NewReplicaSetAvailable".to_owned()));
    let conditions = web.status.and_then(|status| status.conditions).unwrap_or_default();
    let kinds: Vec<&str> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(kinds, ["Available", "Progressing"]);
}

#[test]
fn a_new_template_rolls_over_and_history_is_kept_to_its_limit() {
    let (mut web, mut sets) = (deployment("i:1", 3), Vec::new());
    run(&mut web, &mut sets, at(0));
    web = updated(web, "i:2");
    let log = run(&mut web, &mut sets, at(10));
    assert_eq!(log, ["r2: new 1", "r1: 3 to 2", "r2: 1 to 2", "r1: 2 to 1", "r2: 2 to 3", "r1: 1 to 0"]);
    web = updated(web, "i:3");
    let log = run(&mut web, &mut sets, at(20));
    assert_eq!(log.last().map(String::as_str), Some("r1: deleted"));
    assert_eq!(sets.len(), 2);
}

#[test]
fn going_back_to_an_old_template_renumbers_its_set() {
    let (mut web, mut sets) = (deployment("i:1", 1), Vec::new());
    run(&mut web, &mut sets, at(0));
    web = updated(web, "i:2");
    run(&mut web, &mut sets, at(10));
    web = updated(web, "i:1");
    run(&mut web, &mut sets, at(20));
    assert_eq!(sets.len(), 2);
    let annotations = web.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get(REVISION).map(String::as_str), Some("3"));
}

#[test]
fn recreate_waits_for_the_last_old_pod_before_it_makes_the_new_set() {
    let (mut web, mut sets) = (deployment("i:1", 2), Vec::new());
    web.spec.as_mut().expect("made with a spec").strategy =
        Some(DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None });
    run(&mut web, &mut sets, at(0));
    web = updated(web, "i:2");
    let mut old_pod: Pod = running_pod("old");
    old_pod.metadata.owner_references = Some(vec![new_controller_ref(&sets[0])]);
    let step = plan(&web, sets.clone(), &[&old_pod], at(10));
    assert!(matches!(&step.actions[0], Action::Update { from: Some(2), .. }), "{:?}", step.actions);
    settle(&mut web, &mut sets, &step);
    let waits = plan(&web, sets.clone(), &[&old_pod], at(11));
    assert!(!waits.actions.iter().any(|action| matches!(action, Action::Create(_))), "{:?}", waits.actions);
    settle(&mut web, &mut sets, &waits);
    assert_eq!(run(&mut web, &mut sets, at(12))[0], "r2: new 2");
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let (mut web, mut sets) = (deployment("i:1", 2), Vec::new());
    run(&mut web, &mut sets, at(0));
    web = updated(web, "i:2");
    let spec = web.spec.as_mut().expect("made with a spec");
    (spec.paused, spec.replicas) = (Some(true), Some(4));
    assert_eq!(run(&mut web, &mut sets, at(10)), ["r1: 2 to 4"]);
    assert_eq!(progressing(&web), ("Unknown".to_owned(), "DeploymentPaused".to_owned()));
    web.spec.as_mut().expect("made with a spec").paused = None;
    assert_eq!(run(&mut web, &mut sets, at(20))[0], "r2: new 1");
}

#[test]
fn a_rollout_without_progress_misses_its_deadline_once() {
    let mut web = deployment("i:1", 1);
    let step = plan(&web, Vec::new(), &[], at(0));
    let mut sets = Vec::new();
    settle(&mut web, &mut sets, &step);
    sets[0].status = Some(ReplicaSetStatus { replicas: 1, ..ReplicaSetStatus::default() });
    let step = plan(&web, sets.clone(), &[], at(5));
    let [Action::UpdateStatus(changed)] = step.actions.as_slice() else { panic!("{:?}", step.actions) };
    web = changed.as_ref().clone();
    let waits = plan(&web, sets.clone(), &[], at(10));
    assert_eq!((waits.actions.len(), waits.again_after), (0, Some(std::time::Duration::from_secs(596))));
    let late = plan(&web, sets.clone(), &[], at(606));
    let [Action::UpdateStatus(changed)] = late.actions.as_slice() else { panic!("{:?}", late.actions) };
    assert_eq!(progressing(changed), ("False".to_owned(), "ProgressDeadlineExceeded".to_owned()));
    assert_eq!(plan(changed, sets, &[], at(700)), Plan::default(), "said once");
}

#[test]
fn an_asked_for_rollback_restores_the_template_and_clears_the_request() {
    let (mut web, mut sets) = (deployment("i:1", 1), Vec::new());
    run(&mut web, &mut sets, at(0));
    web = updated(web, "i:2");
    run(&mut web, &mut sets, at(10));
    for (asked, reason, image) in [
        ("0", "DeploymentRollback", "i:1"),
        ("1", "DeploymentRollback", "i:1"),
        ("2", "DeploymentRollbackTemplateUnchanged", "i:2"),
        ("9", "DeploymentRollbackRevisionNotFound", "i:2"),
    ] {
        let mut asking = web.clone();
        let annotations = asking.metadata.annotations.get_or_insert_default();
        annotations.insert("deprecated.deployment.rollback.to".to_owned(), asked.to_owned());
        let plan = plan(&asking, sets.clone(), &[], at(20));
        let [Action::UpdateDeployment(changed), Action::Event(_, event, _)] = plan.actions.as_slice() else {
            panic!("{:?}", plan.actions)
        };
        assert_eq!(*event, reason, "{asked}");
        assert_eq!(with_image(changed.as_ref().clone(), image), **changed, "{asked}");
        assert!(
            !changed.metadata.annotations.clone().unwrap_or_default().contains_key("deprecated.deployment.rollback.to")
        );
    }
}

#[test]
fn a_deployment_that_selects_everything_is_only_warned_about() {
    let mut web = deployment("i:1", 1);
    web.spec.as_mut().expect("made with a spec").selector = LabelSelector::default();
    let plan = plan(&web, Vec::new(), &[], at(0));
    assert!(matches!(plan.actions[0], Action::Event("Warning", "SelectingAll", _)));
    assert_eq!(plan.actions.len(), 2);
    web.status = Some(DeploymentStatus { observed_generation: Some(1), ..DeploymentStatus::default() });
    assert_eq!(super::plan::plan(&web, Vec::new(), &[], at(0)).actions.len(), 1);
}
