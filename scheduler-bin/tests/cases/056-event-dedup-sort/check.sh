source "$(dirname "$0")/../lib.sh"

# Attempts that end alike are one event, and every event can be dated and sorted.
nodes
apply 2
eventually running ok
eventually pending never "Insufficient cpu"
for n in 1 2 3 4; do
  kubectl apply -f blip.yaml >/dev/null
  eventually running blip
  kubectl delete pod blip --now >/dev/null
  sleep 1
done
failed() { kubectl get events --field-selector involvedObject.name=never,reason=FailedScheduling -o json; }
few() { jq -e '(.items | length) as $n | $n >= 1 and $n <= 2 and any(.items[]; (.series.count // .count // 1) > 1)' <<<"$(failed)" >/dev/null; }
eventually few
scheduled() { jq -e --argjson n "$2" '.items | length == $n' <<<"$(kubectl get events --field-selector "involvedObject.name=$1,reason=Scheduled" -o json)" >/dev/null; }
eventually scheduled blip 4
scheduled ok 1
is "Successfully assigned default/ok to ev-0" kubectl get events --field-selector involvedObject.name=ok,reason=Scheduled -o jsonpath='{.items[*].message}'
has "$(kubectl describe pod never)" "(x2 over "
has "$(kubectl events --for pod/never)" "FailedScheduling"
kubectl get events -o json | jq -e 'all(.items[];
  .metadata.creationTimestamp and .involvedObject.kind and .involvedObject.name and .involvedObject.uid and .reason and .type
  and (.source.component // .reportingComponent // "") != "" and (.lastTimestamp // .eventTime // .series.lastObservedTime))' >/dev/null
for by in .lastTimestamp .metadata.creationTimestamp; do
  shown=$(kubectl get events --sort-by="$by")
  [[ $shown != *"<unknown>"* ]]
done
uids() { kubectl get "$1" -o jsonpath='{.items[*].metadata.uid}' | tr ' ' '\n' | sort | paste -sd' '; }
alike() { same "$(uids events)" "$(uids events.events.k8s.io)"; }
eventually alike
failed | jq -e 'all(.items[]; .reportingComponent == "default-scheduler" and (.reportingInstance | startswith("default-scheduler-"))
  and .action == "Scheduling" and .eventTime and .firstTimestamp == null and .lastTimestamp == null and .source == {} and .count == null)' >/dev/null
# Another pod of the same name has events of its own.
same 4 "$(kubectl get events --field-selector involvedObject.name=blip,reason=Scheduled -o jsonpath='{.items[*].involvedObject.uid}' | tr ' ' '\n' | sort -u | wc -l)"
