source "$(dirname "$0")/../lib.sh"

# matchLabelKeys limits the count to the pod's own revision.
nodes
apply 2
eventually running old-1 old-2
apply 3
eventually where new- "k-a=1 k-b=1"
apply 4
eventually where nokey- "k-b=2"
