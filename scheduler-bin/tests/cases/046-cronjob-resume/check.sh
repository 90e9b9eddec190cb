source "$(dirname "$0")/../lib.sh"

# A bad schedule and a long name are refused.
bad=$(kubectl create -f bad.yaml 2>&1) && exit 1
for part in "end of range (60) above maximum (59): 60" "expected exactly 5 fields, found 4: [* * * *]" "unrecognized descriptor: @never" \
  "spec.schedule: Required value" "step of range should be a positive number: */0" "must be no more than 52 characters"; do
  has "$bad" "$part"
done

# A suspended one makes nothing; resumed, it makes up for the latest missed run and for no other.
nodes
apply 2
jobs() {
  kubectl get jobs --sort-by=.metadata.name -o json |
    jq -r --arg of "$1" '.items[] | select(.metadata.ownerReferences[0].name == $of).metadata.name' | paste -sd' '
}
cron() { kubectl get cronjob "$1" -o jsonpath="$2"; }
ran() { [[ -n $(jobs forbid) ]]; }
PATIENCE=$((PATIENCE + 60)) eventually ran
first=$(jobs forbid)
minute=${first#forbid-}
is "" jobs tick
is "" cron tick '{.status.lastScheduleTime}'
# Forbid: its Job never ends, so the next minute is skipped.
forbidden() { has "$(reasons forbid)" JobAlreadyActive; }
PATIENCE=$((PATIENCE + 60)) eventually forbidden
is "$first" jobs forbid
is "$first" cron forbid '{.status.active[*].name}'
is "" jobs tick
kubectl patch cronjob tick -p '{"spec":{"suspend":false}}' >/dev/null
# One Job, unless the minute has just turned.
resumed() {
  local name names
  names=$(jobs tick)
  [[ -n $names ]] || return 1
  for name in $names; do ((${name#tick-} > minute)) || return 1; done
  (($(wc -w <<<"$names") <= 2))
}
eventually resumed
done_jobs() { kubectl get jobs -o json | jq '[.items[] | select(.metadata.ownerReferences[0].name == "tick" and .status.succeeded == 1)] | length'; }
finished() { (($(done_jobs) >= 1)); }
eventually finished
is "$first" jobs forbid
