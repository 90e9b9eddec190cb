source "$(dirname "$0")/../lib.sh"

# A running pod's anti-affinity keeps a newcomer out that has none itself; its deletion lets it in.
nodes
apply 2
eventually running guard
apply 3
eventually running other
eventually pending web "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
kubectl delete pod guard --wait=false >/dev/null
eventually running web
