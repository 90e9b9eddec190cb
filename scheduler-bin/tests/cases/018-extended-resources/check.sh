source "$(dirname "$0")/../lib.sh"

# Extended resources: a limit is a request, zero needs nothing, what a node learns later counts.
nodes
apply 2
apply 3
eventually on one x-2
is 1 get one '{.spec.containers[0].resources.requests.example\.test/widget}'
eventually on zero x-0
eventually pending two "0/2 nodes are available: 2 Insufficient example.test/widget."
kubectl patch node x-0 --subresource=status --type=json -p '[
  {"op": "add", "path": "/status/capacity/example.test~1widget", "value": "4"},
  {"op": "add", "path": "/status/allocatable/example.test~1widget", "value": "4"}]' >/dev/null
eventually on two x-0
before=$(kubectl get pods -o name)
refused "" kubectl create -f bad.yaml
is "$before" kubectl get pods -o name
