source "$(dirname "$0")/../lib.sh"

# Only who set a finalizer takes it off; until then the pod stands still.
nodes
apply 2
eventually running held plain
events=$(mktemp)
kubectl get pods -w --output-watch-events -o json >"$events" &
WATCH=$!
trap 'kill $WATCH 2>/dev/null || true; rm -f "$events"' EXIT
seen() {
  jq -r --arg name "$1" 'select(.object.metadata.name == $name) | "\(.type) \(.object.metadata.deletionGracePeriodSeconds) \(.object.status.phase)"' "$events" | uniq | paste -sd';'
}
has_seen() { has "$(seen held)" ADDED && has "$(seen plain)" ADDED; }
eventually has_seen
kubectl delete pod held --wait=false >/dev/null
state() { get held '{.metadata.deletionTimestamp} {.metadata.deletionGracePeriodSeconds} {.metadata.finalizers[*]} {.metadata.generation} {.metadata.resourceVersion}'; }
# Its containers end at once, and that is written down; nothing after it.
ended() { same Succeeded "$(get held '{.status.phase}')"; }
eventually ended
first=$(state)
has "$first" " 5 example.test/hold 2 "
kubectl delete pod plain >/dev/null
stays 4 is "$first" state

# A second deletion may only shorten the grace.
kubectl delete pod held --wait=false >/dev/null
kubectl delete pod held --wait=false --grace-period=60 >/dev/null
is "$first" state
kubectl delete pod held --wait=false --grace-period=0 --force >/dev/null 2>&1
last=$(state)
has "$last" " 0 example.test/hold 2 "
# Moved back to when it began, or to now if that grace is over.
[[ ! ${last%% *} > $(date -u +%FT%TZ) ]]
stays 2 is "$last" state
kubectl patch pod held --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null
eventually gone held
finished() { has "$(seen held)" DELETED && has "$(seen plain)" DELETED; }
eventually finished
same "ADDED null Running;MODIFIED 5 Running;MODIFIED 5 Succeeded;MODIFIED 0 Succeeded;DELETED 0 Succeeded" "$(seen held)"
same "ADDED null Running;MODIFIED 30 Running;MODIFIED 30 Succeeded;MODIFIED 0 Succeeded;DELETED 0 Succeeded" "$(seen plain)"
