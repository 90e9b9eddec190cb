source "$(dirname "$0")/../lib.sh"

# What a toleration covers.
nodes
apply 2
eventually running exists-no-effect equal-gold all all-noschedule
for pod in equal-no-value all-noexecute prefer; do
  eventually pending "$pod" "1 node(s) had untolerated taint(s)"
done
refused 'operator must be Exists when `key` is empty' kubectl create -f - <<YAML
apiVersion: v1
kind: Pod
metadata:
  name: no-key
spec:
  containers: [{name: c, image: app}]
  tolerations: [{value: x}]
YAML
