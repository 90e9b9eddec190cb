source "$(dirname "$0")/../lib.sh"

# Every legal spelling of a quantity, and some illegal ones.
nodes
apply 2
eventually where "" "qn-1=6"
apply 3
eventually pending over "Insufficient memory"
apply 4
eventually running exbi
eventually pending exbi-2 "Insufficient memory"
kubectl describe node qn-1 | grep -qE 'memory +1189110336 \(73%\)'
is 9223372036854775807 kubectl get node qn-huge -o jsonpath='{.status.allocatable.memory}'
before=$(kubectl get pods -o name)
refused "" kubectl create -f bad.yaml
is "$before" kubectl get pods -o name
