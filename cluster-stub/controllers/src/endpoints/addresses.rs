//! Which address and which ports a pod contributes to a Service. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::runtime::pod;
use crate::runtime::selector::Selector;

/// A family of addresses, as EndpointSlices name it.
pub(super) const IPV4: &str = "IPv4";
/// The other family.
pub(super) const IPV6: &str = "IPv6";

/// Which family `ip` belongs to; `None` if it is no address.
pub(super) fn family(ip: &str) -> Option<&'static str> {
    ip.parse::<IpAddr>().ok().map(|ip| if ip.is_ipv4() { IPV4 } else { IPV6 })
}

/// The selector of `service`, if it has one.
pub(super) fn selector(service: &Service) -> Option<Selector> {
    let labels = service.spec.as_ref()?.selector.as_ref()?;
    Some(Selector::from_labels(Some(labels)))
}

/// Whether `service` is without an address of its own.
pub(super) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).is_none_or(|ip| ip.is_empty() || ip == "None")
}

/// Whether `service` asks for pods that are not ready as well.
pub(super) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// Families that `service` serves.
/// Upstream: k8s.io/endpointslice v1.36.2 `getAddressTypesForService`.
pub(super) fn families(service: &Service) -> Vec<&'static str> {
    let spec = service.spec.as_ref();
    let named = spec.and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
    let mut families: Vec<&'static str> = named.iter().map(|family| if family == IPV6 { IPV6 } else { IPV4 }).collect();
    if families.is_empty() {
        let ip = spec.and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
        families.push(family(ip).unwrap_or(IPV4));
    }
    families
}

/// Addresses of `pod` in `family`.
pub(super) fn pod_addresses(pod: &Pod, family_wanted: &str) -> Vec<String> {
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    ips.iter().map(|ip| ip.ip.clone()).filter(|ip| family(ip) == Some(family_wanted)).collect()
}

/// Whether `pod` belongs among the endpoints at all.
/// Upstream: k8s.io/endpointslice/util v1.36.2 `ShouldPodBeInEndpoints`.
pub(super) fn counts(pod: &Pod, include_terminating: bool) -> bool {
    let has_ip = pod.status.as_ref().is_some_and(|status| {
        status.pod_ip.as_deref().is_some_and(|ip| !ip.is_empty())
            || status.pod_ips.as_ref().is_some_and(|ips| !ips.is_empty())
    });
    !pod::is_terminal(pod) && has_ip && (include_terminating || pod.metadata.deletion_timestamp.is_none())
}

/// The hostname under which `service` knows `pod`.
/// Upstream: k8s.io/endpointslice/util v1.36.2 `ShouldSetHostname`.
pub(super) fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.clone().filter(|hostname| !hostname.is_empty())?;
    let same = spec.subdomain.as_deref() == service.metadata.name.as_deref()
        && pod.metadata.namespace == service.metadata.namespace;
    same.then_some(hostname)
}

/// The number of the port on `pod` that `port` means. Upstream: k8s.io/endpointslice v1.36.2 `FindPort`.
pub(super) fn find_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    match port.target_port.as_ref() {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let spec = pod.spec.as_ref()?;
            let sidecars = spec
                .init_containers
                .iter()
                .flatten()
                .filter(|container| container.restart_policy.as_deref() == Some("Always"));
            let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            let named = |container: &Container| {
                let mut ports = container.ports.iter().flatten();
                let found = ports
                    .find(|own| own.name.as_ref() == Some(name) && protocol(&own.protocol) == protocol(&port.protocol));
                found.map(|own| own.container_port)
            };
            spec.containers.iter().chain(sidecars).find_map(named)
        }
    }
}

/// A reference to `pod` as endpoints carry it.
pub(super) fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, PodIP};

    use crate::runtime::pod::tests::running_pod;

    use super::*;

    pub(in super::super) fn pod_at(name: &str, ip: &str) -> Pod {
        let mut pod = running_pod(name);
        let status = pod.status.get_or_insert_default();
        status.pod_ip = Some(ip.to_owned());
        status.pod_ips = Some(vec![PodIP { ip: ip.to_owned() }]);
        let container = Container {
            ports: Some(vec![ContainerPort {
                name: Some("web".to_owned()),
                container_port: 8080,
                ..ContainerPort::default()
            }]),
            ..Container::default()
        };
        pod.spec.get_or_insert_default().containers = vec![container];
        pod
    }

    #[test]
    fn a_port_is_found_by_number_by_name_or_not_at_all() {
        let pod = pod_at("a", "10.0.0.1");
        let port =
            |target: Option<IntOrString>| ServicePort { port: 80, target_port: target, ..ServicePort::default() };
        let name = |name: &str| Some(IntOrString::String(name.to_owned()));
        for (target, want) in
            [(None, Some(80)), (Some(IntOrString::Int(9)), Some(9)), (name("web"), Some(8080)), (name("none"), None)]
        {
            assert_eq!(find_port(&pod, &port(target.clone())), want, "{target:?}");
        }
    }

    #[test]
    fn only_living_pods_with_an_address_count() {
        assert!(counts(&pod_at("a", "10.0.0.1"), false));
        assert!(!counts(&running_pod("a"), true), "no address");
        let mut ended = pod_at("a", "10.0.0.1");
        ended.status.get_or_insert_default().phase = Some("Failed".to_owned());
        assert!(!counts(&ended, true));
    }
}
