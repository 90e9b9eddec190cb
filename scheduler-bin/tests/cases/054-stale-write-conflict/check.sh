source "$(dirname "$0")/../lib.sh"

# A write from an old version fails, one without a version does not.
nodes
old=$(kubectl get cm cw -o json)
n() { kubectl get cm cw -o jsonpath='{.data.n}'; }
kubectl patch cm cw -p '{"data":{"n":"1"}}' >/dev/null
replace() { kubectl replace -f - <<<"$1"; }
stale='Operation cannot be fulfilled on configmaps "cw": the object has been modified; please apply your changes to the latest version and try again'
refused "$stale" replace "$old"
is 1 n
replace "$(jq 'del(.metadata.resourceVersion)' <<<"$old")" >/dev/null
is 0 n
refused "the object has been modified" kubectl annotate cm cw x=y --resource-version=1

# A pod is bound once.
apply 2
bind() { kubectl create --raw /api/v1/namespaces/default/pods/bindme/binding -f "$1"; }
has "$(bind bind1.json)" '"status":"Success"'
assigned='Operation cannot be fulfilled on pods/binding "bindme": pod bindme is already assigned to node "sc-1"'
refused "$assigned" bind bind2.json
refused "$assigned" bind bind1.json
eventually on bindme sc-1
same True "$(condition bindme status)"
refused "Forbidden: pod updates may not change fields other than" kubectl patch pod bindme --type=merge -p '{"spec":{"nodeName":"sc-2"}}'

# Status is written through its subresource only, and nothing else is.
apply 3
dep() { kubectl get deploy dep -o jsonpath="$1"; }
eventually is 1 dep '{.status.availableReplicas}'
has "$(kubectl patch deploy dep --type=merge -p '{"status":{"replicas":99}}')" "patched (no change)"
is 1 dep '{.status.replicas}'
generation=$(dep '{.metadata.generation}')
kubectl patch deploy dep --subresource=status --type=merge -p '{"spec":{"replicas":9},"status":{"observedGeneration":0}}' >/dev/null
is "1 $generation" dep '{.spec.replicas} {.metadata.generation}'
eventually is "$generation" dep '{.status.observedGeneration}'

# Patches at the same time do not lose each other's work.
patches=()
for k in {1..20}; do
  kubectl patch cm cw --type=merge -p "{\"data\":{\"k-$k\":\"1\"}}" >/dev/null &
  patches+=($!)
done
wait "${patches[@]}"
is 20 jq '[.data | keys[] | select(startswith("k-"))] | length' <<<"$(kubectl get cm cw -o json)"
