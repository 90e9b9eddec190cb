//! What a configuration means, and what is said of a wrong one.

use super::*;

/// A configuration with one test case of `ops`, and the templates beside it.
fn load_ops(ops: &str) -> Result<Vec<Workload>, String> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("config.yaml");
    let ops = ops.lines().map(|line| format!("  {line}\n")).collect::<String>();
    let text = format!(
        "- name: Case\n  defaultPodTemplatePath: pod.yaml\n  workloadTemplate:\n{ops}  workloads:\n  - name: small\n    threshold: 5\n    featureGates: {{A: true}}\n    params: {{nodes: 3, wait: 1m30s}}\n"
    );
    std::fs::write(&file, text).expect("the file can be written");
    std::fs::write(dir.path().join("pod.yaml"), "apiVersion: v1\nkind: Pod\n").expect("the file can be written");
    let path = file.display().to_string();
    load(&path).map_err(|error| error.to_string().replace(&path, "FILE"))
}

#[test]
fn parameters_are_resolved() {
    let workloads = load_ops(
        "- {opcode: createNodes, countParam: $nodes, labelNodePrepareStrategy: {labelKey: z, labelValues: [a, b]}}\n\
         - {opcode: createPods, count: 2, collectMetrics: true}\n\
         - {opcode: sleep, durationParam: $wait}",
    )
    .expect("a configuration");
    let workload = &workloads[0];
    assert_eq!((workload.name.as_str(), workload.threshold), ("Case/small", 5.0));
    assert_eq!(workload.feature_gates, ["A=true"]);
    assert!(workload.configuration.is_none());
    let Op::CreateNodes { count: 3, label: Some((key, values)), .. } = &workload.ops[0] else {
        panic!("{:?}", workload.ops[0]);
    };
    assert_eq!((key.as_str(), values.len()), ("z", 2));
    assert!(matches!(&workload.ops[1], Op::CreatePods(pods) if pods.collect_metrics && pods.wait && pods.count == 2));
    assert!(matches!(workload.ops[2], Op::Sleep(duration) if duration == Duration::from_secs(90)));
}

#[test]
fn what_is_not_supported_is_named_with_its_place() {
    for (op, want) in [
        (
            "{opcode: createPodGroups}",
            "FILE: Case/small: operation 0 (createPodGroups): this opcode is not supported, expected one of createNodes",
        ),
        (
            "{opcode: createPods, count: 1, persistentVolumeTemplatePath: x}",
            "operation 0 (createPods): the field persistentVolumeTemplatePath is not supported",
        ),
        ("{opcode: createPods, countParam: $pods}", "the workload has no parameter pods"),
        ("{opcode: createPods, count: many}", "count is \"many\", expected a whole number"),
        ("{opcode: createPods, count: 1, steadyState: true}", "steadyState is not supported"),
        ("{opcode: createPods, count: 1, podTemplatePath: no.yaml}", "cannot read "),
        ("{opcode: churn, mode: shake, templatePaths: [pod.yaml]}", "mode \"shake\", expected create or recreate"),
        ("{opcode: churn, mode: recreate, templatePaths: [pod.yaml]}", "number is 0"),
        ("{opcode: barrier, stageRequirement: Done}", "stageRequirement \"Done\", expected Scheduled or Attempted"),
        ("{opcode: sleep, duration: long}", "\"long\" is no duration, expected one such as 10s"),
    ] {
        let error = load_ops(&format!("- {op}")).expect_err("not supported");
        assert!(error.contains(want), "{op}: {error}");
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let error = load("SchedulingNothing").expect_err("no such workload").to_string();
    assert!(
        error.contains("no workload \"SchedulingNothing\"") && error.contains("SchedulingBasic/5000Nodes_10000Pods"),
        "{error}"
    );
    assert_eq!(load("nowhere/config.yaml").expect_err("no file").to_string(), "nowhere/config.yaml: no such file");
}

#[test]
fn every_built_in_workload_can_be_read() {
    let cases = parse("the built-in workloads", builtin::CONFIG).expect("the text is ours");
    let workloads = resolve("the built-in workloads", Source::Builtin, &cases, None).expect("every operation is known");
    assert!(workloads.len() > 40, "{}", workloads.len());
    for workload in &workloads {
        assert!(
            workload.ops.iter().any(|op| matches!(op, Op::CreatePods(pods) if pods.collect_metrics)),
            "{} measures nothing",
            workload.name
        );
    }
    assert_eq!(load("SchedulingBasic/5000Nodes_10000Pods").map(|found| found.len()), Ok(1));
    assert!(load("SchedulingBasic").expect("a test case").len() > 1, "all workloads of a test case");
}

#[test]
fn a_scheduler_with_extenders_is_not_measured() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("the file can be written");
        path.display().to_string()
    };
    write(
        "scheduler.yaml",
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: 'http://x', filterVerb: f}]\n",
    );
    let file = write(
        "config.yaml",
        "- name: Case\n  schedulerConfigPath: scheduler.yaml\n  workloadTemplate:\n  - {opcode: sleep, duration: 1s}\n  workloads:\n  - {name: small}\n",
    );
    let error = load(&file).expect_err("it has an extender").to_string();
    assert!(error.contains(r#"extenders[0]: extender "http://x" is not called here, remove it"#), "{error}");
}
