source "$(dirname "$0")/../lib.sh"

# A claim that waits for its first consumer decides where the pod goes, and is bound with it.
nodes
apply 2
claim() { kubectl get pvc "$1" -o jsonpath='{.status.phase} {.spec.volumeName}'; }
eventually is "Pending " claim claim-1
eventually is "Pending " claim claim-2
apply 3
eventually on user-1 v-small
eventually is "Bound pv-small" claim claim-1
apply 4
eventually pending user-2 "2 node(s) didn't find available persistent volumes to bind"
eventually pending user-none '0/2 nodes are available: persistentvolumeclaim "claim-absent" not found. not found'
apply 5
eventually on user-2 v-big
eventually is "Bound pv-big" claim claim-2
kubectl create -f - >/dev/null <<YAML
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: claim-absent
spec:
  storageClassName: late-local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
YAML
eventually pending user-none "node(s) didn't find available persistent volumes to bind"
