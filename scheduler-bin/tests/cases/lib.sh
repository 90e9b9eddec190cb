# The words of the checks. A check.sh sources this file first; KUBECONFIG names an empty cluster, PLIMSOLL the command.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[1]}")"
PATIENCE=${PATIENCE:-120}
NS=default

# apply N: the objects of step N.
apply() { kubectl apply -f input.yaml -l "step=$1" >/dev/null; }

# nodes: applies step 1 and waits until no node is called not ready any more.
nodes() {
  apply 1
  eventually no_taint node.kubernetes.io/not-ready
}
no_taint() { [[ " $(kubectl get nodes -o jsonpath='{.items[*].spec.taints[*].key}') " != *" $1 "* ]]; }

# eventually WORD ARGS...: tries again until it is true.
eventually() {
  local end=$((SECONDS + PATIENCE)) said
  until said=$("$@" 2>&1); do
    if ((SECONDS > end)); then
      echo "not within $PATIENCE s: $*: $said" >&2
      return 1
    fi
    sleep 0.2
  done
}

# stays SECONDS WORD ARGS...: it is true, and remains so.
stays() {
  local end=$((SECONDS + $1))
  shift
  while ((SECONDS <= end)); do
    "$@" || { echo "no longer: $*" >&2; return 1; }
    sleep 0.5
  done
}

# same WANTED GOT
same() { [[ "$1" == "$2" ]] || { echo "wanted '$1', got '$2'" >&2; return 1; }; }
# is WANTED WORD ARGS...: that is what the word prints.
is() { same "$1" "$("${@:2}")"; }
# has TEXT PART
has() { [[ "$1" == *"$2"* ]] || { echo "wanted '$2' in '$1'" >&2; return 1; }; }

# get POD JSONPATH
get() { kubectl -n "$NS" get pod "$1" -o jsonpath="$2"; }
condition() { get "$1" "{.status.conditions[?(@.type==\"PodScheduled\")].$2}"; }

# running POD...
running() {
  local pod
  for pod in "$@"; do same Running "$(get "$pod" '{.status.phase}')" || return 1; done
}
# on POD NODE...: it runs on one of the nodes.
on() {
  local pod=$1
  running "$pod" && has " ${*:2} " " $(get "$pod" '{.spec.nodeName}') "
}
# pending POD TEXT: it has no node, and TEXT is part of the reason.
pending() {
  same "" "$(get "$1" '{.spec.nodeName}')" && same False "$(condition "$1" status)" && has "$(condition "$1" message)" "$2"
}
# gone POD
gone() { ! kubectl -n "$NS" get pod "$1" >/dev/null 2>&1; }
# where PREFIX "NODE=COUNT ...": the pods whose names begin so, by node; - is nowhere.
where() {
  local got
  got=$(kubectl -n "$NS" get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName --no-headers 2>/dev/null |
    awk -v prefix="$1" 'index($1, prefix) == 1 { n[$2 == "<none>" ? "-" : $2]++ } END { for (k in n) print k "=" n[k] }' | sort | paste -sd' ')
  same "$2" "$got"
}
# placed PREFIX: how many pods whose names begin so have a node.
placed() {
  kubectl -n "$NS" get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName --no-headers |
    awk -v prefix="$1" 'index($1, prefix) == 1 && $2 != "<none>" { n++ } END { print n + 0 }'
}
# reasons POD: of the events about it.
reasons() { kubectl -n "$NS" get events --field-selector "involvedObject.name=$1" -o jsonpath='{.items[*].reason}'; }
# attempts POD: how often scheduling it failed, as events count it.
attempts() {
  kubectl -n "$NS" get events --field-selector "involvedObject.name=$1,reason=FailedScheduling" \
    -o jsonpath='{range .items[*]}{.series.count}{"\n"}{end}' | awk '{ n += $1 == "" ? 1 : $1 } END { print n + 0 }'
}
# refused PART COMMAND...: it fails, and says PART.
refused() {
  local part=$1 said
  shift
  if said=$("$@" 2>&1); then
    echo "accepted: $*" >&2
    return 1
  fi
  has "$said" "$part"
}
# second NAME ARGS...: another scheduler, next to the cluster's own, for as long as the check runs.
second() {
  "$PLIMSOLL" run --scheduler-name "$1" "${@:2}" &
  SECOND=$!
  trap 'kill $SECOND 2>/dev/null || true' EXIT
}
