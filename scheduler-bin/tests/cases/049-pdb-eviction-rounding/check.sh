source "$(dirname "$0")/../lib.sh"

# Percentages of budgets round up; eviction keeps to them, deletion does not.
nodes
apply 2
available() { kubectl get deploy seven eight locked -o jsonpath='{.items[*].status.availableReplicas}'; }
eventually is "7 7 1" available
apply 3
budget() { kubectl get pdb "$1" -o jsonpath='{.status.expectedPods} {.status.desiredHealthy} {.status.disruptionsAllowed}'; }
eventually is "7 4 3" budget seven-maxun
eventually is "7 4 3" budget eight-minav
eventually is "1 1 0" budget locked
is "policy v1 Eviction create" jq -r '.resources[] | select(.name == "pods/eviction") | "\(.group) \(.version) \(.kind) \(.verbs | join(","))"' <<<"$(kubectl get --raw /api/v1)"
locked=$(kubectl get pods -l app=locked -o name)
drained=$(kubectl drain ev-1 --ignore-daemonsets --timeout=15s 2>&1) && exit 1
has "$drained" "error when evicting pods/\"${locked#pod/}\" -n \"default\" (will retry after 5s): Cannot evict pod as it would violate the pod's disruption budget."
has "$drained" "global timeout reached: 15s"
running "${locked#pod/}"
where locked "ev-1=1"
eventually where seven "ev-2=7"
eventually where eight "ev-2=7"
eviction() {
  kubectl create --raw "/api/v1/namespaces/default/$1/eviction" -f - <<<"{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"${1#*/}\"}}"
}
refused "Cannot evict pod as it would violate the pod's disruption budget." eviction "pods/${locked#pod/}"
# As many as the budget allows at once, and not one more.
eventually is "7 4 3" budget seven-maxun
kubectl cordon ev-2 >/dev/null
mapfile -t pods < <(kubectl get pods -l app=seven -o jsonpath='{range .items[*]}pods/{.metadata.name}{"\n"}{end}')
for pod in "${pods[@]:0:3}"; do eviction "$pod" >/dev/null; done
refused "Cannot evict pod" eviction "${pods[3]}"
kubectl uncordon ev-2 >/dev/null
kubectl delete pdb locked >/dev/null
kubectl drain ev-1 --ignore-daemonsets --timeout=60s >/dev/null 2>&1
eventually where locked "-=1"
waiting=$(kubectl get pods -l app=locked -o jsonpath='{.items[0].metadata.name}')
eventually pending "$waiting" "1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable"
