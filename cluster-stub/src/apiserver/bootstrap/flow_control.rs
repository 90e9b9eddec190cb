//! Priority levels and flow schemas, as objects. Upstream v1.36.2: apiserver/pkg/apis/flowcontrol/bootstrap/default.go.

use serde_json::{Value, json};

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// Name, shares, lendable percent, queues and hand size; no queues means that what is too much is rejected.
const LEVELS: &[(&str, u32, u32, Option<(u32, u32)>)] = &[
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, Some((128, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("node-high", 40, 25, Some((64, 6))),
    ("system", 30, 33, Some((64, 6))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
];

enum Rules {
    Everything,
    Probes,
    /// Writes of leases.
    Leases,
    /// Nodes and their leases.
    Nodes,
}

struct Schema {
    name: &'static str,
    level: &'static str,
    precedence: u32,
    distinguisher: &'static str,
    subjects: &'static [(&'static str, &'static str)],
    rules: Rules,
}

const EVERYBODY: &[(&str, &str)] = &[("Group", "system:unauthenticated"), ("Group", "system:authenticated")];
const NODES: &[(&str, &str)] = &[("Group", "system:nodes")];
const KUBE_SYSTEM: (&str, &str) = ("ServiceAccount", "*");
const MANAGER: (&str, &str) = ("User", "system:kube-controller-manager");
const SCHEDULER: (&str, &str) = ("User", "system:kube-scheduler");

const fn schema(
    name: &'static str,
    level: &'static str,
    precedence: u32,
    distinguisher: &'static str,
    subjects: &'static [(&'static str, &'static str)],
    rules: Rules,
) -> Schema {
    Schema { name, level, precedence, distinguisher, subjects, rules }
}

const SCHEMAS: &[Schema] = &[
    schema("exempt", "exempt", 1, "", &[("Group", "system:masters")], Rules::Everything),
    schema("probes", "exempt", 2, "", EVERYBODY, Rules::Probes),
    schema(
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        &[MANAGER, SCHEDULER, KUBE_SYSTEM],
        Rules::Leases,
    ),
    schema("system-node-high", "node-high", 400, "ByUser", NODES, Rules::Nodes),
    schema("system-nodes", "system", 500, "ByUser", NODES, Rules::Everything),
    schema("kube-controller-manager", "workload-high", 800, "ByNamespace", &[MANAGER], Rules::Everything),
    schema("kube-scheduler", "workload-high", 800, "ByNamespace", &[SCHEDULER], Rules::Everything),
    schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", &[KUBE_SYSTEM], Rules::Everything),
    schema(
        "service-accounts",
        "workload-low",
        9000,
        "ByUser",
        &[("Group", "system:serviceaccounts")],
        Rules::Everything,
    ),
    schema("global-default", "global-default", 9900, "ByUser", EVERYBODY, Rules::Everything),
    schema("catch-all", "catch-all", 10_000, "ByUser", EVERYBODY, Rules::Everything),
];

/// All PriorityLevelConfigurations.
pub(super) fn priority_levels() -> Vec<Value> {
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let limited = LEVELS.iter().map(|(name, shares, lendable, queues)| {
        let response = match queues {
            None => json!({"type": "Reject"}),
            Some((queues, hand)) => json!({
                "type": "Queue",
                "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50},
            }),
        };
        let limited =
            json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
        object("PriorityLevelConfiguration", name, json!({"type": "Limited", "limited": limited}))
    });
    limited.chain([object("PriorityLevelConfiguration", "exempt", exempt)]).collect()
}

/// All FlowSchemas. Each has a status: its priority level exists.
pub(super) fn flow_schemas(now: &str) -> Vec<Value> {
    SCHEMAS
        .iter()
        .map(|schema| {
            let (resources, paths) = schema.rules.parts();
            let mut rules = json!({"subjects": schema.subjects.iter().map(subject).collect::<Vec<_>>()});
            for (key, value) in [("resourceRules", resources), ("nonResourceRules", paths)] {
                if !value.is_empty() {
                    rules[key] = json!(value);
                }
            }
            let mut spec = json!({
                "priorityLevelConfiguration": {"name": schema.level},
                "matchingPrecedence": schema.precedence,
                "rules": [rules],
            });
            if !schema.distinguisher.is_empty() {
                spec["distinguisherMethod"] = json!({"type": schema.distinguisher});
            }
            let mut object = object("FlowSchema", schema.name, spec);
            let level = schema.level;
            object["status"] = json!({"conditions": [{
                "type": "Dangling",
                "status": "False",
                "reason": "Found",
                "message": format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\" and it exists"),
                "lastTransitionTime": now,
            }]});
            object
        })
        .collect()
}

impl Rules {
    fn parts(&self) -> (Vec<Value>, Vec<Value>) {
        let resources = |verbs: &[&str], group: &str, resources: &[&str], cluster_scope: bool| {
            let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
            if cluster_scope {
                rule["clusterScope"] = json!(true);
            }
            rule
        };
        let paths = |verbs: &[&str], paths: &[&str]| json!({"verbs": verbs, "nonResourceURLs": paths});
        let leases = "coordination.k8s.io";
        match self {
            Rules::Everything => (vec![resources(&["*"], "*", &["*"], true)], vec![paths(&["*"], &["*"])]),
            Rules::Probes => (vec![], vec![paths(&["get"], &["/healthz", "/readyz", "/livez"])]),
            Rules::Leases => (vec![resources(&["get", "create", "update"], leases, &["leases"], false)], vec![]),
            Rules::Nodes => {
                let nodes = resources(&["*"], "", &["nodes", "nodes/status"], true);
                (vec![nodes, resources(&["*"], leases, &["leases"], false)], vec![])
            }
        }
    }
}

fn subject((kind, name): &(&str, &str)) -> Value {
    match *kind {
        "Group" => json!({"kind": kind, "group": {"name": name}}),
        "User" => json!({"kind": kind, "user": {"name": name}}),
        _ => json!({"kind": kind, "serviceAccount": {"name": name, "namespace": "kube-system"}}),
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}},
    });
    object["spec"] = spec;
    object
}
