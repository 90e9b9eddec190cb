source "$(dirname "$0")/../lib.sh"

# With fewer domains than minDomains the smallest count is zero, until the third zone appears.
nodes
apply 2
eventually where three-zones "-=1 m-a=1 m-b=1"
eventually is 3 placed any-zones
waiting=$(kubectl get pods --field-selector spec.nodeName= -o jsonpath='{.items[0].metadata.name}')
eventually pending "$waiting" "2 node(s) didn't match pod topology spread constraints"
apply 3
eventually where three-zones "m-a=1 m-b=1 m-c=1"
refused "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway" kubectl create -f - <<YAML
apiVersion: v1
kind: Pod
metadata:
  name: soft
spec:
  containers: [{name: c, image: app}]
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 3, labelSelector: {}}
YAML
