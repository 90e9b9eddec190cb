//! Each small plugin alone: the rule holds, does not hold, and the field is absent. What recorded decisions hold in
//! whole clusters is held here in one line.

use scheduler_core::testing::{Cluster, NodeBuilder, PodBuilder, node, pod, run_plugin};

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Plugin, what is tried, the pod, what is there, and for each node why it does not do; empty if it does.
type FilterCase = (&'static str, &'static str, PodBuilder, Cluster, &'static [(&'static str, &'static str)]);

fn nodes<const N: usize>(nodes: [NodeBuilder; N]) -> Cluster {
    Cluster::new().nodes(nodes)
}

fn filter_cases() -> Vec<FilterCase> {
    let cordoned = || nodes([node("open"), node("cordoned").unschedulable()]);
    let tainted =
        || nodes([node("clean"), node("hard").taint("k=v:NoSchedule"), node("soft").taint("k=v:PreferNoSchedule")]);
    let disks = || nodes([node("ssd").label("disk", "ssd"), node("hdd").label("disk", "hdd"), node("none")]);
    let sized = || nodes([node("small").cpu("1").memory("1Gi"), node("large").cpu("4").memory("4Gi"), node("none")]);
    let with_port = |ip: &'static str, port: u16| {
        pod("holder").host_port(port).on("n").change(move |pod| pod.host_ports[0].ip = ip.into())
    };
    let features = || nodes([node("new").declared_feature("UserNamespacesHostNetworkSupport"), node("old")]);
    let needing = || pod("p").change(|pod| pod.required_node_features = ["UserNamespacesHostNetworkSupport"].into());
    const UNSCHEDULABLE: &str = "node(s) were unschedulable";
    const TAINT: &str = "node(s) had untolerated taint(s)";
    const AFFINITY: &str = "node(s) didn't match Pod's node affinity/selector";
    const PORTS: &str = "node(s) didn't have free ports for the requested pod ports";
    const NAME: &str = "node(s) didn't match the requested node name";
    const FEATURES: &str = "node(s) didn't match Pod's required features";
    const ANTI: &str = "node(s) didn't match pod anti-affinity rules";
    const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";
    const POD_AFFINITY: &str = "node(s) didn't match pod affinity rules";
    const SPREAD: &str = "node(s) didn't match pod topology spread constraints";
    const NO_KEY: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
    vec![
        ("NodeUnschedulable", "a pod", pod("p"), cordoned(), &[("open", ""), ("cordoned", UNSCHEDULABLE)]),
        (
            "NodeUnschedulable",
            "one that tolerates it",
            pod("p").tolerates("node.kubernetes.io/unschedulable:NoSchedule"),
            cordoned(),
            &[("open", ""), ("cordoned", "")],
        ),
        ("NodeName", "no name", pod("p"), nodes([node("a")]), &[("a", "")]),
        (
            "NodeName",
            "a name",
            pod("p").change(|pod| pod.node_name = Some("a".into())),
            nodes([node("a"), node("b")]),
            &[("a", ""), ("b", NAME)],
        ),
        ("TaintToleration", "no toleration", pod("p"), tainted(), &[("clean", ""), ("hard", TAINT), ("soft", "")]),
        ("TaintToleration", "the same value", pod("p").tolerates("k=v:NoSchedule"), tainted(), &[("hard", "")]),
        ("TaintToleration", "another value", pod("p").tolerates("k=w:NoSchedule"), tainted(), &[("hard", TAINT)]),
        ("TaintToleration", "any value", pod("p").tolerates("k:NoSchedule"), tainted(), &[("hard", "")]),
        ("TaintToleration", "another effect", pod("p").tolerates("k:NoExecute"), tainted(), &[("hard", TAINT)]),
        ("NodeAffinity", "no affinity", pod("p"), disks(), &[("ssd", ""), ("hdd", ""), ("none", "")]),
        (
            "NodeAffinity",
            "a selector",
            pod("p").node_selector("disk", "ssd"),
            disks(),
            &[("ssd", ""), ("hdd", AFFINITY), ("none", AFFINITY)],
        ),
        (
            "NodeAffinity",
            "two terms are alternatives",
            pod("p").node_affinity("disk", &["ssd"]).node_affinity("disk", &["hdd"]),
            disks(),
            &[("ssd", ""), ("hdd", ""), ("none", AFFINITY)],
        ),
        ("NodePorts", "no port", pod("p"), nodes([node("n")]).with(with_port("0.0.0.0", 80)), &[("n", "")]),
        (
            "NodePorts",
            "the port",
            pod("p").host_port(80),
            nodes([node("n")]).with(with_port("0.0.0.0", 80)),
            &[("n", PORTS)],
        ),
        (
            "NodePorts",
            "on one address",
            pod("p").host_port(80),
            nodes([node("n")]).with(with_port("10.0.0.1", 80)),
            &[("n", PORTS)],
        ),
        (
            "NodePorts",
            "another port",
            pod("p").host_port(81),
            nodes([node("n")]).with(with_port("0.0.0.0", 80)),
            &[("n", "")],
        ),
        ("NodeResourcesFit", "asks for nothing", pod("p"), sized(), &[("small", ""), ("large", ""), ("none", "")]),
        (
            "NodeResourcesFit",
            "fits exactly",
            pod("p").cpu("1").memory("1Gi"),
            sized(),
            &[("small", ""), ("large", ""), ("none", "Insufficient cpu, Insufficient memory")],
        ),
        (
            "NodeResourcesFit",
            "one too much",
            pod("p").cpu("1001m"),
            sized(),
            &[("small", "Insufficient cpu"), ("large", "")],
        ),
        (
            "NodeResourcesFit",
            "beside others",
            pod("p").cpu("2"),
            sized().with(pod("tenant").cpu("2500m").on("large")),
            &[("large", "Insufficient cpu")],
        ),
        (
            "NodeResourcesFit",
            "an extended resource",
            pod("p").request("example.com/gpu", "1"),
            nodes([node("gpu").allocatable("example.com/gpu", "1"), node("none")]),
            &[("gpu", ""), ("none", "Insufficient example.com/gpu")],
        ),
        ("NodeResourcesFit", "no room for pods", pod("p"), nodes([node("n").pods(0)]), &[("n", "Too many pods")]),
        ("NodeDeclaredFeatures", "needs nothing", pod("p"), features(), &[("new", ""), ("old", "")]),
        ("NodeDeclaredFeatures", "needs one", needing(), features(), &[("new", ""), ("old", FEATURES)]),
        (
            "InterPodAffinity",
            "affinity",
            pod("p").pod_affinity(ZONE, ("app", "db")),
            nodes([node("a").zone("a"), node("b").zone("b"), node("none")]).with(pod("db").label("app", "db").on("a")),
            &[("a", ""), ("b", POD_AFFINITY), ("none", POD_AFFINITY)],
        ),
        (
            "InterPodAffinity",
            "anti-affinity",
            pod("p").pod_anti_affinity(HOST, ("app", "db")),
            nodes([node("a"), node("b")]).with(pod("db").label("app", "db").on("a")),
            &[("a", ANTI), ("b", "")],
        ),
        (
            "InterPodAffinity",
            "anti-affinity of the other",
            pod("p").label("app", "web"),
            nodes([node("a"), node("b")]).with(pod("db").pod_anti_affinity(HOST, ("app", "web")).on("a")),
            &[("a", EXISTING), ("b", "")],
        ),
        (
            "PodTopologySpread",
            "one too many",
            pod("p").label("app", "web").spread(1, ZONE, ("app", "web")),
            nodes([node("a").zone("a"), node("b").zone("b"), node("none")]).with(pod("w").label("app", "web").on("a")),
            &[("a", SPREAD), ("b", ""), ("none", NO_KEY)],
        ),
    ]
}

