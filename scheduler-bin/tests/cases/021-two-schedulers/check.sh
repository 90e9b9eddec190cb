source "$(dirname "$0")/../lib.sh"

# Each scheduler counts what the other has placed.
second second-scheduler
nodes
apply 2
eventually running theirs-1
apply 3
eventually running mine-2
eventually pending mine-1 "1 Insufficient cpu"
binder() {
  kubectl get events --field-selector "involvedObject.name=$1,reason=Scheduled" -o jsonpath='{.items[*].reportingComponent}'
}
eventually is default-scheduler binder theirs-1
eventually is second-scheduler binder mine-2

# Both want the last room at the same time: whoever comes second waits, or the node refuses it.
settled() {
  local pod phase phases=""
  for pod in race-a race-b; do
    phase=$(get "$pod" '{.status.phase} {.status.reason}')
    [[ $phase != "Pending " ]] || phase="waits $(condition "$pod" reason)"
    phases+="[$phase]"
  done
  case $phases in
    "[Running ][waits Unschedulable]" | "[waits Unschedulable][Running ]") ;;
    "[Running ][Failed OutOfcpu]" | "[Failed OutOfcpu][Running ]") ;;
    *) echo "race-a and race-b are $phases" >&2; return 1 ;;
  esac
}
kubectl delete pods --all --wait >/dev/null
for round in {1..10}; do
  apply 4
  eventually settled
  kubectl delete pods --all --wait >/dev/null
done
