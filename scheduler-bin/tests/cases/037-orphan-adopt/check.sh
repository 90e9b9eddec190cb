source "$(dirname "$0")/../lib.sh"

# What is orphaned lives on, and is adopted again by whoever selects it.
nodes
apply 2
# owned KIND SELECTOR: name, uid and owner of each.
owned() {
  kubectl get "$1" -l "$2" --sort-by=.metadata.name \
    -o jsonpath='{range .items[*]}{.metadata.name}{" "}{.metadata.uid}{" "}{.metadata.ownerReferences[*].name}{"\n"}{end}'
}
n_running() { kubectl get pods -l "$1" --field-selector status.phase=Running -o name | wc -l; }
eventually is 3 n_running app=keep
pods=$(owned pods app=keep)
set=$(owned rs app=keep)
has "$set" " keep"
kubectl delete deploy keep --cascade=orphan >/dev/null
eventually is "${set% keep} " owned rs app=keep
stays 2 is "$pods" owned pods app=keep
is "${set% keep} " owned rs app=keep
apply 2
eventually is "$set" owned rs app=keep
stays 2 is "$pods" owned pods app=keep
is "$set" owned rs app=keep

# Two Deployments with one selector leave each other's pods alone.
apply 3
eventually is 4 n_running app=twin
twins() { kubectl get rs -l app=twin -o jsonpath='{range .items[*]}{.metadata.ownerReferences[*].name}={.spec.replicas}{" "}{end}' | xargs -n1 | sort | paste -sd' '; }
pods=$(owned pods app=twin)
is "twin-a=2 twin-b=2" twins
stays 3 is "$pods" owned pods app=twin
is "twin-a=2 twin-b=2" twins

# A stray pod is adopted, and released when its label goes.
apply 4
eventually running stray
apply 5
eventually is 2 n_running app=rsx
owner() { get "$1" '{.metadata.ownerReferences[*].name}'; }
eventually is rsx owner stray
stays 1 is 2 n_running app=rsx
kubectl label pod stray app=loose --overwrite >/dev/null
eventually is "" owner stray
eventually is 2 n_running app=rsx
running stray
