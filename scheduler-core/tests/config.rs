//! KubeSchedulerConfiguration documents: what is read from them, which plugins run, and what is refused with which words.

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::config::args::PluginArgs;
use scheduler_core::config::error::ConfigError;
use scheduler_core::config::in_tree::IN_TREE;
use scheduler_core::config::plugins::{DEFAULT_MULTI_POINT, ExtensionPoint};
use scheduler_core::config::profile::{EffectivePlugins, InTreeCatalog};

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn read(body: &str) -> Result<KubeSchedulerConfiguration, ConfigError> {
    KubeSchedulerConfiguration::from_text(&format!("{HEAD}{body}"))
}

fn resolve(body: &str) -> Result<Vec<EffectivePlugins>, ConfigError> {
    read(body)?.effective_plugins(&InTreeCatalog)
}

#[test]
fn a_document_that_says_nothing_has_upstreams_defaults() {
    let config = read("").unwrap();
    assert_eq!(config.parallelism, 16);
    assert_eq!(config.percentage_of_nodes_to_score, 0);
    assert_eq!((config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds), (1, 10));
    assert!(config.leader_election.leader_elect && config.enable_profiling && config.enable_contention_profiling);
    assert_eq!(config.leader_election.lease_duration.as_secs(), 15);
    assert_eq!(config.leader_election.renew_deadline.as_secs(), 10);
    assert_eq!(config.leader_election.retry_period.as_secs(), 2);
    assert_eq!(config.leader_election.resource_lock, "leases");
    assert_eq!(config.leader_election.resource_name, "kube-scheduler");
    assert_eq!(config.leader_election.resource_namespace, "kube-system");
    assert_eq!((config.client_connection.qps, config.client_connection.burst), (50.0, 100));
    assert_eq!(config.client_connection.content_type, "application/vnd.kubernetes.protobuf");
    assert_eq!(config.profiles.len(), 1);
    assert_eq!(config.profiles[0].scheduler_name, "default-scheduler");
    assert!(!config.delay_cache_until_active);
}

#[test]
fn without_a_file_every_node_is_scored_and_the_rest_is_the_same() {
    let without_file = KubeSchedulerConfiguration::default();
    assert_eq!(without_file.percentage_of_nodes_to_score, 100);
    assert_eq!(KubeSchedulerConfiguration { percentage_of_nodes_to_score: 0, ..without_file }, read("").unwrap());
}

#[test]
fn every_default_plugin_is_in_tree_and_takes_its_default_arguments() {
    for (name, _) in DEFAULT_MULTI_POINT {
        assert!(IN_TREE.iter().any(|(in_tree, _)| *in_tree == name), "{name}");
    }
    let config = read("").unwrap();
    let profile = &config.profiles[0];
    let Some(PluginArgs::NodeResourcesFit(fit)) = profile.args("NodeResourcesFit") else { panic!("no arguments") };
    assert_eq!(fit.scoring_strategy.strategy_type, "LeastAllocated");
    let Some(PluginArgs::InterPodAffinity(affinity)) = profile.args("InterPodAffinity") else { panic!("no arguments") };
    assert_eq!(affinity.hard_pod_affinity_weight, 1);
    let Some(PluginArgs::VolumeBinding(binding)) = profile.args("VolumeBinding") else { panic!("no arguments") };
    assert_eq!(binding.bind_timeout_seconds, 600);
    assert_eq!(profile.args("ImageLocality"), None);
}

#[test]
fn all_top_level_fields_are_read_from_yaml_and_json() {
    let yaml = "
parallelism: 4
percentageOfNodesToScore: 37
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
enableProfiling: false
delayCacheUntilActive: true
leaderElection: {leaderElect: no, leaseDuration: 1m30s, resourceName: second}
clientConnection: {kubeconfig: /etc/k, qps: 12.5, burst: 7, acceptContentTypes: application/json}
profiles:
- {schedulerName: a, percentageOfNodesToScore: 5}
- {schedulerName: b}
";
    let json = r#"{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration","parallelism":4,
"percentageOfNodesToScore":37,"podInitialBackoffSeconds":2,"podMaxBackoffSeconds":20,"enableProfiling":false,
"delayCacheUntilActive":true,"leaderElection":{"leaderElect":false,"leaseDuration":"90s","resourceName":"second"},
"clientConnection":{"kubeconfig":"/etc/k","qps":12.5,"burst":7,"acceptContentTypes":"application/json"},
"profiles":[{"schedulerName":"a","percentageOfNodesToScore":5},{"schedulerName":"b","percentageOfNodesToScore":null}]}"#;
    let config = read(yaml).unwrap();
    assert_eq!(config, KubeSchedulerConfiguration::from_text(json).unwrap());
    assert!(!config.leader_election.leader_elect && !config.enable_profiling && !config.enable_contention_profiling);
    assert_eq!(config.leader_election.lease_duration.as_secs(), 90);
    assert_eq!(config.profiles[0].percentage_of_nodes_to_score, Some(5));
    assert_eq!(config.profiles[1].percentage_of_nodes_to_score, None);
    assert_eq!((config.client_connection.qps, config.client_connection.burst), (12.5, 7));
}

