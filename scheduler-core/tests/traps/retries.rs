//! A pod is tried again when, and only when, something changed that could make it fit: every attempt is counted.

use scheduler_core::engine::Change;
use scheduler_core::model::{Object, Pod};
use scheduler_core::testing::{Cluster, NodeBuilder, PodBuilder, node, pod};
use serde_json::json;

use super::host::{Host, claim};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// A pod that does not fit, and what then happens.
struct Case {
    rejected_by: &'static str,
    cluster: Cluster,
    pod: PodBuilder,
    /// What happens, and whether it may help.
    events: Vec<(&'static str, Change, bool)>,
}

fn applied(object: impl Into<Object>) -> Change {
    Change::Applied(object.into())
}

fn deleted(object: impl Into<Object>) -> Change {
    Change::Deleted(object.into())
}

fn n1() -> NodeBuilder {
    node("n1").cpu("1").memory("1Gi")
}

fn newer(builder: PodBuilder) -> Pod {
    builder.change(|pod| pod.resource_version = "2".into()).build()
}

fn resources() -> Case {
    let tenant = pod("tenant").cpu("1").on("n1");
    let bystander = pod("bystander").label("a", "1").on("n1");
    Case {
        rejected_by: "NodeResourcesFit",
        cluster: Cluster::new().with(n1()).with(tenant.clone()).with(bystander.clone()),
        pod: pod("p").cpu("2").memory("2Gi"),
        events: vec![
            ("a label of the node", applied(n1().label("x", "y")), false),
            ("a taint of the node", applied(n1().taint("x:NoSchedule")), false),
            ("more of another resource", applied(n1().allocatable("example.com/gpu", "1")), false),
            ("more, but not enough", applied(n1().cpu("1500m").memory("4Gi")), false),
            ("enough of one resource", applied(n1().cpu("4")), false),
            ("enough of all", applied(n1().cpu("4").memory("4Gi")), true),
            ("a new node that is too small", applied(node("n2").cpu("1")), false),
            ("a new node that is large enough", applied(node("n2").cpu("2").memory("2Gi")), true),
            ("a pod that goes", deleted(tenant), true),
            ("another pod's labels", applied(newer(bystander.label("b", "2"))), false),
            ("another pod comes", applied(pod("late").cpu("1").on("n1")), false),
            ("the pod asks for less", applied(newer(pod("p").cpu("1").memory("1Gi"))), true),
            ("the pod's labels", applied(newer(pod("p").cpu("2").memory("2Gi").label("x", "y"))), false),
        ],
    }
}

fn taints() -> Case {
    let tainted = n1().taint("k=v:NoSchedule");
    let tenant = pod("tenant").on("n1");
    Case {
        rejected_by: "TaintToleration",
        cluster: Cluster::new().with(tainted.clone()).with(tenant.clone()),
        pod: pod("p"),
        events: vec![
            ("the taint goes", applied(n1()), true),
            ("another taint instead", applied(n1().taint("other:NoExecute")), false),
            ("a soft taint instead", applied(n1().taint("k=v:PreferNoSchedule")), true),
            ("a label of the node", applied(tainted.clone().label("x", "y")), false),
            ("more of everything", applied(tainted.cpu("64")), false),
            ("a new node with the taint", applied(node("n2").taint("k=v:NoSchedule")), false),
            ("a new node without", applied(node("n2")), true),
            ("a pod that goes", deleted(tenant), false),
            ("the pod tolerates it", applied(newer(pod("p").tolerates("k=v:NoSchedule"))), true),
        ],
    }
}

fn cordon() -> Case {
    Case {
        rejected_by: "NodeUnschedulable",
        cluster: Cluster::new().with(n1().unschedulable()),
        pod: pod("p"),
        events: vec![
            ("uncordoned", applied(n1()), true),
            ("a label of the node", applied(n1().unschedulable().label("x", "y")), false),
            ("a new node that is cordoned", applied(node("n2").unschedulable()), false),
            ("a new node", applied(node("n2")), true),
        ],
    }
}

fn node_affinity() -> Case {
    let tenant = pod("tenant").on("n1");
    Case {
        rejected_by: "NodeAffinity",
        cluster: Cluster::new().with(n1().label("disk", "hdd")).with(tenant.clone()),
        pod: pod("p").node_affinity("disk", &["ssd"]),
        events: vec![
            ("the label that is asked for", applied(n1().label("disk", "ssd")), true),
            ("another value", applied(n1().label("disk", "tape")), false),
            ("another label", applied(n1().label("disk", "hdd").label("x", "y")), false),
            ("more of everything", applied(n1().label("disk", "hdd").cpu("64")), false),
            ("a new node without the label", applied(node("n2")), false),
            ("a new node with it", applied(node("n2").label("disk", "ssd")), true),
            ("a pod that goes", deleted(tenant), false),
        ],
    }
}

fn ports() -> Case {
    let holder = pod("holder").host_port(80).on("n1");
    let other = pod("other").host_port(81).on("n1");
    Case {
        rejected_by: "NodePorts",
        cluster: Cluster::new().with(n1()).with(holder.clone()).with(other.clone()),
        pod: pod("p").host_port(80),
        events: vec![
            ("the pod with the port goes", deleted(holder), true),
            ("a pod with another port goes", deleted(other), false),
            ("a label of the node", applied(n1().label("x", "y")), false),
            ("a new node", applied(node("n2")), true),
        ],
    }
}

fn pod_affinity() -> Case {
    let bystander = pod("bystander").label("app", "a").on("n1");
    Case {
        rejected_by: "InterPodAffinity",
        cluster: Cluster::new().with(n1().zone("z")).with(bystander.clone()),
        pod: pod("p").pod_affinity(ZONE, ("app", "db")),
        events: vec![
            ("a pod that is looked for", applied(pod("db").label("app", "db").on("n1")), true),
            ("a pod that is not", applied(pod("web").label("app", "web").on("n1")), false),
            ("one without a node", applied(pod("db").label("app", "db").scheduler_name("another")), false),
            (
                "another pod's labels change to match",
                applied(newer(pod("bystander").label("app", "db").on("n1"))),
                true,
            ),
            ("a pod goes", deleted(bystander), false),
            (
                "the pod's own labels",
                applied(newer(pod("p").label("app", "db").pod_affinity(ZONE, ("app", "db")))),
                true,
            ),
        ],
    }
}

fn pod_anti_affinity() -> Case {
    let web = pod("web").label("app", "web").on("n1");
    let guard = pod("guard").label("app", "guard").pod_anti_affinity(HOST, ("app", "p")).on("n2");
    let bystander = pod("bystander").label("app", "x").on("n1");
    Case {
        rejected_by: "InterPodAffinity",
        cluster: Cluster::new()
            .with(n1())
            .with(node("n2"))
            .with(web.clone())
            .with(guard.clone())
            .with(bystander.clone()),
        pod: pod("p").label("app", "p").pod_anti_affinity(HOST, ("app", "web")),
        events: vec![
            ("the pod that is avoided goes", deleted(web), true),
            ("the pod that avoids it goes", deleted(guard), true),
            ("another pod goes", deleted(bystander), false),
            ("another pod comes", applied(pod("late").label("app", "y").on("n1")), false),
        ],
    }
}

fn spread() -> Case {
    let web = |name: &str, node: &str| pod(name).label("app", "web").on(node);
    let tainted = node("n2").zone("b").taint("t:NoSchedule");
    Case {
        rejected_by: "PodTopologySpread",
        cluster: Cluster::new().with(n1().zone("a")).with(tainted).with(web("w1", "n1")).with(pod("db").on("n1")),
        pod: pod("p").label("app", "web").spread(1, ZONE, ("app", "web")),
        events: vec![
            ("a pod that counts goes", deleted(web("w1", "n1")), true),
            ("a pod that does not count goes", deleted(pod("db").on("n1")), false),
            ("a pod that counts comes", applied(web("w2", "n2")), true),
            ("a pod that does not count comes", applied(pod("late").on("n2")), false),
            ("a node of a new zone", applied(node("n3").zone("c")), true),
            ("a node without the key", applied(node("n3").taint("t:NoSchedule")), false),
        ],
    }
}

fn features() -> Case {
    Case {
        rejected_by: "NodeDeclaredFeatures",
        cluster: Cluster::new().with(n1()),
        pod: pod("p").change(|pod| pod.required_node_features = ["UserNamespacesHostNetworkSupport"].into()),
        events: vec![
            ("the node declares it", applied(n1().declared_feature("UserNamespacesHostNetworkSupport")), true),
            // As upstream, which does not compare the names.
            ("the node declares another", applied(n1().declared_feature("Other")), true),
            ("a label of the node", applied(n1().label("x", "y")), false),
        ],
    }
}

fn claims() -> Case {
    let named = |name: &str, namespace: &str| {
        claim(
            &json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}),
        )
    };
    Case {
        rejected_by: "VolumeRestrictions",
        cluster: Cluster::new().with(n1()),
        pod: pod("p").claim("c"),
        events: vec![
            ("the claim is made", applied(named("c", "default")), true),
            ("a claim of another namespace", applied(named("c", "other")), false),
            ("a label of the node", applied(n1().label("x", "y")), false),
        ],
    }
}

#[test]
fn a_pod_is_retried_when_and_only_when_it_may_fit_now() {
    let makers: [fn() -> Case; 10] =
        [resources, taints, cordon, node_affinity, ports, pod_affinity, pod_anti_affinity, spread, features, claims];
    let mut wrong = Vec::new();
    for make in makers {
        for at in 0..make().events.len() {
            let Case { rejected_by, cluster, pod, mut events } = make();
            let mut host = Host::new(&cluster);
            host.apply(pod);
            assert_eq!(host.n_attempts("p"), 1, "{rejected_by}");
            let rejectors = host.scheduler.queue().get("p").map(|entity| entity.unschedulable_plugins.clone());
            assert!(rejectors.as_ref().is_some_and(|rejectors| rejectors.contains(&rejected_by)), "{rejectors:?}");
            host.at(120);
            assert_eq!(host.n_attempts("p"), 0, "{rejected_by}: nothing happened");
            let (what, change, helps) = events.swap_remove(at);
            let now = scheduler_core::model::Timestamp::from_secs(120);
            host.scheduler.handle(change, now);
            if host.n_attempts("p") != usize::from(helps) {
                wrong.push(format!("{rejected_by}: {what}: wanted {} attempt", usize::from(helps)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
