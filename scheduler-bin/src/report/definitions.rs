//! What each figure of a report means; the HTML report prints them, `--fail-if` takes their names.

/// Name, unit, meaning.
pub(crate) const DEFINITIONS: [(&str, &str, &str); 20] = [
    ("nodes", "nodes", "Nodes at the end of the run."),
    ("pods", "pods", "Pods that came during the run; those that had a node before it are not counted."),
    ("scheduled", "pods", "Pods that got a node, whatever became of them later."),
    ("unschedulable", "pods", "Pods that never got a node: they wait at the end, or were deleted while they waited."),
    ("pending", "pods", "Pods that wait for a node at the end."),
    (
        "otherSchedulers",
        "pods",
        "Pods without a node that name a scheduler which no profile of the configuration serves; they count nowhere else.",
    ),
    ("left", "pods", "Pods that ended or were deleted while they had a node."),
    ("preemptions", "pods", "Pods that were evicted to make room for pods of higher priority."),
    ("displaced", "pods", "Pods that lost their node because it was drained, failed or deleted."),
    ("attempts", "attempts", "Scheduling cycles: each looks at one pod once."),
    (
        "utilisation.RESOURCE",
        "share",
        "Requested by pods on nodes, divided by allocatable, all nodes together, at the end.",
    ),
    ("meanUtilisation.RESOURCE", "share", "The same as a mean over virtual time; that of the end when no time passed."),
    (
        "fragmentation.RESOURCE",
        "share",
        "Of the free amount of a resource, the share that lies on nodes where the median pending request does not fit. The median is \
         taken for each resource by itself over the pods that wait; it does not fit where any of these amounts exceeds what is free. \
         0 when no pod waits.",
    ),
    (
        "imbalance.RESOURCE",
        "share",
        "Standard deviation, over the nodes that offer the resource, of each node's utilisation at the end. 0 means that all are \
         equally full.",
    ),
    (
        "wait.mean, wait.median, wait.p90, wait.p99, wait.max",
        "seconds",
        "Virtual time from a pod's creation to its binding, of pods that got a node. Quantiles are rounded up by at most two percent.",
    ),
    ("nodeHours", "hours", "Nodes times virtual time."),
    ("cost", "currency", "Node hours times the prices given with --price."),
    ("costPerHour", "currency", "What the nodes of the end cost an hour."),
    (
        "engineMillis",
        "milliseconds",
        "Real time spent in the scheduling engine; reading input and writing reports are not counted.",
    ),
    ("decisionsPerSecond", "1/s", "Attempts divided by that time."),
];