#[test]
fn arguments_of_plugins_from_elsewhere_pass_through_raw() {
    let config = read("profiles: [{pluginConfig: [{name: Mine, args: {anything: [1, {x: z}]}}]}]").unwrap();
    let want = serde_json::json!({"anything": [1, {"x": "z"}]});
    assert_eq!(config.profiles[0].args("Mine"), Some(&PluginArgs::Raw(want)));
}

#[test]
fn multi_point_precedence() {
    let filter = |body: &str| resolve(body).unwrap()[0].at(ExtensionPoint::Filter).join(" ");
    let all = filter("");
    assert!(
        all.starts_with("NodeUnschedulable NodeName TaintToleration ")
            && all.ends_with(" DynamicResources NodeDeclaredFeatures")
    );
    let cases = [
        (
            "specific goes first",
            "filter: {enabled: [{name: TaintToleration}]}",
            "TaintToleration NodeUnschedulable NodeName NodeAffinity",
        ),
        (
            "multiPoint disable and enable goes last",
            "multiPoint: {disabled: [{name: NodeUnschedulable}], enabled: [{name: NodeUnschedulable}]}",
            "NodeName TaintToleration NodeAffinity",
        ),
        ("disabled at the point", "filter: {disabled: [{name: NodeName}]}", "NodeUnschedulable TaintToleration"),
        (
            "star leaves the specific ones",
            "filter: {disabled: [{name: '*'}], enabled: [{name: NodePorts}, {name: NodeName}]}",
            "NodePorts NodeName",
        ),
    ];
    for (name, plugins, want) in cases {
        let got = filter(&format!("profiles: [{{plugins: {{{plugins}}}}}]"));
        assert!(got.starts_with(want), "{name}: {got}");
    }
}

#[test]
fn score_weights() {
    let weights = |plugins: &str| {
        let effective = resolve(&format!("profiles: [{{plugins: {{{plugins}}}}}]")).unwrap();
        let weight = |name| effective[0].score_weight(name);
        (weight("NodeResourcesFit"), weight("TaintToleration"), weight("DynamicResources"), weight("NodeName"))
    };
    assert_eq!(weights(""), (1, 3, 2, 0), "defaults");
    assert_eq!(weights("score: {enabled: [{name: NodeResourcesFit, weight: 7}]}").0, 7, "specific without disable");
    assert_eq!(weights("multiPoint: {enabled: [{name: NodeResourcesFit, weight: 9}]}").0, 9, "multiPoint re-listed");
    let moved = "score: {disabled: [{name: TaintToleration}], enabled: [{name: TaintToleration}]}";
    assert_eq!(weights(moved).1, 1, "weight 0 is 1");
}

