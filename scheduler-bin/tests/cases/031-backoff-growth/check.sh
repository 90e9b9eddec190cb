source "$(dirname "$0")/../lib.sh"

# No hot loop for a pod that fits nowhere, and no other pod waits for it.
nodes
apply 2
eventually pending never "Insufficient cpu"
eventually is 1 attempts never
version=$(get never '{.metadata.resourceVersion}')
stays 5 is "$version" get never '{.metadata.resourceVersion}'
for tick in 1 2 3 4 5; do
  kubectl label node bo-1 "tick=$tick" --overwrite >/dev/null
done
stays 2 is 1 attempts never
apply 3
eventually running small
