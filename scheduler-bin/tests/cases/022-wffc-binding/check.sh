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

# With a provisioner, the claim is told the node, and the pod waits, nominated, until the volume is there.
kubectl create -f - >/dev/null <<YAML
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: late-made
provisioner: example.com/disk
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: claim-made
spec:
  storageClassName: late-made
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata:
  name: user-made
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: v-big}
  containers: [{name: main, image: registry.example/app:1}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: claim-made}}]
YAML
told() { kubectl get pvc claim-made -o jsonpath='{.metadata.annotations.volume\.kubernetes\.io/selected-node}'; }
state() { get user-made '{.status.phase} {.spec.nodeName} {.status.nominatedNodeName} {.status.conditions[?(@.type=="PodScheduled")].status}'; }
eventually is v-big told
eventually is "Pending  v-big " state
stays 2 is "Pending  v-big " state
# What a provisioner does: a volume for the claim, which the volume controller then binds.
uid=$(kubectl get pvc claim-made -o jsonpath='{.metadata.uid}')
kubectl create -f - >/dev/null <<YAML
apiVersion: v1
kind: PersistentVolume
metadata:
  name: pv-made
  annotations: {pv.kubernetes.io/provisioned-by: example.com/disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: late-made
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: default, name: claim-made, uid: $uid}
  csi: {driver: example.com/disk, volumeHandle: made-1}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [v-big]}]}]}}
YAML
eventually is "Bound pv-made" claim claim-made
eventually on user-made v-big
