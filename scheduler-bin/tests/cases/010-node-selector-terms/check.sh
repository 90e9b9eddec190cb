source "$(dirname "$0")/../lib.sh"

# Terms are alternatives, their expressions are not; an empty term matches nothing.
nodes
apply 2
eventually on and-in-one-term ns-c
eventually on or-of-terms ns-a ns-b ns-c
eventually on empty-plus-k2 ns-b ns-c
eventually on field-d ns-d
eventually on selector-and-affinity ns-c
eventually on notin-missing-ok ns-d
eventually on empty-value-in ns-e
eventually on empty-value-selector ns-e
eventually pending empty-term "0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector."
eventually pending field-a-and-k2 "0/5 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 4 node(s) didn't satisfy plugin(s) [NodeAffinity]."
