//! What the queue asks of the profiles: the order, the gates, and whether an event may help. The queue itself knows no plugin.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::framework::{
    ActionType, ClusterEvent, ClusterView, EXTENDER, EnqueueExtensions, EventFilter, EventResource, Hint,
    PreEnqueueStatus, Profile, QueuedEntity,
};
use crate::model::Pod;

/// The profiles' part in queueing. Upstream v1.36.2: the queue's lessFn, preEnqueuePluginMap and queueingHintMap.
pub trait QueueRules {
    /// `Less` when `a` is to be tried before `b`.
    fn compare(&self, a: &QueuedEntity, b: &QueuedEntity) -> Ordering;

    /// A number that stands for the entity in that order, if there is one: see [`crate::framework::QueueSortPlugin::rank`].
    fn rank(&self, entity: &QueuedEntity) -> Option<u128> {
        let _ = entity;
        None
    }

    /// The PreEnqueue plugin that holds the pod back, and the events that may make it let go. `gating` is the plugin that
    /// held it last: it is asked first.
    fn gate(&self, pod: &Pod, gating: Option<&'static str>) -> Option<(&'static str, Vec<EventFilter>)>;

    /// The plugins, of any profile, that registered for the event.
    fn interested(&self, event: &ClusterEvent) -> Cow<'_, [&'static str]>;

    /// Whether the event may make a pod schedulable that `plugin` rejected. A plugin that did not register for it says
    /// [`Hint::Skip`].
    fn hint(&self, pod: &Pod, plugin: &'static str, event: &ClusterEvent) -> Hint;
}

/// A plugin's registrations for events.
struct Registration {
    plugin: &'static str,
    /// `None`: the plugin has no extensions of its own, so that any event may help.
    extensions: Option<(Arc<dyn EnqueueExtensions>, Vec<EventFilter>)>,
}

impl Registration {
    fn matches(&self, resource: EventResource, action: ActionType) -> bool {
        let matches = |filter: &EventFilter| filter.matches_kind(resource, action);
        self.extensions.as_ref().is_none_or(|(_, filters)| filters.iter().any(matches))
    }
}

/// Registrations of every profile, collected once.
pub struct EventMap {
    profiles: Vec<(Arc<str>, Vec<Registration>)>,
    /// For each usual kind of event the plugins that registered for it, sorted.
    interested: FxHashMap<(EventResource, ActionType), Box<[&'static str]>>,
}

impl EventMap {
    /// Asks every plugin of the profiles which events it wants to hear of. If there are extenders, any event may help the
    /// pods that they rejected.
    pub fn new(profiles: &[Profile], has_extenders: bool) -> Self {
        let registrations = |profile: &Profile| {
            let extensions = profile.enqueue_extensions().iter();
            let of_plugins = extensions.map(|(plugin, extensions)| Registration {
                plugin,
                extensions: extensions.as_ref().map(|plugin| (Arc::clone(plugin), plugin.events_to_register())),
            });
            let of_extenders = has_extenders.then_some(Registration { plugin: EXTENDER, extensions: None });
            of_plugins.chain(of_extenders).collect()
        };
        let profiles = profiles.iter().map(|p| (Arc::clone(&p.scheduler_name), registrations(p))).collect();
        let mut map = Self { profiles, interested: FxHashMap::default() };
        for resource in EventResource::ALL {
            for action in ActionType::singles() {
                map.interested.insert((resource, action), map.ask_who_is_interested(resource, action).into());
            }
        }
        map
    }

    fn ask_who_is_interested(&self, resource: EventResource, action: ActionType) -> Vec<&'static str> {
        let registrations = self.profiles.iter().flat_map(|(_, registrations)| registrations);
        let interested = registrations.filter(|registration| registration.matches(resource, action));
        let mut plugins: Vec<_> = interested.map(|registration| registration.plugin).collect();
        plugins.sort_unstable();
        plugins.dedup();
        plugins
    }

    fn registration(&self, scheduler_name: &str, plugin: &str) -> Option<&Registration> {
        let (_, registrations) = self.profiles.iter().find(|(name, _)| **name == *scheduler_name)?;
        registrations.iter().find(|registration| registration.plugin == plugin)
    }
}

impl std::fmt::Debug for EventMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventMap").field("n_profiles", &self.profiles.len()).finish_non_exhaustive()
    }
}

/// The rules of built profiles in a given world.
#[derive(Clone, Copy)]
pub struct ProfileRules<'a> {
    /// All profiles; the first one's queue sort plugin orders the queue.
    pub profiles: &'a [Profile],
    /// Their registrations.
    pub events: &'a EventMap,
    /// What PreEnqueue plugins and hints may look at.
    pub world: ClusterView<'a>,
}

impl QueueRules for ProfileRules<'_> {
    fn compare(&self, a: &QueuedEntity, b: &QueuedEntity) -> Ordering {
        self.profiles.first().map_or(Ordering::Equal, |profile| profile.queue_sort().compare(a, b))
    }

    fn rank(&self, entity: &QueuedEntity) -> Option<u128> {
        self.profiles.first()?.queue_sort().rank(entity)
    }

    fn gate(&self, pod: &Pod, gating: Option<&'static str>) -> Option<(&'static str, Vec<EventFilter>)> {
        let profile = self.profiles.iter().find(|profile| profile.scheduler_name == pod.scheduler_name)?;
        let plugins = profile.pre_enqueue();
        let last = gating.and_then(|gating| plugins.iter().position(|plugin| plugin.name() == gating));
        let others = (0..plugins.len()).filter(|at| Some(*at) != last);
        let mut in_order = last.into_iter().chain(others).map(|at| &plugins[at]);
        let holds = in_order.find(|plugin| plugin.pre_enqueue(pod, self.world) != PreEnqueueStatus::Success)?;
        let registration = self.events.registration(&pod.scheduler_name, holds.name());
        let filters = match registration.map(|registration| &registration.extensions) {
            Some(Some((_, filters))) => filters.clone(),
            Some(None) => vec![EventFilter::new(EventResource::WildCard, ActionType::ALL)],
            None => Vec::new(),
        };
        Some((holds.name(), filters))
    }

    fn interested(&self, event: &ClusterEvent) -> Cow<'_, [&'static str]> {
        match self.events.interested.get(&(event.resource, event.action)) {
            Some(plugins) => Cow::Borrowed(plugins),
            None => Cow::Owned(self.events.ask_who_is_interested(event.resource, event.action)),
        }
    }

    fn hint(&self, pod: &Pod, plugin: &'static str, event: &ClusterEvent) -> Hint {
        match self.events.registration(&pod.scheduler_name, plugin) {
            Some(registration) if registration.matches(event.resource, event.action) => {
                match &registration.extensions {
                    // A plugin that cannot judge an event must not leave the pod stuck.
                    Some((extensions, _)) => extensions.hint(pod, event, self.world).unwrap_or(Hint::Queue),
                    None => Hint::Queue,
                }
            }
            _ => Hint::Skip,
        }
    }
}

impl std::fmt::Debug for ProfileRules<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfileRules").field("n_profiles", &self.profiles.len()).finish_non_exhaustive()
    }
}
