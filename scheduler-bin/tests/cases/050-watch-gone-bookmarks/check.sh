source "$(dirname "$0")/../lib.sh"

# Pages, watches from a version, and what stands before the changes.
nodes
path=/api/v1/namespaces/default/configmaps
list() { kubectl get --raw "$path?$1"; }
meta() { jq -r ".metadata.$1" <<<"$page"; }
whole=$(list "" | jq -r '.items[].metadata.name' | paste -sd' ')
page=$(list limit=2)
version=$(meta resourceVersion)
names=$(jq -r '.items[].metadata.name' <<<"$page")
same "$(($(wc -w <<<"$whole") - 2))" "$(meta remainingItemCount)"
while token=$(meta continue) && [[ $token != null && $token != "" ]]; do
  page=$(list "limit=2&continue=$token")
  same "$version" "$(meta resourceVersion)"
  (($(jq '.items | length' <<<"$page") <= 2))
  names+=" $(jq -r '.items[].metadata.name' <<<"$page")"
done
same "$whole" "$(xargs <<<"$names")"

# Each change once, in order; the watch ends by itself.
watch() { list "watch=1&timeoutSeconds=2&$1" | jq -r '"\(.type) \(.object.metadata.name)"' | paste -sd';'; }
version=$(list "" | jq -r .metadata.resourceVersion)
for n in 1 2; do kubectl patch cm wa -p "{\"data\":{\"n\":\"$n\"}}" >/dev/null; done
kubectl delete cm wb >/dev/null
kubectl create cm wx >/dev/null
is "MODIFIED wa;MODIFIED wa;DELETED wb;ADDED wx" watch "resourceVersion=$version"
# From the beginning: everything, or 410; never a stream from now on.
old=$(watch resourceVersion=1)
[[ $old == *"ADDED wb;"*"MODIFIED wa;MODIFIED wa;DELETED wb;ADDED wx" || $old == "ERROR null" ]]
refused "invalid resource version" list resourceVersion=banana
refused 'parsing "banana": invalid syntax' list "watch=1&resourceVersion=banana"
refused "Too large resource version" list "resourceVersion=99999999&resourceVersionMatch=NotOlderThan"

# The bookmark after what is there.
for from in "" "&resourceVersion=0" "&resourceVersion=$version"; do
  events=$(list "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=2$from")
  same "$(kubectl get cm -o name | wc -l)" "$(jq -r 'select(.type == "ADDED").type' <<<"$events" | wc -l)"
  same "BOOKMARK true" "$(jq -r '"\(.type) \(.object.metadata.annotations["k8s.io/initial-events-end"])"' <<<"$events" | sed -n "$(($(kubectl get cm -o name | wc -l) + 1))p")"
  jq -e 'select(.type == "BOOKMARK").object.metadata.resourceVersion | tonumber > 0' <<<"$events" >/dev/null
done
refused "resourceVersionMatch" list "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&timeoutSeconds=2"
apply 2
kubectl rollout status deploy/wd --timeout=60s >/dev/null
for path in /api/v1/pods /apis/apps/v1/deployments /apis/apps/v1/replicasets /api/v1/nodes /api/v1/services /api/v1/events /api/v1/secrets /apis/batch/v1/jobs; do
  list "" | jq -e '.metadata.resourceVersion | tonumber > 0' >/dev/null
done
