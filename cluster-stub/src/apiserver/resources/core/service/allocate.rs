//! Gives cluster addresses and node ports to services. An address is taken by creating its IPAddress object, so two API servers
//! over one store never give out the same.
//!
//! Upstream: v1.36.2 `pkg/registry/core/service/storage/alloc.go`, `pkg/registry/core/service/ipallocator/ipallocator.go`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::Rng as _;
use serde_json::{Value, json};

use super::super::super::kind::SPEC;
use super::super::super::objects::Objects;
use super::super::super::resource::GroupResource;
use super::super::super::strategy::Rollback;
use super::is_headless;
use super::node_ports::{self, NodePorts};
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path, ip};

const ADDRESSES: GroupResource = GroupResource::of("networking.k8s.io", "ipaddresses");
const SERVICE: Qualified<'static> = Qualified { group: "", name: "Service" };

/// The pools that services draw from.
pub(super) struct Allocator {
    range: String,
    first: u128,
    size: u128,
    ports: Arc<NodePorts>,
    /// Addresses of writes that failed. Their objects go with the next allocation or release.
    orphans: Arc<Mutex<Vec<String>>>,
}

impl Allocator {
    /// Pools for a service range such as `10.96.0.0/16`; a range that cannot be read is the default one.
    pub(super) fn new(range: &str) -> Allocator {
        let (range, (address, length)) = match ip::parse_cidr_sloppy(range) {
            Some(parsed) => (range.to_owned(), parsed),
            None => ("10.96.0.0/16".to_owned(), (IpAddr::V4(Ipv4Addr::new(10, 96, 0, 0)), 16)),
        };
        let (first, bits) = match ip::masked(address, length) {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32 - u32::from(length)),
            IpAddr::V6(address) => (u128::from(address), 128 - u32::from(length)),
        };
        Allocator { range, first, size: 1 << bits.min(64), ports: Arc::default(), orphans: Arc::default() }
    }

    /// `IPv4` or `IPv6`.
    pub(super) fn family(&self) -> &'static str {
        if self.range.contains(':') { "IPv6" } else { "IPv4" }
    }

    fn address(&self, offset: u128) -> String {
        let number = self.first + offset;
        match u32::try_from(number) {
            Ok(number) if !self.range.contains(':') => Ipv4Addr::from(number).to_string(),
            _ => std::net::Ipv6Addr::from(number).to_string(),
        }
    }

    fn orphans(&self) -> MutexGuard<'_, Vec<String>> {
        // The list is whole after every push and take.
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn bury_orphans(&self, objects: &dyn Objects) {
        let orphans = std::mem::take(&mut *self.orphans());
        for address in orphans {
            give_back(objects, &address).await;
        }
    }

    /// Fills in cluster address and node ports of a service that needs some and has none, and takes those it asks for.
    pub(super) async fn allocate(
        &self,
        objects: &dyn Objects,
        service: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Option<Rollback>, ApiError> {
        self.bury_orphans(objects).await;
        let addresses = self.allocate_addresses(objects, service, old, dry_run).await?;
        match self.allocate_ports(objects, service, old, dry_run) {
            Ok(ports) if addresses.is_empty() && ports.is_empty() => Ok(None),
            Ok(taken) => {
                let (ports, orphans) = (self.ports.clone(), self.orphans.clone());
                Ok(Some(Box::new(move || {
                    Box::pin(async move {
                        ports.give_back(&taken);
                        orphans.lock().unwrap_or_else(PoisonError::into_inner).extend(addresses);
                    })
                })))
            }
            Err(error) => {
                for address in &addresses {
                    give_back(objects, address).await;
                }
                Err(error)
            }
        }
    }

    async fn allocate_addresses(
        &self,
        objects: &dyn Objects,
        service: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Vec<String>, ApiError> {
        if service.at("spec").text("type") == "ExternalName" || is_headless(service) {
            return Ok(Vec::new());
        }
        if service.at("spec").text("ipFamilyPolicy") == "RequireDualStack" {
            let why = "this cluster is not configured for dual-stack services";
            return Err(invalid(service, FieldError::invalid(&SPEC.child("ipFamilyPolicy"), "RequireDualStack", why)));
        }
        let had: Vec<&str> = old.map(|old| old.at("spec").texts("clusterIPs")).unwrap_or_default();
        let asked: Vec<String> = service.at("spec").texts("clusterIPs").into_iter().map(str::to_owned).collect();
        if asked.is_empty() {
            let address = self.take_any(objects, service, dry_run).await?;
            let spec = service.object_mut("spec");
            spec.put("clusterIP", json!(address));
            spec.put("clusterIPs", json!([address]));
            return Ok(if dry_run { Vec::new() } else { vec![address] });
        }
        let mut taken: Vec<String> = Vec::new();
        for address in asked.iter().filter(|address| !had.contains(&address.as_str())) {
            if let Err(why) = self.take(objects, service, address, dry_run).await {
                for address in &taken {
                    give_back(objects, address).await;
                }
                let value = service.at("spec").at("clusterIPs").clone();
                let why = format!("failed to allocate IP {address}: {why}");
                return Err(invalid(service, FieldError::invalid(&SPEC.child("clusterIPs"), value, why)));
            }
            if !dry_run {
                taken.push(address.clone());
            }
        }
        Ok(taken)
    }

    async fn take(&self, objects: &dyn Objects, service: &Value, address: &str, dry_run: bool) -> Result<(), String> {
        let number = match ip::parse_sloppy(address) {
            Some(IpAddr::V4(address)) => u128::from(u32::from(address)),
            Some(IpAddr::V6(address)) => u128::from(address),
            None => return Err("not a valid IP".to_owned()),
        };
        // The first and the last address of the range stay free.
        let inside = number > self.first && number < self.first + self.size - 1;
        if !inside || address.contains(':') != self.range.contains(':') {
            return Err(format!(
                "the provided IP ({address}) is not in the valid range. The range of valid IPs is {}",
                self.range
            ));
        }
        if dry_run {
            let taken = objects.get(&ADDRESSES, "", address).is_some();
            return if taken { Err("provided IP is already allocated".to_owned()) } else { Ok(()) };
        }
        match objects.create(&ADDRESSES, ip_address(service, address, self.family())).await {
            Ok(_) => Ok(()),
            Err(error) if error.reason() == "AlreadyExists" => Err("provided IP is already allocated".to_owned()),
            Err(error) => Err(error.message().to_owned()),
        }
    }

    async fn take_any(&self, objects: &dyn Objects, service: &Value, dry_run: bool) -> Result<String, ApiError> {
        let used: BTreeSet<String> =
            objects.list(&ADDRESSES, None).iter().map(|object| object.at("metadata").text("name").to_owned()).collect();
        // The lower part of the range is left to those who ask for a certain address.
        let band = (self.size / 16).clamp(16, 256).min(self.size / 2).max(1);
        let last = self.size - 1;
        let start = if band < last { rand::rng().random_range(band..last) } else { 1 };
        let offsets = (start..last).chain(band..start.max(band)).chain(1..band.min(last));
        for offset in offsets {
            let address = self.address(offset);
            if used.contains(&address) {
                continue;
            }
            if dry_run {
                return Ok(address);
            }
            match objects.create(&ADDRESSES, ip_address(service, &address, self.family())).await {
                Ok(_) => return Ok(address),
                Err(error) if error.reason() == "AlreadyExists" => {}
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::internal("failed to allocate a serviceIP: range is full"))
    }

    fn allocate_ports(
        &self,
        objects: &dyn Objects,
        service: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<BTreeSet<u16>, ApiError> {
        if !node_ports::needs(service) {
            return Ok(BTreeSet::new());
        }
        let had = old.map(node_ports::of).unwrap_or_default();
        let stored: BTreeSet<u16> = NodePorts::stored(objects).difference(&had).copied().collect();
        let (name, mut taken) = (service.at("metadata").text("name").to_owned(), BTreeSet::new());
        let list = SPEC.child("ports");
        let refuse = |path: &Path<'_>, port: i64, why: String, taken: &BTreeSet<u16>| {
            self.ports.give_back(taken);
            ApiError::invalid(SERVICE, &name, &[FieldError::invalid(path, port, why)])
        };
        for (index, port) in service.object_mut("spec").items_mut("ports").iter_mut().enumerate() {
            let item = list.index(index);
            let field = item.child("nodePort");
            let asked = port.int("nodePort").unwrap_or(0);
            let number = u16::try_from(asked).unwrap_or(0);
            if asked == 0 {
                let number = self.ports.take_any(&stored);
                let number = number.ok_or_else(|| {
                    refuse(&field, asked, "failed to allocate a nodePort: range is full".to_owned(), &taken)
                })?;
                taken.insert(number);
                port.put("nodePort", json!(number));
            } else if !had.contains(&number) && !taken.contains(&number) {
                self.ports.take(number, &stored).map_err(|why| refuse(&field, asked, why.to_string(), &taken))?;
                taken.insert(number);
            }
        }
        let spec = service.at("spec");
        let local = spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local";
        if local && spec.int("healthCheckNodePort").unwrap_or(0) == 0 {
            let number = self.ports.take_any(&stored);
            let field = SPEC.child("healthCheckNodePort");
            let number = number
                .ok_or_else(|| refuse(&field, 0, "failed to allocate a nodePort: range is full".to_owned(), &taken))?;
            taken.insert(number);
            service.object_mut("spec").put("healthCheckNodePort", json!(number));
        }
        if dry_run {
            self.ports.give_back(&taken);
            taken.clear();
        }
        Ok(taken)
    }

    /// Gives back what the old service had and the new one, if any, has not.
    pub(super) async fn release(&self, objects: &dyn Objects, old: &Value, service: Option<&Value>) {
        self.bury_orphans(objects).await;
        let kept: Vec<&str> = service.map(|service| service.at("spec").texts("clusterIPs")).unwrap_or_default();
        for address in old.at("spec").texts("clusterIPs") {
            if address != "None" && !kept.contains(&address) {
                give_back(objects, address).await;
            }
        }
        let kept = service.map(node_ports::of).unwrap_or_default();
        self.ports.give_back(&node_ports::of(old).difference(&kept).copied().collect());
    }
}

async fn give_back(objects: &dyn Objects, address: &str) {
    // Gone already is as good as deleted; any other failure leaves an address that the next start finds unused.
    if let Err(error) = objects.delete(&ADDRESSES, "", address, json!({})).await {
        tracing::debug!(address, error = error.message(), "address not given back");
    }
}

fn ip_address(service: &Value, address: &str, family: &str) -> Value {
    let metadata = service.at("metadata");
    json!({
        "kind": "IPAddress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": address,
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family,
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "group": "", "resource": "services", "namespace": metadata.text("namespace"), "name": metadata.text("name"),
        }},
    })
}

fn invalid(service: &Value, error: FieldError) -> ApiError {
    ApiError::invalid(SERVICE, service.at("metadata").text("name"), &[error])
}
