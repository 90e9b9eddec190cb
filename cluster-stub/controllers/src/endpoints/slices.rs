//! Spreads endpoints over EndpointSlices with as few writes as possible. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

/// Most endpoints in one slice. Upstream: kube-controller-manager v1.36.2 `--max-endpoints-per-slice`.
const MAX_ENDPOINTS: usize = 100;

/// Endpoints that share a slice: one family of addresses, the same ports.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// `IPv4` or `IPv6`.
    pub(super) family: String,
    /// The ports.
    pub(super) ports: Vec<EndpointPort>,
    /// The endpoints.
    pub(super) endpoints: Vec<Endpoint>,
}

/// What to write.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// Family, ports and endpoints of new slices.
    pub(super) create: Vec<Group>,
    /// Slices with other endpoints than before.
    pub(super) update: Vec<EndpointSlice>,
    /// Slices that nothing is left for.
    pub(super) delete: Vec<Arc<EndpointSlice>>,
}

/// Plans the writes that make `existing` hold `groups`. With `placeholder`, a family that would have no slice keeps an
/// empty one, so that a Service without endpoints differs from one that nobody looked at.
/// `fresh` brings labels, annotations and owners of a slice up to date and says whether that changed anything.
/// Upstream: k8s.io/endpointslice v1.36.2 reconciler.go `reconcileByAddressType`.
pub(super) fn plan(
    groups: Vec<Group>,
    existing: &[Arc<EndpointSlice>],
    placeholder: &[&str],
    fresh: impl Fn(&mut EndpointSlice) -> bool,
) -> Changes {
    let mut changes = Changes::default();
    let mut unused: Vec<&Arc<EndpointSlice>> = existing.iter().collect();
    let mut families: BTreeMap<String, usize> = BTreeMap::new();
    for group in groups {
        let (ours, rest): (Vec<_>, Vec<_>) = unused.into_iter().partition(|slice| is_for(slice, &group));
        unused = rest;
        let family = group.family.clone();
        let kept = fill(group, ours, &fresh, &mut changes);
        *families.entry(family).or_default() += kept;
    }
    for family in placeholder {
        if families.get(*family).copied().unwrap_or_default() > 0 {
            continue;
        }
        // An old slice is emptied rather than replaced.
        match unused.iter().position(|slice| slice.address_type == *family) {
            Some(i) => {
                let slice = unused.remove(i);
                let mut changed = slice.as_ref().clone();
                let stale = fresh(&mut changed);
                if stale
                    || !endpoints(&changed).is_empty()
                    || changed.ports.as_ref().is_some_and(|ports| !ports.is_empty())
                {
                    changed.endpoints = Some(Vec::new());
                    changed.ports = None;
                    changes.update.push(changed);
                }
            }
            None => {
                changes.create.push(Group { family: (*family).to_owned(), ports: Vec::new(), endpoints: Vec::new() })
            }
        }
    }
    changes.delete.extend(unused.into_iter().cloned());
    changes
}

fn endpoints(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}

fn is_for(slice: &EndpointSlice, group: &Group) -> bool {
    let mut own = slice.ports.clone().unwrap_or_default();
    let mut wanted = group.ports.clone();
    let key = |port: &EndpointPort| (port.name.clone(), port.port, port.protocol.clone());
    own.sort_by_key(key);
    wanted.sort_by_key(key);
    slice.address_type == group.family && own == wanted
}