#[test]
fn refused_documents_name_the_field_and_what_was_expected() {
    let args =
        |plugin: &str, args: &str| format!("profiles: [{{pluginConfig: [{{name: {plugin}, args: {{{args}}}}}]}}]");
    let strategy = |text: &str| args("NodeResourcesFit", &format!("scoringStrategy: {{{text}}}"));
    let cases: Vec<(String, &str)> = vec![
        ("parallelism: 0".into(), "parallelism: invalid value 0: should be an integer value greater than zero"),
        ("parallelism: many".into(), "parallelism: got \"many\", expected a 32-bit integer"),
        ("parallelism: 3000000000".into(), "parallelism: got 3000000000, expected a 32-bit integer"),
        ("paralelism: 3".into(), "paralelism: unknown field, did you mean \"parallelism\"?"),
        ("Parallelism: 3".into(), "Parallelism: unknown field, did you mean \"parallelism\"?"),
        ("colour: red".into(), "colour: unknown field"),
        (
            "percentageOfNodesToScore: 101".into(),
            "percentageOfNodesToScore: invalid value 101: not in valid range [0-100]",
        ),
        (
            "profiles: [{percentageOfNodesToScore: -1}]".into(),
            "profiles[0].percentageOfNodesToScore: invalid value -1: not in valid range [0-100]",
        ),
        ("podInitialBackoffSeconds: 0".into(), "podInitialBackoffSeconds: invalid value 0: must be greater than 0"),
        (
            "podInitialBackoffSeconds: 11".into(),
            "podMaxBackoffSeconds: invalid value 10: must be greater than or equal to podInitialBackoffSeconds",
        ),
        ("clientConnection: {burst: -1}".into(), "clientConnection.burst: invalid value -1: must be non-negative"),
        (
            "leaderElection: {resourceLock: endpoints}".into(),
            "leaderElection.resourceLock: unsupported value \"endpoints\", expected one of leases",
        ),
        (
            "leaderElection: {leaseDuration: 5s}".into(),
            "leaderElection.leaseDuration: invalid value 5s: must be greater than renewDeadline",
        ),
        (
            "leaderElection: {leaseDuration: 15}".into(),
            "leaderElection.leaseDuration: got 15, expected a duration such as \"10s\" or \"1h30m\"",
        ),
        ("profiles: {}".into(), "profiles: got {}, expected a list"),
        (
            "profiles: [{schedulerName: a}, {}]".into(),
            "profiles[1].schedulerName: required value: the name that pods of this profile ask for",
        ),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]".into(),
            "profiles[1].schedulerName: duplicate value \"a\"",
        ),
        (
            "profiles: [{plugins: {filters: {}}}]".into(),
            "profiles[0].plugins.filters: unknown field, did you mean \"filter\"?",
        ),
        (
            "profiles: [{plugins: {filter: {enable: []}}}]".into(),
            "profiles[0].plugins.filter.enable: unknown field, did you mean \"enabled\"?",
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]".into(),
            "profiles[0].plugins.filter.enabled[0]: invalid value \"EBSLimits\": the plugin was removed",
        ),
        (
            "profiles: [{pluginConfig: [{name: A}, {name: A}]}]".into(),
            "profiles[0].pluginConfig[1]: duplicate value \"A\"",
        ),
        (
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {disabled: [{name: '*'}]}}}]"
                .into(),
            "profiles[1].plugins.queueSort: invalid value enabled [], disabled [\"*\"]: must be the same for all profiles",
        ),
        (
            args("InterPodAffinity", "hardPodAffinityWeigth: 5"),
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeigth: unknown field, did you mean \"hardPodAffinityWeight\"?",
        ),
        (
            args("InterPodAffinity", "hardPodAffinityWeight: 101"),
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: invalid value 101: not in valid range [0, 100]",
        ),
        (
            args("InterPodAffinity", "kind: NodeAffinityArgs"),
            "profiles[0].pluginConfig[0].args.kind: got \"NodeAffinityArgs\", expected \"InterPodAffinityArgs\"",
        ),
        (
            args("DefaultPreemption", "minCandidateNodesPercentage: 101"),
            "profiles[0].pluginConfig[0].args.minCandidateNodesPercentage: invalid value 101: not in valid range [0, 100]",
        ),
        (
            args("DefaultPreemption", "minCandidateNodesAbsolute: -1"),
            "profiles[0].pluginConfig[0].args.minCandidateNodesAbsolute: invalid value -1: not in valid range [0, inf)",
        ),
        (
            strategy("type: MostAllocated, resources: [{name: cpu, weight: 101}]"),
            "profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight: invalid value 101: resource weight of cpu not in valid range (0, 100]",
        ),
        (
            strategy("type: Best"),
            "profiles[0].pluginConfig[0].args.scoringStrategy.type: unsupported value \"Best\", expected one of LeastAllocated, MostAllocated, RequestedToCapacityRatio",
        ),
        (
            strategy("type: RequestedToCapacityRatio"),
            "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio: required value: must be specified when type is RequestedToCapacityRatio",
        ),
        (
            strategy("type: LeastAllocated, requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}]}"),
            "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio: forbidden: must be absent when type is not RequestedToCapacityRatio",
        ),
        (
            strategy(
                "type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 50, score: 1}, {utilization: 10, score: 5}]}",
            ),
            "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape[1].utilization: invalid value 10: values must be sorted in increasing order",
        ),
        (
            strategy(
                "type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 0, score: 11}]}",
            ),
            "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape[0].score: invalid value 11: not in valid range [0, 10]",
        ),
        (
            args("NodeResourcesFit", "ignoredResourceGroups: [a.com/b]"),
            "profiles[0].pluginConfig[0].args.ignoredResourceGroups[0]: invalid value \"a.com/b\": resource group name can't contain '/'",
        ),
        (
            args("NodeResourcesBalancedAllocation", "resources: [{name: cpu, weight: 2}]"),
            "profiles[0].pluginConfig[0].args.resources[0].weight: invalid value 2: must be 1",
        ),
        (
            args(
                "PodTopologySpread",
                "defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]",
            ),
            "profiles[0].pluginConfig[0].args.defaultingType: invalid value \"System\": when .defaultConstraints are not empty",
        ),
        (
            args(
                "PodTopologySpread",
                "defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]",
            ),
            "profiles[0].pluginConfig[0].args.defaultConstraints[0].maxSkew: invalid value 0: not in valid range (0, inf)",
        ),
        (
            args(
                "PodTopologySpread",
                "defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]",
            ),
            "profiles[0].pluginConfig[0].args.defaultConstraints[0].labelSelector: forbidden: a default constraint has no selector, it is deduced for each pod",
        ),
        (
            args("VolumeBinding", "bindTimeoutSeconds: -1"),
            "profiles[0].pluginConfig[0].args.bindTimeoutSeconds: invalid value -1: must not be negative",
        ),
        (
            args("VolumeBinding", "shape: [{utilization: 0, score: 0}]"),
            "profiles[0].pluginConfig[0].args.shape: forbidden: must be absent, the feature StorageCapacityScoring is off",
        ),
        (
            args("DynamicResources", "bindingTimeout: 10ms"),
            "profiles[0].pluginConfig[0].args.bindingTimeout: invalid value PT0.01S: must be at least 1 second",
        ),
        (
            args(
                "NodeAffinity",
                "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Is}]}]}}",
            ),
            "profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: unsupported value \"Is\", expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', prioritizeVerb: p, weight: -1}]".into(),
            "extenders[0].weight: invalid value -1: must have a positive weight applied to it",
        ),
        (
            "extenders: [{managedResources: [{name: example.com/foo}, {name: example.com/foo}]}]".into(),
            "extenders[0].managedResources[1].name: invalid value \"example.com/foo\": duplicate extender managed resource name",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', prioritizeVerb: p}]".into(),
            "extenders[0].weight: invalid value 0: must have a positive weight applied to it",
        ),
        (
            "extenders: [{bindVerb: b}, {bindVerb: b}]".into(),
            "extenders: invalid value \"found 2 extenders implementing bind\": only one extender can implement bind",
        ),
        (
            "extenders: [{managedResources: [{name: cpu}]}]".into(),
            "extenders[0].managedResources[0].name: invalid value \"cpu\": is an invalid extended resource name",
        ),
    ];
    for (body, want) in cases {
        let error = read(&body).expect_err(&body).to_string();
        assert_eq!(error.lines().next(), Some(want), "{body}");
    }
}

