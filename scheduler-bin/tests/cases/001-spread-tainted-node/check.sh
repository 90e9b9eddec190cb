source "$(dirname "$0")/../lib.sh"

# The default nodeTaintsPolicy counts a tainted node as a domain; Honor does not.
nodes
apply 2
eventually where plain "-=2 n-a=1 n-b=1"
eventually where honor "n-a=2 n-b=2"
waiting=$(kubectl get pods --field-selector spec.nodeName= -o jsonpath='{.items[0].metadata.name}')
eventually pending "$waiting" "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match pod topology spread constraints. no new claims to deallocate, preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
stays 1 where plain "-=2 n-a=1 n-b=1"
kubectl taint node n-c reserved- >/dev/null
eventually where plain "n-a=1 n-b=1 n-c=2"