#[test]
fn filters_reject_what_they_should_and_nothing_else() {
    let registry = scheduler_core::plugins::registry();
    for (name, what, pod, cluster, wanted) in filter_cases() {
        let plugin = registry.plugin(name, None).expect("in-tree plugins have default arguments");
        let run = run_plugin(&plugin, pod, &cluster).unwrap_or_else(|error| panic!("{name}, {what}: {error}"));
        for (node, reasons) in wanted {
            assert_eq!(run.reasons(node).join(", "), *reasons, "{name}, {what}: node {node}");
            assert_eq!(run.feasible().contains(node), reasons.is_empty(), "{name}, {what}: node {node}");
        }
    }
}

/// Plugin, what is tried, the pod, what is there, and the normalised score of each node.
type ScoreCase = (&'static str, &'static str, PodBuilder, Cluster, &'static [(&'static str, i64)]);

fn score_cases() -> Vec<ScoreCase> {
    let halves = || {
        nodes([node("empty").cpu("4").memory("4Gi"), node("half").cpu("4").memory("4Gi")])
            .with(pod("t").cpu("2").memory("2Gi").on("half"))
    };
    let soft = || {
        nodes([
            node("clean"),
            node("one").taint("a:PreferNoSchedule"),
            node("two").taint("a:PreferNoSchedule").taint("b:PreferNoSchedule"),
        ])
    };
    vec![
        (
            "NodeResourcesFit",
            "the emptier is better",
            pod("p").cpu("1").memory("1Gi"),
            halves(),
            &[("empty", 75), ("half", 25)],
        ),
        ("TaintToleration", "soft taints", pod("p"), soft(), &[("clean", 100), ("one", 50), ("two", 0)]),
        (
            "TaintToleration",
            "tolerated ones",
            pod("p").tolerates("b:PreferNoSchedule"),
            soft(),
            &[("clean", 100), ("one", 0), ("two", 0)],
        ),
        (
            "NodeAffinity",
            "weights",
            pod("p").preferred_node_affinity(1, "disk", &["ssd"]).preferred_node_affinity(3, ZONE, &["z"]),
            nodes([
                node("a").label("disk", "ssd"),
                node("b").zone("z"),
                node("c").label("disk", "ssd").zone("z"),
                node("d"),
            ]),
            &[("a", 25), ("b", 75), ("c", 100), ("d", 0)],
        ),
        (
            "ImageLocality",
            "holds the image",
            pod("p").image("app:1"),
            nodes([node("holds").image("app:1", 1 << 30), node("lacks")]),
            &[("holds", 50), ("lacks", 0)],
        ),
        (
            "InterPodAffinity",
            "near a friend, far from a foe",
            pod("p").preferred_pod_affinity(10, HOST, ("app", "friend")).preferred_pod_anti_affinity(
                10,
                HOST,
                ("app", "foe"),
            ),
            nodes([node("friend"), node("neither"), node("foe")])
                .pods([pod("f").label("app", "friend").on("friend"), pod("e").label("app", "foe").on("foe")]),
            &[("friend", 100), ("neither", 50), ("foe", 0)],
        ),
        (
            "PodTopologySpread",
            "the emptier domain",
            pod("p").label("app", "web").spread_softly(1, HOST, ("app", "web")),
            nodes([node("none"), node("one")]).with(pod("w").label("app", "web").on("one")),
            &[("none", 100), ("one", 0)],
        ),
    ]
}

#[test]
fn scores_rank_as_they_should() {
    let registry = scheduler_core::plugins::registry();
    for (name, what, pod, cluster, wanted) in score_cases() {
        let plugin = registry.plugin(name, None).expect("in-tree plugins have default arguments");
        let run = run_plugin(&plugin, pod, &cluster).unwrap_or_else(|error| panic!("{name}, {what}: {error}"));
        assert_eq!(run.scores(), wanted, "{name}, {what}");
    }
}
