source "$(dirname "$0")/../lib.sh"

# Failed pods are counted, nothing else; the test plays kubelet.
nodes
apply 2
names() { kubectl get pods -l "job=$1" --sort-by=.metadata.creationTimestamp -o name; }
made() { same "$2" "$(names "$1" | wc -l)"; }
fail() { kubectl patch "$(names "$1" | tail -n 1)" --subresource=status --type=merge -p '{"status":{"phase":"Failed"}}' >/dev/null; }
job() { kubectl get job "$1" -o jsonpath="$2"; }
# ended JOB REASON MESSAGE
ended() {
  local path='{range .status.conditions[*]}{.type}{" "}{.status}{" "}{.reason}{" "}{.message};{end}'
  same "FailureTarget True $2 $3;Failed True $2 $3;" "$(job "$1" "$path")"
}
limit="Job has reached the specified backoff limit"
eventually made once 1
eventually made fails 1
fail once
fail fails
eventually ended once BackoffLimitExceeded "$limit"
is "1 " job once '{.status.failed} {.status.active}'
eventually ended deadline DeadlineExceeded "Job was active longer than specified deadline"
eventually is "1 " job deadline '{.status.failed} {.status.active}'
eventually made deadline 0
kubectl label job fails touched=yes >/dev/null
eventually made fails 2
is 1 job fails '{.status.failed}'
fail fails
eventually made fails 3
fail fails
eventually ended fails BackoffLimitExceeded "$limit"
kubectl wait --for=condition=failed job/fails --timeout=5s >/dev/null
stays 3 made fails 3
is "3 " job fails '{.status.failed} {.status.active}'
made once 1
# The second waits 10 s and the third 20 s from the making of the one before.
gaps() { kubectl get pods -l job=fails -o json | jq -r '[.items[].metadata.creationTimestamp | fromdate] | sort | (.[1] - .[0] >= 10 and .[2] - .[1] >= 20)'; }
is true gaps