#[test]
fn other_kinds_versions_and_broken_text_are_refused() {
    let cases = [
        ("kind: KubeSchedulerConfiguration", "apiVersion: got nothing, expected \"kubescheduler.config.k8s.io/v1\""),
        (
            "{apiVersion: kubescheduler.config.k8s.io/v1beta3, kind: KubeSchedulerConfiguration}",
            "apiVersion: got \"kubescheduler.config.k8s.io/v1beta3\", expected \"kubescheduler.config.k8s.io/v1\"",
        ),
        (
            "{apiVersion: kubescheduler.config.k8s.io/v1, kind: Policy}",
            "kind: got \"Policy\", expected \"KubeSchedulerConfiguration\"",
        ),
        ("", "apiVersion: got nothing, expected \"kubescheduler.config.k8s.io/v1\""),
        ("[1, 2]", "apiVersion: got nothing, expected \"kubescheduler.config.k8s.io/v1\""),
    ];
    for (text, want) in cases {
        assert_eq!(KubeSchedulerConfiguration::from_text(text).unwrap_err().to_string(), want, "{text}");
    }
    for broken in ["a: b: c", "{", "parallelism: 1\nparallelism: 2", "\t- x: [", "a: !!binary ="] {
        let text = format!("{HEAD}{broken}");
        assert!(KubeSchedulerConfiguration::from_text(&text).is_err(), "{broken}");
    }
}

