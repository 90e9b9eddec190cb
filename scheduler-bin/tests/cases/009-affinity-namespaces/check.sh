source "$(dirname "$0")/../lib.sh"

# namespaces and namespaceSelector: absent, empty, and their union.
nodes
apply 2
NS=beta
eventually running target
NS=alpha
apply 3
eventually running own-ns list-empty sel-nobody
for pod in list-beta sel-t2 sel-all union; do
  eventually pending "$pod" "1 node(s) didn't match pod anti-affinity rules"
done
