source "$(dirname "$0")/../lib.sh"

# One pod after the other; a broken revision is cleared by hand.
nodes
apply 2
# pods: ordinal, phase and revision of each.
pods() {
  kubectl get pods -l app=ord --sort-by=.metadata.name \
    -o jsonpath='{range .items[*]}{.metadata.name}{" "}{.status.phase}{" "}{.metadata.labels.controller-revision-hash}{";"}{end}'
}
set() { kubectl get sts ord -o jsonpath="$1"; }
eventually is 3 set '{.status.readyReplicas}'
good=$(set '{.status.updateRevision}')
good_pods="ord-0 Running $good;ord-1 Running $good;ord-2 Running $good;"
eventually is "$good_pods" pods
# Each was made after the one before was ready.
order() {
  kubectl get pods -l app=ord -o json |
    jq '[.items | sort_by(.metadata.name)[] | [.metadata.creationTimestamp, (.status.conditions[] | select(.type == "Ready").lastTransitionTime)]] | flatten | . == sort'
}
is true order
kubectl apply -f broken.yaml >/dev/null
kept="ord-0 Running $good;ord-1 Running $good;"
stuck() {
  local broken
  broken=$(set '{.status.updateRevision}')
  [[ $broken != "$good" ]] && same "${kept}ord-2 Pending $broken;" "$(pods)"
}
eventually stuck
stays 2 stuck
broken=$(set '{.status.updateRevision}')
refused "Waiting for 1 pods to be ready" kubectl rollout status sts/ord --timeout=1s
apply 2
eventually is "$good 2" set '{.status.updateRevision} {.status.updatedReplicas}'
stays 3 is "${kept}ord-2 Pending $broken;" pods
kubectl delete pod ord-2 >/dev/null
eventually is "$good_pods" pods
eventually is "$good $good 3" set '{.status.currentRevision} {.status.updateRevision} {.status.readyReplicas}'
# The first revision is numbered anew, not made again.
is "2 3" kubectl get controllerrevisions -l app=ord --sort-by=.revision -o jsonpath='{.items[*].revision}'
is "$good" kubectl get controllerrevisions -l app=ord --sort-by=.revision -o jsonpath='{.items[1].metadata.name}'
kubectl scale sts ord --replicas=1 >/dev/null
eventually is "ord-0 Running $good;" pods
deleted() { kubectl get events --field-selector involvedObject.name=ord,reason=SuccessfulDelete -o jsonpath='{range .items[*]}{.message}{"\n"}{end}'; }
both() { has "$(deleted)" "Delete Pod ord-2 in StatefulSet ord successful" && has "$(deleted)" "Delete Pod ord-1 in StatefulSet ord successful"; }
eventually both
