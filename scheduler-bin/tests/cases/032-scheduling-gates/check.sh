source "$(dirname "$0")/../lib.sh"

# A gated pod is not tried; when its last gate goes it is.
nodes
apply 2
eventually is SchedulingGated condition gated reason
[[ -n $(condition gated lastTransitionTime) ]]
has "$(kubectl get pod gated)" SchedulingGated
stays 1 is "" reasons gated
refused "pod gated has non-empty .spec.schedulingGates" kubectl create --raw /api/v1/namespaces/default/pods/gated/binding -f bind.json
remove_gate() { kubectl patch pod gated --type=json -p '[{"op": "remove", "path": "/spec/schedulingGates/0"}]' >/dev/null; }
remove_gate
stays 1 is SchedulingGated condition gated reason
refused "only deletion is allowed, but found new scheduling gate 'example.test/x'" kubectl patch pod free --type=json \
  -p '[{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "example.test/x"}]}]'
remove_gate
eventually running gated
[[ -n $(condition gated lastTransitionTime) ]]
