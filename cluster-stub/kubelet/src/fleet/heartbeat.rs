//! Leases and node statuses that are due: a tick twenty times per renewal interval, at which one node in twenty is
//! renewed, so that thousands of nodes do not renew in the same moment. One task sends the renewals, in the order in which they
//! were due; they do not queue behind what the pods of the nodes have to say.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use super::node::NodeEntry;
use super::requests::{self, Renewal};
use super::{Fleet, Message, Shared};

/// Ticks per renewal interval.
const TICKS: u32 = 20;

/// Renewals a second of all nodes together: more nodes renew less often, and say so in their Leases.
const MOST_A_SECOND: usize = 200;
/// Renewals that are under way at once.
const AT_ONCE: usize = 8;

/// Starts the tick, and the task that renews what is `due`.
pub(super) fn start(shared: &Arc<Shared>, due: mpsc::UnboundedReceiver<(kube::Client, Renewal)>) {
    shared.spawn(async move {
        let renewals = stream::unfold(due, |mut due| async { due.recv().await.map(|next| (next, due)) });
        let sent = renewals.map(|(client, renewal)| async move {
            // A renewal that fails is followed by the next one; the Lease lives through three of them.
            let _ = requests::renew_lease(client, &renewal).await;
        });
        sent.buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
    });
    let (messages, shutdown) = (shared.messages.clone(), shared.shutdown.clone());
    let every = (shared.options.lease_renew_interval / TICKS).max(Duration::from_millis(10));
    shared.tasks.spawn(async move {
        let mut tick = tokio::time::interval(every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = tick.tick() => {}
            }
            if messages.send(Message::Heartbeat).is_err() {
                return;
            }
        }
    });
}

impl Fleet {
    /// How often a node renews its Lease.
    pub(super) fn renew_interval(&self) -> Duration {
        let least = Duration::from_secs(self.nodes.len().div_ceil(MOST_A_SECOND) as u64);
        self.shared.options.lease_renew_interval.max(least)
    }

    /// Renews what is due.
    pub(super) fn heartbeat(&mut self) {
        let now = Timestamp::now();
        let interval = SignedDuration::try_from(self.renew_interval()).unwrap_or_default();
        let frequency = SignedDuration::try_from(self.shared.options.status_report_frequency).unwrap_or_default();
        // At least one, so that a few nodes do not wait for a share of a whole. The tick is that of the shortest interval.
        let ticks = TICKS as usize * self.renew_interval().as_millis() as usize
            / (self.shared.options.lease_renew_interval.as_millis() as usize).max(1);
        let share = self.nodes.len().div_ceil(ticks.max(1)).max(1);
        let mut due: Vec<(Timestamp, Arc<str>)> = Vec::new();
        for (name, entry) in self.nodes.iter().filter(|(_, entry)| entry.keeps_alive()) {
            if entry.renewed.is_none_or(|renewed| now.duration_since(renewed) >= interval) {
                due.push((entry.renewed.unwrap_or_default(), name.clone()));
            }
        }
        due.sort_unstable();
        // New nodes cannot wait for their turn.
        let n_new = due.iter().take_while(|(renewed, _)| *renewed == Timestamp::default()).count();
        for (_, name) in due.into_iter().take(n_new + share) {
            self.renew(&name, now);
        }
        let old = |entry: &NodeEntry| entry.reported.is_none_or(|at| now.duration_since(at) >= frequency);
        let stale: Vec<Arc<str>> = self
            .nodes
            .iter()
            .filter(|(_, entry)| entry.keeps_alive() && entry.reported.is_some() && old(entry))
            .map(|(name, _)| name.clone())
            .take(share)
            .collect();
        for name in stale {
            self.report_conditions(&name, now);
        }
    }
}
