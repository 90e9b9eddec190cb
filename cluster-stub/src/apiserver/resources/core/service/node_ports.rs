//! Node ports: which services need them, and a set of those that are taken.
//!
//! Upstream: v1.36.2 `pkg/registry/core/service/storage/alloc.go`, `pkg/registry/core/service/portallocator`.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::Rng as _;
use serde_json::Value;

use super::super::super::objects::Objects;
use super::super::super::resource::GroupResource;
use crate::apiserver::validation::json::JsonExt;

const SERVICES: GroupResource = GroupResource::of("", "services");
const FIRST: u16 = 30000;
const LAST: u16 = 32767;
/// Ports below are left to those who ask for a certain one.
const STATIC_BAND: u16 = 86;

/// Whether a service has node ports.
pub(super) fn needs(service: &Value) -> bool {
    let spec = service.at("spec");
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec.at("allocateLoadBalancerNodePorts") != &Value::Bool(false),
        _ => false,
    }
}

/// All node ports of a service.
pub(super) fn of(service: &Value) -> BTreeSet<u16> {
    let spec = service.at("spec");
    let ports = spec.items("ports").iter().filter_map(|port| port.int("nodePort"));
    ports
        .chain(spec.int("healthCheckNodePort"))
        .filter_map(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0)
        .collect()
}

/// Why a port cannot be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is outside the range.
    OutOfRange,
    /// Another service has it.
    Taken,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::OutOfRange => {
                write!(out, "provided port is not in the valid range. The range of valid ports is {FIRST}-{LAST}")
            }
            Refusal::Taken => out.write_str("provided port is already allocated"),
        }
    }
}

/// Ports given out by this process, beside those that stored services have.
#[derive(Default)]
pub(super) struct NodePorts {
    reserved: Mutex<BTreeSet<u16>>,
}

impl NodePorts {
    fn reserved(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        // The set is whole after every single insert or remove.
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ports of stored services.
    pub(super) fn stored(objects: &dyn Objects) -> BTreeSet<u16> {
        objects.list(&SERVICES, None).iter().flat_map(|service| of(service)).collect()
    }

    /// Takes a certain port.
    pub(super) fn take(&self, port: u16, stored: &BTreeSet<u16>) -> Result<(), Refusal> {
        if !(FIRST..=LAST).contains(&port) {
            return Err(Refusal::OutOfRange);
        }
        if stored.contains(&port) || !self.reserved().insert(port) {
            return Err(Refusal::Taken);
        }
        Ok(())
    }

    /// Takes any free port; `None` when all are taken.
    pub(super) fn take_any(&self, stored: &BTreeSet<u16>) -> Option<u16> {
        let start = rand::rng().random_range(FIRST + STATIC_BAND..=LAST);
        let upper = (start..=LAST).chain(FIRST + STATIC_BAND..start);
        upper.chain(FIRST..FIRST + STATIC_BAND).find(|port| self.take(*port, stored).is_ok())
    }

    /// Gives ports back.
    pub(super) fn give_back(&self, ports: &BTreeSet<u16>) {
        self.reserved().retain(|port| !ports.contains(port));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_port_is_given_out_once() {
        let ports = NodePorts::default();
        let stored = BTreeSet::from([30001]);
        assert_eq!(ports.take(30001, &stored), Err(Refusal::Taken));
        assert_eq!(ports.take(80, &stored), Err(Refusal::OutOfRange));
        assert_eq!(ports.take(30002, &stored), Ok(()));
        assert_eq!(ports.take(30002, &stored), Err(Refusal::Taken));
        ports.give_back(&BTreeSet::from([30002]));
        assert_eq!(ports.take(30002, &stored), Ok(()));
    }

    #[test]
    fn any_port_is_a_free_one_until_none_is_left() {
        let ports = NodePorts::default();
        let stored: BTreeSet<u16> = (FIRST..LAST).collect();
        assert_eq!(ports.take_any(&stored), Some(LAST));
        assert_eq!(ports.take_any(&stored), None);
    }

    #[test]
    fn load_balancers_may_do_without() {
        assert!(needs(&json!({"spec": {"type": "LoadBalancer"}})));
        assert!(!needs(&json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}})));
        assert!(!needs(&json!({"spec": {"type": "ClusterIP"}})));
    }
}
