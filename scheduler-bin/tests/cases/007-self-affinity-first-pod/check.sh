source "$(dirname "$0")/../lib.sh"

# The first pod of a group with affinity to itself is let in; the others follow; a node without the key never serves.
nodes
apply 2
eventually running decoy
apply 3
eventually is 3 placed together
where together "f-a=3" || where together "f-b=3"
eventually pending never "0/3 nodes are available: 3 node(s) didn't match pod affinity rules. no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
