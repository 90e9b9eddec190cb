source "$(dirname "$0")/../lib.sh"

# The unassigned pod goes first, then the cheapest, then one of the crowded node.
nodes
apply 2
eventually where shrink "-=1 sd-1=2 sd-2=2"
running_pods() { kubectl get pods -l app=shrink --field-selector status.phase=Running -o name | sort; }
four() { same 4 "$(running_pods | wc -l)"; }
eventually four
before=$(running_pods)
kubectl scale rs shrink --replicas=4 >/dev/null
eventually where shrink "sd-1=2 sd-2=2"
is "$before" running_pods
cheap=$(sed -n 2p <<<"$before")
for cost in abc +5 007; do
  refused "must be a 32bit integer" kubectl annotate "$cheap" "controller.kubernetes.io/pod-deletion-cost=$cost"
done
kubectl annotate "$cheap" controller.kubernetes.io/pod-deletion-cost=-5 >/dev/null
# The controller has to have read the annotation, which nothing shows.
sleep 1
kubectl scale rs shrink --replicas=3 >/dev/null
without() { same "$(grep -v "^$cheap\$" <<<"$before")" "$(running_pods)"; }
eventually without
kubectl scale rs shrink --replicas=2 >/dev/null
eventually where shrink "sd-1=1 sd-2=1"
