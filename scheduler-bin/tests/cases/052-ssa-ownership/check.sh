source "$(dirname "$0")/../lib.sh"

# Each field has an owner.
ssa() { kubectl apply --server-side --field-manager="$1" -f "$2" "${@:3}"; }
data() { kubectl get cm "$1" -o json | jq -c .data; }
version() { kubectl get "$@" -o jsonpath='{.metadata.generation} {.metadata.resourceVersion}'; }
owners() {
  kubectl get cm "$1" --show-managed-fields -o json |
    jq -r '.metadata.managedFields[] | "\(.manager) \(.operation) \(.fieldsV1["f:data"] // {} | keys - ["."] | join(","))"' | sort | paste -sd';'
}
ssa m1 m1.yaml >/dev/null
ssa m1 m1b.yaml >/dev/null
is '{"a":"9","b":"2"}' data ssa
before=$(version cm ssa)
refused 'Apply failed with 1 conflict: conflict with "m1": .data.b' ssa m2 m2.yaml
is "$before" version cm ssa
ssa m2 m2.yaml --force-conflicts --dry-run=server >/dev/null
is "$before" version cm ssa
ssa m2 m2.yaml --force-conflicts >/dev/null
is '{"a":"9","b":"3"}' data ssa
is "m1 Apply f:a;m2 Apply f:b" owners ssa
ssa m1 m1c.yaml >/dev/null
is '{"b":"3","c":"1"}' data ssa
before=$(version cm ssa)
ssa m1 m1c.yaml >/dev/null
is "$before" version cm ssa
[[ $(kubectl get cm ssa -o yaml) != *managedFields* ]]

# What kubectl applied from its own side goes with it.
kubectl apply -f csa1.yaml >/dev/null
kubectl apply --server-side -f csa2.yaml >/dev/null
is '{"k":"v"}' data csa
is "kubectl Apply f:k;kubectl-last-applied Apply " owners csa

# A writer of a subresource owns what it wrote.
kubectl apply --server-side -f input.yaml >/dev/null
kubectl scale deploy own --replicas=3 >/dev/null
refused 'conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas' kubectl apply --server-side -f input.yaml
is 3 kubectl get deploy own -o jsonpath='{.spec.replicas}'
