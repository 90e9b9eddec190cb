//! What a pod waits for besides images: the ConfigMaps and Secrets of its volumes before its sandbox is made, those of a
//! container's environment before the container starts. Nothing is asked here; the driver looks and says what it found.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::container::InFlight;
use super::steps::event;
use super::{Action, NORMAL, PodLifecycle, SandboxState, Stage, WARNING};
use crate::references;

/// Between two looks at an object that was missing. A real kubelet looks less often; whoever made it wants to see it used.
const LOOK: SignedDuration = SignedDuration::from_secs(1);
/// From one event about a volume to the next: doubled each time. Upstream: v1.36.2 pkg/util/goroutinemap/exponentialbackoff.
const FIRST_MOUNT_RETRY: SignedDuration = SignedDuration::from_millis(500);
const LONGEST_MOUNT_RETRY: SignedDuration = SignedDuration::from_secs(122);
/// From one event about a container to the next. Upstream: pkg/kubelet v1.36.2 `backOffPeriod`.
const SYNC_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// What was found of the objects that something needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Everything is there.
    Everything,
    /// What is missing: the volume or container, and what a kubelet says of it.
    Missing(Vec<(String, String)>),
    /// The API did not answer.
    Unknown,
}

/// Something was missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// When it is looked for again.
    pub(super) next: Timestamp,
    /// When it is told again, and how long after that the next time.
    tell: Timestamp,
    wait: SignedDuration,
}

impl Missing {
    fn new(now: Timestamp, wait: SignedDuration) -> Self {
        Self { next: now, tell: now, wait }
    }
}

/// The pod's volumes, as far as they need objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Mounts {
    asked: bool,
    done: bool,
    missing: Option<Missing>,
}

impl Mounts {
    /// When they want to be looked at again.
    pub(super) fn wakeup(&self) -> Option<Timestamp> {
        self.missing.as_ref().filter(|_| !self.asked && !self.done).map(|missing| missing.next)
    }
}

impl PodLifecycle {
    /// Whether the volumes are there; looks for them if they were not yet, or not long ago.
    pub(super) fn mounted(&mut self, now: Timestamp, out: &mut Vec<Action>) -> bool {
        if self.mounts.done {
            return true;
        }
        if self.mounts.asked || self.mounts.missing.as_ref().is_some_and(|missing| missing.next > now) {
            return false;
        }
        if references::of_volumes(&self.spec).is_empty() {
            self.mounts.done = true;
            return true;
        }
        self.mounts.asked = true;
        out.push(Action::Mount);
        false
    }

    /// Upstream: pkg/volume/util/operationexecutor v1.36.2 `GenerateMountVolumeFunc`.
    pub(super) fn mounts_found(&mut self, found: Found, now: Timestamp, out: &mut Vec<Action>) {
        self.mounts.asked = false;
        if self.stage != Stage::Active || self.sandbox != SandboxState::None {
            return;
        }
        let missing = match found {
            Found::Everything => {
                self.mounts.done = true;
                return;
            }
            Found::Missing(missing) => missing,
            Found::Unknown => Vec::new(),
        };
        let state = self.mounts.missing.get_or_insert_with(|| Missing::new(now, FIRST_MOUNT_RETRY));
        state.next = now + LOOK;
        if state.tell <= now && !missing.is_empty() {
            state.tell = now + state.wait;
            state.wait = (state.wait * 2).min(LONGEST_MOUNT_RETRY);
            for (volume, fault) in missing {
                let text = format!("MountVolume.SetUp failed for volume {volume:?} : {fault}");
                out.push(event(WARNING, "FailedMount", text, None));
            }
        }
    }

    /// Looks for what the environment of container `i` needs; whether there is anything.
    pub(super) fn configure(&mut self, i: usize, out: &mut Vec<Action>) -> bool {
        let container = self.container_spec(&self.records[i]);
        if container.is_none_or(|container| references::of_container(container).is_empty()) {
            return false;
        }
        let record = &mut self.records[i];
        record.in_flight = Some(InFlight::Configure);
        out.push(Action::Configure(record.name.clone()));
        true
    }

    /// Upstream: pkg/kubelet/kuberuntime v1.36.2 `startContainer`, its `ErrCreateContainerConfig`.
    pub(super) fn configured(&mut self, name: &Arc<str>, found: Found, now: Timestamp, out: &mut Vec<Action>) {
        let Some(i) = self.find(name, InFlight::Configure) else { return };
        let image = self.image(i);
        let record = &mut self.records[i];
        record.in_flight = None;
        if self.stage != Stage::Active {
            return;
        }
        let fault = match found {
            Found::Everything => {
                record.missing = None;
                self.start_configured(i, out);
                return;
            }
            Found::Missing(missing) => missing.into_iter().next().map(|(_, fault)| fault),
            Found::Unknown => None,
        };
        let is_first = record.missing.is_none();
        let state = record.missing.get_or_insert_with(|| Missing::new(now, SYNC_RETRY));
        state.next = now + LOOK;
        let Some(fault) = fault else { return };
        let tells = state.tell <= now;
        if tells {
            state.tell = now + state.wait;
        }
        record.waiting = Some(("CreateContainerConfigError".to_owned(), fault.clone()));
        if tells {
            if !is_first {
                let text = format!("Container image \"{image}\" already present on machine");
                out.push(event(NORMAL, "Pulled", text, Some(record)));
            }
            out.push(event(WARNING, "Failed", format!("Error: {fault}"), Some(record)));
        }
    }
}
