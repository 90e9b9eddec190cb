source "$(dirname "$0")/../lib.sh"

# Made names are unique, of the alphabet, and no longer than a name may be. Two hundred of each kind, as one list.
refused "cannot use generate name with apply" kubectl apply -f input.yaml
many=$(kubectl create -f input.yaml --dry-run=client -o json | jq -c -s '{apiVersion: "v1", kind: "List", items: [range(200) as $i | .[]]}')
names=$(kubectl create -f - -o name <<<"$many" | sed 's|^pod/||')
same 400 "$(wc -l <<<"$names")"
same "" "$(sort <<<"$names" | uniq -d)"
long=a-very-long-prefix-that-needs-to-be-cut-because-it-is-longer-than-fifty-eight-
same 200 "$(grep -cE '^burst-[bcdfghjklmnpqrstvwxz2456789]{5}$' <<<"$names")"
same 200 "$(grep -cE "^${long:0:58}[bcdfghjklmnpqrstvwxz2456789]{5}\$" <<<"$names")"
same "200 $long" "$(kubectl get pods -o jsonpath='{range .items[*]}{.metadata.generateName}{"\n"}{end}' | sort | uniq -c | sed -n 's/^ *\(.* a-.*\)$/\1/p')"
pod() { kubectl create -f - -o name <<<"{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{$1},\"spec\":{\"containers\":[{\"name\":\"main\",\"image\":\"registry.example/app:1\"}]}}"; }
refused "name or generateName is required" pod ""
is pod/named pod '"name":"named","generateName":"burst-"'

# Owners with long names have pods with names that are cut.
owner=$(printf 'n%.0s' {1..80})
kubectl create -f - >/dev/null <<YAML
apiVersion: apps/v1
kind: Deployment
metadata:
  name: $owner
spec:
  replicas: 2
  selector: {matchLabels: {app: long}}
  template:
    metadata: {labels: {app: long}}
    spec: {containers: [{name: main, image: registry.example/app:1}]}
YAML
kubectl create job "${owner:0:63}" --image=registry.example/app:1 >/dev/null
cut() { kubectl get pods -o name | grep -cE '^pod/n{58}[bcdfghjklmnpqrstvwxz2456789]{5}$'; }
eventually is 3 cut
