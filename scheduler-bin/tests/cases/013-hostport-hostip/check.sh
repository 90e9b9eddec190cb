source "$(dirname "$0")/../lib.sh"

# Host ports conflict by address, protocol and port; 0.0.0.0 conflicts with every address.
nodes
conflict="1 node(s) didn't have free ports for the requested pod ports"
apply 2
eventually running tcp-ip1
apply 3
eventually running tcp-ip2
apply 4
eventually pending tcp-any "$conflict"
apply 5
eventually running udp-any
apply 6
eventually pending tcp-ip1-again "$conflict"
apply 7
eventually running hostnet
apply 8
eventually pending tcp-9090 "$conflict"
apply 9
eventually running sidecar-7000
apply 10
eventually pending tcp-7000 "$conflict"
is 9090 get hostnet '{.spec.containers[0].ports[0].hostPort}'
kubectl delete pod tcp-ip1 --wait=false >/dev/null
eventually running tcp-ip1-again
stays 1 pending tcp-any "$conflict"
