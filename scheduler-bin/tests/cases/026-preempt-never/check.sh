source "$(dirname "$0")/../lib.sh"

# preemptionPolicy Never: first in the queue, but evicts nobody.
nodes
apply 2
eventually running runner
apply 3
eventually pending polite "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
apply 4
eventually pending mid-waits "Insufficient cpu"
running runner
is "" get polite '{.status.nominatedNodeName}'
is "1000 Never" get polite '{.spec.priority} {.spec.preemptionPolicy}'
refused "must not be provided in pod spec; priority admission controller computed" kubectl create -f bad.yaml
refused "maximum allowed value of a user defined priority is 1000000000" kubectl create priorityclass above --value=1000000001
kubectl create priorityclass lowest --value=-2147483648 >/dev/null
kubectl delete pod runner --wait=false >/dev/null
eventually running polite
stays 1 pending mid-waits "Insufficient cpu"
