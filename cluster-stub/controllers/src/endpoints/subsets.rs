//! The subsets of an Endpoints object: which pods of a Service serve which ports. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Pod, Service};

use crate::runtime::pod;

use super::addresses::{self, IPV4};

/// Most addresses in one Endpoints object. Upstream: endpoints_controller.go v1.36.2 `maxCapacity`.
const MAX_ADDRESSES: usize = 1000;

/// The subsets for `service` over the pods that it selects, and whether some had to be left out.
/// Upstream: endpoints_controller.go v1.36.2 `syncService`, pkg/api/v1/endpoints/util.go `RepackSubsets`.
pub(super) fn subsets(service: &Service, pods: &[Arc<Pod>]) -> (Vec<EndpointSubset>, bool) {
    let publish = addresses::publishes_not_ready(service);
    let family = addresses::families(service).first().copied().unwrap_or(IPV4);
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    // Ports that are served alike → the addresses that serve them, ready ones and others.
    let mut groups: BTreeMap<Vec<PortKey>, (Vec<EndpointAddress>, Vec<EndpointAddress>)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| addresses::counts(pod, publish)) {
        let Some(ip) = addresses::pod_addresses(pod, family).into_iter().next() else { continue };
        let mut served: Vec<PortKey> = ports
            .iter()
            .filter_map(|port| {
                let number = addresses::find_port(pod, port)?;
                Some((port.name.clone(), number, port.protocol.clone(), port.app_protocol.clone()))
            })
            .collect();
        if served.is_empty() && !(ports.is_empty() && addresses::is_headless(service)) {
            continue;
        }
        served.sort();
        let address = EndpointAddress {
            ip,
            hostname: addresses::hostname(pod, service),
            node_name: Some(pod::node_name(pod).to_owned()),
            target_ref: Some(addresses::target(pod)),
        };
        let group = groups.entry(served).or_default();
        if publish || pod::is_ready(pod) { &mut group.0 } else { &mut group.1 }.push(address);
    }
    let mut subsets: Vec<EndpointSubset> = groups.into_iter().map(|(ports, group)| subset(ports, group)).collect();
    let truncated = truncate(&mut subsets);
    (subsets, truncated)
}

/// Name, number, protocol, application protocol.
type PortKey = (Option<String>, i32, Option<String>, Option<String>);

fn subset(
    ports: Vec<PortKey>,
    (mut ready, mut others): (Vec<EndpointAddress>, Vec<EndpointAddress>),
) -> EndpointSubset {
    let by_ip = |address: &EndpointAddress| address.ip.parse::<IpAddr>().ok();
    ready.sort_by_key(by_ip);
    others.sort_by_key(by_ip);
    let ports: Vec<EndpointPort> = ports
        .into_iter()
        .map(|(name, port, protocol, app_protocol)| EndpointPort { name, port, protocol, app_protocol })
        .collect();
    EndpointSubset {
        addresses: Some(ready).filter(|ready| !ready.is_empty()),
        not_ready_addresses: Some(others).filter(|others| !others.is_empty()),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    }
}

/// Keeps the limit, ready addresses first. Upstream: endpoints_controller.go v1.36.2 `truncateEndpoints`.
fn truncate(subsets: &mut Vec<EndpointSubset>) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let others: usize = subsets.iter().map(|subset| count(&subset.not_ready_addresses)).sum();
    if ready + others <= MAX_ADDRESSES {
        return false;
    }
    let mut room = MAX_ADDRESSES;
    let mut cut = |list: &mut Option<Vec<EndpointAddress>>| {
        if let Some(addresses) = list {
            addresses.truncate(room);
            room -= addresses.len();
        }
        if list.as_ref().is_some_and(Vec::is_empty) {
            *list = None;
        }
    };
    subsets.iter_mut().for_each(|subset| cut(&mut subset.addresses));
    subsets.iter_mut().for_each(|subset| cut(&mut subset.not_ready_addresses));
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    true
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use super::super::addresses::tests::pod_at;
    use super::*;

    fn service(ports: &[(&str, IntOrString)], cluster_ip: &str) -> Service {
        let ports: Vec<ServicePort> = ports
            .iter()
            .map(|(name, target)| ServicePort {
                name: Some((*name).to_owned()),
                port: 80,
                target_port: Some(target.clone()),
                ..ServicePort::default()
            })
            .collect();
        Service {
            spec: Some(ServiceSpec {
                ports: Some(ports),
                cluster_ip: Some(cluster_ip.to_owned()),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        }
    }

    #[test]
    fn pods_are_grouped_by_ports_and_split_by_readiness() {
        let mut waiting = pod_at("b", "10.0.0.10");
        waiting.status.get_or_insert_default().conditions = None;
        let mut other = pod_at("c", "10.0.0.3");
        other.spec.get_or_insert_default().containers[0].ports = None;
        let pods = [pod_at("a", "10.0.0.2"), waiting, other].map(Arc::new);
        let web = IntOrString::String("web".to_owned());
        let (got, truncated) = subsets(&service(&[("w", web), ("n", IntOrString::Int(9))], "10.96.0.9"), &pods);
        assert!(!truncated);
        let shape: Vec<(usize, usize, usize)> = got
            .iter()
            .map(|subset| {
                let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
                (
                    count(&subset.addresses),
                    count(&subset.not_ready_addresses),
                    subset.ports.as_ref().map_or(0, Vec::len),
                )
            })
            .collect();
        assert_eq!(shape, [(1, 0, 1), (1, 1, 2)]);
    }

    #[test]
    fn a_service_without_ports_has_endpoints_only_if_it_is_headless() {
        let pods = [Arc::new(pod_at("a", "10.0.0.2"))];
        assert!(subsets(&service(&[], "10.96.0.9"), &pods).0.is_empty());
        assert_eq!(subsets(&service(&[], "None"), &pods).0.len(), 1);
    }

    #[test]
    fn too_many_addresses_are_cut_ready_ones_last() {
        let pods: Vec<Arc<Pod>> = (0..1001)
            .map(|n| {
                let mut pod = pod_at(&n.to_string(), &format!("10.0.{}.{}", n / 250, n % 250 + 1));
                if n % 2 == 0 {
                    pod.status.get_or_insert_default().conditions = None;
                }
                Arc::new(pod)
            })
            .collect();
        let (got, truncated) = subsets(&service(&[("n", IntOrString::Int(9))], "10.96.0.9"), &pods);
        let counts = got
            .first()
            .map(|subset| (subset.addresses.as_ref().map(Vec::len), subset.not_ready_addresses.as_ref().map(Vec::len)));
        assert_eq!((truncated, counts), (true, Some((Some(500), Some(500)))));
    }
}