#[test]
fn several_faults_are_reported_together() {
    let error = read("parallelism: 0\npercentageOfNodesToScore: 101").unwrap_err().to_string();
    assert_eq!(error.lines().count(), 2, "{error}");
}

#[test]
fn plugins_that_cannot_run_are_refused() {
    let profile = |plugins: &str| format!("profiles: [{{plugins: {{{plugins}}}}}]");
    let cases = [
        (
            profile("filter: {enabled: [{name: NodeNam}]}"),
            "profile \"default-scheduler\": filter plugin \"NodeNam\" does not exist, did you mean \"NodeName\"?",
        ),
        (
            profile("multiPoint: {enabled: [{name: NoSuch}]}"),
            "profile \"default-scheduler\": multiPoint plugin \"NoSuch\" does not exist",
        ),
        (
            profile("score: {enabled: [{name: NodeName}]}"),
            "profile \"default-scheduler\": plugin \"NodeName\" has no extension point score",
        ),
        (
            profile("filter: {enabled: [{name: NodeName}, {name: NodeName}]}"),
            "profile \"default-scheduler\": plugin \"NodeName\" is enabled twice at filter",
        ),
        (
            profile("multiPoint: {disabled: [{name: '*'}], enabled: [{name: DefaultBinder}]}"),
            "profile \"default-scheduler\": 0 queueSort plugins are enabled, expected exactly one",
        ),
        (
            profile("multiPoint: {disabled: [{name: DefaultBinder}]}"),
            "profile \"default-scheduler\": 0 bind plugins are enabled, expected at least one",
        ),
    ];
    for (body, want) in cases {
        assert_eq!(resolve(&body).expect_err(&body).to_string(), want);
    }
}

#[test]
fn bad_fit_arguments_pass_while_the_plugin_is_off_as_upstream() {
    let body = "profiles: [{plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}, \
                pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Best}}}]}]";
    assert!(resolve(body).is_ok());
}

/// The recorded plugin lists of every golden case with a configuration, where the vectors are at hand.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its data")]
fn recorded_plugin_lists_match() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut n_compared = 0;
    for suite in ["profile-config.json", "new-1.36.json"] {
        let Ok(text) = std::fs::read_to_string(folder.join(suite)) else { continue };
        let suite: serde_json::Value = serde_json::from_str(&text).unwrap();
        for case in suite["cases"].as_array().unwrap().iter().filter(|case| !case["config"].is_null()) {
            let name = &case["name"];
            let effective = KubeSchedulerConfiguration::from_value(&case["config"])
                .and_then(|config| Ok((config.effective_plugins(&InTreeCatalog)?, config)));
            let is_config_error = case["expect"]["result"]["code"] == "ConfigError";
            assert_eq!(effective.is_err(), is_config_error, "{name}: {effective:?}");
            let (Ok((effective, config)), Some(lists)) = (effective, case["expect"]["plugins"].as_object()) else {
                continue;
            };
            let wanted = case["pod"]["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
            let index = config.profiles.iter().position(|profile| profile.scheduler_name == wanted).unwrap();
            for point in ExtensionPoint::ALL {
                let Some(want) = lists.get(point.field()) else { continue };
                let shown = effective[index].at(point).iter().map(|plugin| match point {
                    ExtensionPoint::Score => format!("{plugin}:{}", effective[index].score_weight(plugin)),
                    _ => plugin.clone(),
                });
                assert_eq!(&serde_json::Value::from(shown.collect::<Vec<_>>()), want, "{name} {point}");
                n_compared += 1;
            }
        }
    }
    assert!(n_compared > 0 || !folder.exists(), "no list was compared");
}

mod random {
    //! Documents of every shape: whatever stands in a field, reading it gives a configuration or an error, never a panic.

    use super::KubeSchedulerConfiguration;
    use proptest::prelude::*;
    use scheduler_core::config::profile::InTreeCatalog;
    use serde_json::{Value, json};