/// Fits a group's endpoints into its slices; answers how many slices it then has.
fn fill(
    group: Group,
    slices: Vec<&Arc<EndpointSlice>>,
    fresh: impl Fn(&mut EndpointSlice) -> bool,
    changes: &mut Changes,
) -> usize {
    let identity = |endpoint: &Endpoint| {
        let target = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
        (target, endpoint.addresses.clone())
    };
    let mut wanted: BTreeMap<_, Endpoint> =
        group.endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
    let mut kept = Vec::new();
    for slice in slices {
        let mut changed = slice.as_ref().clone();
        let mut dirty = fresh(&mut changed);
        let found: Vec<Endpoint> = endpoints(slice).iter().filter_map(|old| wanted.remove(&identity(old))).collect();
        dirty |= found != endpoints(slice);
        changed.endpoints = Some(found);
        kept.push((slice, changed, dirty));
    }
    let mut homeless: Vec<Endpoint> = wanted.into_values().collect();
    // Slices that are written anyway take newcomers first, then the fullest that still has room.
    kept.sort_by_key(|(_, slice, dirty)| (!*dirty, std::cmp::Reverse(endpoints(slice).len())));
    for (_, slice, dirty) in &mut kept {
        let room = MAX_ENDPOINTS.saturating_sub(endpoints(slice).len()).min(homeless.len());
        if room > 0 {
            slice.endpoints.get_or_insert_default().extend(homeless.drain(..room));
            *dirty = true;
        }
    }
    let mut count = 0;
    for (old, slice, dirty) in kept {
        if endpoints(&slice).is_empty() {
            changes.delete.push(Arc::clone(old));
            continue;
        }
        count += 1;
        if dirty {
            changes.update.push(slice);
        }
    }
    while !homeless.is_empty() {
        let endpoints = homeless.drain(..homeless.len().min(MAX_ENDPOINTS)).collect();
        changes.create.push(Group { family: group.family.clone(), ports: group.ports.clone(), endpoints });
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn endpoint(ip: usize) -> Endpoint {
        Endpoint { addresses: vec![format!("10.0.{}.{}", ip / 250, ip % 250)], ..Endpoint::default() }
    }

    fn group(ips: impl IntoIterator<Item = usize>) -> Group {
        Group {
            family: "IPv4".to_owned(),
            ports: vec![EndpointPort { port: Some(80), ..EndpointPort::default() }],
            endpoints: ips.into_iter().map(endpoint).collect(),
        }
    }

    fn slice(group: &Group) -> Arc<EndpointSlice> {
        Arc::new(EndpointSlice {
            address_type: group.family.clone(),
            ports: Some(group.ports.clone()),
            endpoints: Some(group.endpoints.clone()),
            ..EndpointSlice::default()
        })
    }

    #[test]
    fn nothing_is_written_when_nothing_changes_and_a_gap_is_filled() {
        let full = slice(&group(0..100));
        assert_eq!(plan(vec![group(0..100)], &[full], &["IPv4"], |_| false), Changes::default());
        let some = slice(&group(0..10));
        let changes = plan(vec![group(0..12)], &[some], &["IPv4"], |_| false);
        assert_eq!((changes.create.len(), changes.update.len(), changes.delete.len()), (0, 1, 0));
        assert_eq!(super::endpoints(&changes.update[0]).len(), 12);
    }

    #[test]
    fn a_service_without_endpoints_keeps_one_empty_slice() {
        let changes = plan(Vec::new(), &[], &["IPv4"], |_| false);
        assert_eq!(changes.create.len(), 1);
        let changes = plan(Vec::new(), &[slice(&group(0..3))], &["IPv4"], |_| false);
        assert_eq!((changes.update.len(), changes.delete.len()), (1, 0));
        let emptied = Arc::new(changes.update[0].clone());
        assert_eq!(plan(Vec::new(), &[emptied], &["IPv4"], |_| false), Changes::default());
        let changes = plan(Vec::new(), &[slice(&group(0..3))], &[], |_| false);
        assert_eq!(changes.delete.len(), 1, "mirrored slices need no placeholder");
    }

    proptest! {
        #[test]
        fn every_wanted_endpoint_is_in_exactly_one_slice(
            sizes in prop::collection::vec(0..120_usize, 0..4), wanted in 0..350_usize, offset in 0..100_usize,
        ) {
            let mut next = 0;
            let existing: Vec<Arc<EndpointSlice>> = sizes.iter().enumerate().map(|(i, size)| {
                let size = (*size).min(MAX_ENDPOINTS);
                next += size;
                let mut slice = slice(&group(next - size..next)).as_ref().clone();
                slice.metadata.name = Some(i.to_string());
                Arc::new(slice)
            }).collect();
            let changes = plan(vec![group(offset..offset + wanted)], &existing, &[], |_| false);
            let written = |name: &Option<String>| {
                changes.update.iter().any(|slice| slice.metadata.name == *name)
                    || changes.delete.iter().any(|slice| slice.metadata.name == *name)
            };
            let mut after: Vec<Vec<Endpoint>> = existing
                .iter()
                .filter(|slice| !written(&slice.metadata.name))
                .map(|slice| super::endpoints(slice).to_vec())
                .collect();
            after.extend(changes.update.iter().map(|slice| super::endpoints(slice).to_vec()));
            after.extend(changes.create.iter().map(|group| group.endpoints.clone()));
            prop_assert!(after.iter().all(|slice| slice.len() <= MAX_ENDPOINTS));
            let mut got: Vec<String> = after.into_iter().flatten().map(|e| e.addresses[0].clone()).collect();
            got.sort();
            let mut want: Vec<String> = (offset..offset + wanted).map(|ip| endpoint(ip).addresses[0].clone()).collect();
            want.sort();
            prop_assert_eq!(got, want);
        }
    }
}
