//! The Service `kubernetes` in `default`, through which pods reach the API server, and what belongs to it.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

/// The ServiceCIDR object of the cluster's range, with its status.
pub(super) fn service_cidr(range: &str, now: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [range]},
        "status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "",
            "message": "Kubernetes Service CIDR is ready",
            "lastTransitionTime": now,
        }]},
    })
}

/// The Service itself at `cluster_ip`, the first address of the range.
pub(super) fn service(cluster_ip: IpAddr, secure_port: u16) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": cluster_ip,
            "clusterIPs": [cluster_ip],
            "ipFamilies": [if cluster_ip.is_ipv4() { "IPv4" } else { "IPv6" }],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": secure_port}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
    })
}

/// The IPAddress that holds the Service's address.
pub(super) fn ip_address(cluster_ip: IpAddr) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": cluster_ip,
            "labels": {
                "ipaddress.kubernetes.io/ip-family": if cluster_ip.is_ipv4() { "IPv4" } else { "IPv6" },
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": "default", "name": "kubernetes"}},
    })
}

/// Where the Service leads: the server's own address, as Endpoints and as EndpointSlice.
pub(super) fn endpoints(advertised: SocketAddr) -> [Value; 2] {
    let (ip, port) = (advertised.ip(), advertised.port());
    [
        json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [{
                "addresses": [{"ip": ip}],
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            }],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }),
    ]
}
