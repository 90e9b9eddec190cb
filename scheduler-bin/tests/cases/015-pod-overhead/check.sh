source "$(dirname "$0")/../lib.sh"

# A RuntimeClass brings overhead and a node selector.
nodes
apply 2
eventually on fits o-2
eventually on plain o-1
is "500m 64Mi" get fits '{.spec.overhead.cpu} {.spec.overhead.memory}'
kubectl describe node o-2 | grep -qE 'cpu +2 \(100%\)'
refused 'pod rejected: RuntimeClass "absent" not found' apply 3
eventually pending too-big "1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector"
has "$(condition too-big message)" "2 Preemption is not helpful for scheduling"
gone no-class