    const KEYS: [&str; 30] = [
        "parallelism",
        "profiles",
        "plugins",
        "pluginConfig",
        "name",
        "args",
        "enabled",
        "disabled",
        "weight",
        "filter",
        "multiPoint",
        "score",
        "queueSort",
        "schedulerName",
        "percentageOfNodesToScore",
        "leaderElection",
        "leaseDuration",
        "extenders",
        "managedResources",
        "scoringStrategy",
        "resources",
        "requestedToCapacityRatio",
        "shape",
        "utilization",
        "defaultConstraints",
        "maxSkew",
        "addedAffinity",
        "apiVersion",
        "kind",
        "podMaxBackoffSeconds",
    ];
    const WORDS: [&str; 14] = [
        "NodeResourcesFit",
        "InterPodAffinity",
        "PodTopologySpread",
        "NodeAffinity",
        "VolumeBinding",
        "DynamicResources",
        "PrioritySort",
        "*",
        "",
        "1h",
        "-5s",
        "9999999999999999h",
        "kubescheduler.config.k8s.io/v1",
        "\u{0}é",
    ];

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            prop_oneof![Just(0_i64), Just(-1), Just(101), any::<i64>()].prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop::sample::select(&WORDS[..]).prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 48, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(prop::sample::select(&KEYS[..]), inner, 0..5)
                    .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn reading_never_panics(key in prop::sample::select(&KEYS[..]), field in value(), plugin in prop::sample::select(&WORDS[..]), args in value()) {
            let head = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
            let mut document = head.clone();
            document[key] = field;
            let mut with_args = head;
            with_args["profiles"] = json!([{"pluginConfig": [{"name": plugin, "args": args}]}]);
            for document in [document, with_args] {
                if let Ok(config) = KubeSchedulerConfiguration::from_value(&document) {
                    let _ = config.effective_plugins(&InTreeCatalog);
                }
                let _ = KubeSchedulerConfiguration::from_text(&document.to_string());
            }
        }

        #[test]
        fn reading_any_text_never_panics(text in "\\PC{0,200}") {
            let _ = KubeSchedulerConfiguration::from_text(&text);
        }
    }
}

#[test]
fn plugins_of_pod_groups_may_be_named() {
    let config = read(
        "profiles: [{plugins: {placementGenerate: {enabled: [{name: TopologyPlacementGenerator}]}, \
         placementScore: {enabled: [{name: PodGroupPodsCount, weight: 2}]}, multiPoint: {enabled: [{name: GangScheduling}]}}}]",
    )
    .expect("the names are known");
    let registry = scheduler_core::plugins::registry();
    let options = scheduler_core::engine::Options::default();
    assert!(scheduler_core::engine::Scheduler::new(&config, &registry, options).is_ok());
    let effective = config.effective_plugins(&registry).expect("the scheduler was built from it");
    assert_eq!(effective[0].at(ExtensionPoint::PlacementGenerate), ["TopologyPlacementGenerator"]);
    assert_eq!(effective[0].at(ExtensionPoint::PlacementScore), ["PodGroupPodsCount"]);
}

#[test]
fn the_example_with_an_extender_is_read_with_all_its_fields() {
    let config = KubeSchedulerConfiguration::from_text(include_str!("../../examples/extender-config.yaml"));
    let config = config.expect("it is valid");
    let [extender] = &config.extenders[..] else { panic!("one extender, got {:?}", config.extenders) };
    let verbs = [&*extender.filter_verb, &*extender.prioritize_verb, &*extender.preempt_verb, &*extender.bind_verb];
    assert_eq!((verbs, extender.weight), (["filter", "prioritize", "preempt", ""], 5));
    assert_eq!(extender.http_timeout, jiff::SignedDuration::from_secs(2));
    let tls = extender.tls_config.as_ref().expect("it has TLS settings");
    assert!(extender.enable_https && !tls.insecure && tls.ca_file.ends_with("extender-ca.crt"), "{tls:?}");
    assert!(extender.managed_resources[0].ignored_by_scheduler);
    let refused = config.refuse_extenders().expect_err("it has one").to_string();
    let want =
        r#"extenders[0]: extender "https://gpu-extender.kube-system.svc:8443/scheduler" is not called here, remove it"#;
    assert_eq!(refused, want);
}
