source "$(dirname "$0")/../lib.sh"

# Budgets are respected when there is a choice, and overridden when there is none.
nodes
apply 2
budget() { kubectl get pdb guarded -o jsonpath='{.status.currentHealthy} {.status.disruptionsAllowed}'; }
eventually is "1 0" budget
eventually where loose "pd-2=1"
apply 3
eventually on boss pd-2
eventually where guarded "pd-1=1"
apply 4
eventually on boss-2 pd-1
eventually where guarded "-=1"
eventually where loose "-=1"
