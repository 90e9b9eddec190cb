source "$(dirname "$0")/../lib.sh"

# maxSurge rounds up, maxUnavailable down; when both come out as 0, one pod may be unavailable.
nodes
apply 2
available() { kubectl get deploy "$1" -o jsonpath='{.status.availableReplicas}'; }
for wanted in roll-1=1 roll-5=5 roll-6=6 roll-10=10 tight=4; do
  eventually is "${wanted#*=}" available "${wanted%=*}"
done
names() { kubectl get pods -l "app=$1" --field-selector status.phase=Running -o name | sort | paste -sd' '; }
before=$(names roll-10)
kubectl apply -f next.yaml >/dev/null
# limits DEPLOYMENT "OLD NEW AVAILABLE"
limits() {
  local got
  got=$(kubectl get rs -l "app=$1" --sort-by=.metadata.annotations.deployment\\.kubernetes\\.io/revision \
    -o jsonpath='{range .items[*]}{.spec.replicas}{" "}{end}')
  same "$2" "$got$(available "$1")"
}
all() {
  limits roll-1 "1 1 1" && limits roll-5 "4 3 4" && limits roll-6 "5 3 5" && limits roll-10 "8 5 8" && limits tight "3 1 3"
}
eventually all
stays 3 all
refused "5 out of 10 new replicas have been updated" kubectl rollout status deploy/roll-10 --timeout=2s
kept=$(names roll-10)
kubectl rollout undo deploy/roll-10 >/dev/null
eventually limits roll-10 "0 10 10"
for pod in $kept; do
  has " $before " " $pod "
  has " $(names roll-10) " " $pod "
done
