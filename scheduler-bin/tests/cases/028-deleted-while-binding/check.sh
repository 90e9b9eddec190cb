source "$(dirname "$0")/../lib.sh"

# Pods deleted at the moment they are scheduled leave nothing behind.
nodes
for _ in 1 2 3 4 5; do
  apply 2
  kubectl delete -f input.yaml -l step=2 --grace-period=0 --force --wait=false >/dev/null 2>&1
done
eventually is "" kubectl get pods -o name
apply 3
eventually running whole
[[ $(reasons whole) != *FailedScheduling* ]]
