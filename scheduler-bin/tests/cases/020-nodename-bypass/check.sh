source "$(dirname "$0")/../lib.sh"

# Pods that come with a node are nobody's to schedule, but count; a node that does not exist appears nowhere.
second second-scheduler
nodes
apply 2
eventually running pinned-1
ended_or_running() { [[ $(get "$1" '{.status.phase}') == @(Running|Failed) ]]; }
eventually ended_or_running pinned-2
apply 3
if [[ $(get pinned-2 '{.status.phase}') == Failed ]]; then
  eventually running normal
else
  eventually pending normal "1 Insufficient cpu"
fi
for pod in pinned-1 pinned-2 ghost; do
  [[ $(reasons "$pod") != *Schedul* ]]
done
is node/b-1 kubectl get nodes -o name
eventually gone ghost
