source "$(dirname "$0")/../lib.sh"

# Recreate: nothing new while something old is at work. Here the kubelet ends the container at once, and says so; the
# pod that its finalizer keeps is no hindrance then.
nodes
apply 2
pods() {
  kubectl get pods -l app=once -o json |
    jq -r '.items[] | "\(.spec.containers[0].image[-1:]) \(.status.phase) \(.metadata.deletionTimestamp != null)"' | sort | paste -sd';'
}
sets() { kubectl get rs -l app=once -o jsonpath='{range .items[*]}{.spec.replicas}{" "}{end}'; }
eventually is "1 Running false" pods
old=$(kubectl get pods -l app=once -o name)
kubectl set image deploy/once main=registry.example/app:2 >/dev/null
eventually is "1 Succeeded true;2 Running false" pods
kubectl patch "$old" --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null
eventually is "2 Running false" pods

# A pod deleted by hand is replaced at once.
kubectl delete "$(kubectl get pods -l app=once -o name)" --wait=false >/dev/null
eventually is "2 Running false;2 Succeeded true" pods
