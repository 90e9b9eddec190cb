//! The built-in workloads at their smallest size, on the engine alone.

use super::*;
use crate::bench::workload::{EngineTarget, load};
use scheduler_core::config::KubeSchedulerConfiguration;

async fn measure(name: &str) -> Result<Vec<Measurement>, String> {
    let workloads = load(name).map_err(|error| error.to_string())?;
    let registry = scheduler_core::plugins::registry();
    let mut target = EngineTarget::new(&KubeSchedulerConfiguration::default(), &registry, 0, 1)?;
    let result = run(&workloads[0], &mut target, &Stop::default(), &mut Progress::new()).await?;
    Ok(result.expect("nobody stops it"))
}

#[tokio::test]
async fn all_measured_pods_of_small_workloads_are_scheduled() {
    for (name, n_pods, namespace) in [
        ("SchedulingBasic/5Nodes", 10, "namespace-2"),
        ("SchedulingDaemonset/5Nodes", 10, "namespace-2"),
        ("SchedulingPodAntiAffinity/5Nodes", 4, "sched-1"),
        ("SchedulingPodAffinity/5Nodes", 10, "sched-1"),
        ("SchedulingPreferredPodAffinity/5Nodes", 10, "sched-1"),
        ("SchedulingPreferredPodAntiAffinity/5Nodes", 10, "sched-1"),
        ("SchedulingNodeAffinity/5Nodes", 10, "namespace-2"),
        ("MixedSchedulingBasePod/5Nodes", 10, "namespace-7"),
        ("SchedulingRequiredPodAntiAffinityWithNSSelector/10Nodes", 6, "measure-ns-0"),
        ("SchedulingRequiredPodAffinityWithNSSelector/10Nodes", 10, "measure-ns-0"),
        ("SchedulingGatedPodsWithPodAffinityImpactForThroughput/1Node_10GatedPods", 10, "namespace-3"),
        ("SchedulingWhileGated/1Node_10GatedPods", 10, "namespace-5"),
        ("TopologySpreading/5Nodes", 10, "namespace-2"),
        ("DefaultTopologySpreading/5Nodes", 10, "service-ns"),
        ("SchedulingWithNodeInclusionPolicy/5Nodes", 4, "namespace-2"),
        ("SchedulingWithMixedChurn/10Nodes", 100, "namespace-2"),
        ("Unschedulable/5Nodes/1Init/10Pods", 10, "namespace-3"),
        ("PreemptionBasic/5Nodes", 5, "namespace-2"),
        ("PreemptionAsync/5Nodes", 5, "namespace-3"),
        ("SchedulingWithExtendedResource/fast", 10, "namespace-2"),
        ("SchedulingSecrets/5Nodes", 10, "namespace-2"),
    ] {
        let measurements = measure(name).await.unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(measurements.len(), 1, "{name}");
        assert_eq!(
            (measurements[0].n_pods, measurements[0].name.as_str()),
            (n_pods, format!("{name}/{namespace}").as_str())
        );
        assert!(measurements[0].average() > 0.0);
    }
}

fn workload(dir: &std::path::Path, ops: &str) -> Workload {
    let file = dir.join("config.yaml");
    std::fs::write(&file, format!("- name: Case\n  workloadTemplate: {ops}\n  workloads: [{{name: w}}]\n"))
        .expect("written");
    let pod = "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 9}}}]}}";
    std::fs::write(dir.join("pod.yaml"), pod).expect("written");
    load(&file.display().to_string()).expect("a configuration").remove(0)
}

#[tokio::test]
async fn pods_that_fit_nowhere_end_the_workload_with_the_reason() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let ops = "[{opcode: createNodes, count: 2}, {opcode: createPods, count: 3, podTemplatePath: pod.yaml, collectMetrics: true}]";
    let workload = workload(dir.path(), ops);
    let registry = scheduler_core::plugins::registry();
    let mut target = EngineTarget::new(&KubeSchedulerConfiguration::default(), &registry, 0, 1).expect("an engine");
    let error = run(&workload, &mut target, &Stop::default(), &mut Progress::new()).await.expect_err("9 CPUs");
    assert!(error.starts_with("Case/w: operation 1: 0 of 3 pods are scheduled; the last one"), "{error}");
    assert!(error.contains("Insufficient cpu"), "{error}");
}

#[tokio::test]
async fn measurements_can_be_started_and_stopped_by_hand_but_only_in_turn() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let ops = "[{opcode: stopCollectingMetrics}]";
    let workload = workload(dir.path(), ops);
    let registry = scheduler_core::plugins::registry();
    let mut target = EngineTarget::new(&KubeSchedulerConfiguration::default(), &registry, 0, 1).expect("an engine");
    let error = run(&workload, &mut target, &Stop::default(), &mut Progress::new()).await.expect_err("nothing started");
    assert_eq!(error, "Case/w: operation 0: no measurement is going on");
}
