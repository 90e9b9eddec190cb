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
