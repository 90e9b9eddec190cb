source "$(dirname "$0")/../lib.sh"

# Sixty nodes, each with its own taint: one line, counted.
nodes
apply 2
tail="no new claims to deallocate, preemption: 0/60 nodes are available: 60 Preemption is not helpful for scheduling."
picky="0/60 nodes are available: 60 node(s) had untolerated taint(s). $tail"
giant="0/60 nodes are available: 60 Insufficient cpu. $tail"
eventually pending picky "$picky"
eventually pending giant "$giant"
event() { kubectl get events --field-selector "involvedObject.name=$1,reason=FailedScheduling" -o jsonpath='{.items[0].message}'; }
eventually is "$picky" event picky
eventually is "$giant" event giant
