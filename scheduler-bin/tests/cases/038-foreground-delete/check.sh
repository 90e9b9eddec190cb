source "$(dirname "$0")/../lib.sh"

# An owner deleted in the foreground goes after its dependents.
nodes
apply 2
n_running() { kubectl get pods -l app=fore --field-selector status.phase=Running -o name | wc -l; }
eventually is 2 n_running
pods=$(kubectl get pods -l app=fore -o name)
kubectl delete deploy fore --cascade=foreground --wait=false >/dev/null
# dying: kind, finalizers and whether it is being deleted, of all that is left.
dying() {
  kubectl get deploy,rs,pods -l app=fore -o json |
    jq -r '.items[] | "\(.kind) \(.metadata.finalizers // [] | join(",")) \(.metadata.deletionTimestamp != null)"' | sort | paste -sd';'
}
held="Deployment foregroundDeletion true;Pod example.test/hold true;Pod example.test/hold true;ReplicaSet foregroundDeletion true"
eventually is "$held" dying
stays 3 is "$held" dying
is 2 kubectl get rs -l app=fore -o jsonpath='{.items[0].spec.replicas}'
eventually is 0 kubectl get rs -l app=fore -o jsonpath='{.items[0].status.replicas}'
is "$pods" kubectl get pods -l app=fore -o name
release() { kubectl patch "$1" --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null; }
release "$(sed -n 1p <<<"$pods")"
half="Deployment foregroundDeletion true;Pod example.test/hold true;ReplicaSet foregroundDeletion true"
eventually is "$half" dying
stays 2 is "$half" dying
release "$(sed -n 2p <<<"$pods")"
eventually is "" dying

# In the background the owner goes first. An owner of the right name and the wrong UID is none.
apply 3
uid=$(kubectl get configmap parent -o jsonpath='{.metadata.uid}')
child() {
  kubectl create -f - >/dev/null <<YAML
apiVersion: v1
kind: ConfigMap
metadata:
  name: $1
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: parent, uid: $2}]
YAML
}
child child "$uid"
child stale 00000000-0000-0000-0000-000000000001
absent() { refused "NotFound" kubectl get configmap "$1"; }
eventually absent stale
kubectl get configmap parent child >/dev/null
kubectl delete configmap parent >/dev/null
absent parent
eventually absent child
