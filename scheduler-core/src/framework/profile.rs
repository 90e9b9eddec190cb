//! A profile: the built plugins of one scheduler name, one ordered list per extension point.

use std::sync::Arc;

use super::{
    BindPlugin, BuildError, DynFilter, DynScore, EnqueueExtensions, Extensions, PermitPlugin, PostBindPlugin,
    PostFilterPlugin, PreBindPlugin, PreEnqueuePlugin, QueueSortPlugin, Registry, ReservePlugin,
};
use crate::config::KubeSchedulerProfile;
use crate::config::plugins::ExtensionPoint;
use crate::config::profile::EffectivePlugins;

/// A plugin at the PreFilter and Filter points of one profile.
pub(crate) struct FilterEntry {
    pub(crate) plugin: Arc<dyn DynFilter>,
    /// Whether it runs at Filter, and not only at PreFilter.
    pub(crate) filters: bool,
}

/// A plugin at the PreScore and Score points of one profile.
pub(crate) struct ScoreEntry {
    pub(crate) plugin: Arc<dyn DynScore>,
    /// Factor of the normalised score; `None` if it runs at PreScore only.
    pub(crate) weight: Option<i64>,
}

/// The plugins that serve one `schedulerName`. Upstream: runtime `frameworkImpl` (v1.36.2).
pub struct Profile {
    /// The name that pods ask for in `spec.schedulerName`.
    pub scheduler_name: Arc<str>,
    /// Per cent of the nodes after which the search for feasible ones stops; 0 is adaptive.
    pub percentage_of_nodes_to_score: i32,
    /// Every plugin at PreFilter or Filter; state slots have the same positions.
    pub(crate) filters: Vec<FilterEntry>,
    /// Positions in `filters`, in the order of the PreFilter point.
    pub(crate) pre_filter_order: Vec<usize>,
    /// Positions in `filters`, in the order of the Filter point.
    pub(crate) filter_order: Vec<usize>,
    /// Every plugin at PreScore or Score; state slots have the same positions.
    pub(crate) scores: Vec<ScoreEntry>,
    /// For each of `scores`, the position of the same plugin in `filters`.
    pub(crate) score_twins: Vec<Option<usize>>,
    /// Positions in `scores`, in the order of the PreScore point.
    pub(crate) pre_score_order: Vec<usize>,
    /// Positions in `scores`, in the order of the Score point.
    pub(crate) score_order: Vec<usize>,
    pub(crate) pre_enqueue: Vec<Arc<dyn PreEnqueuePlugin>>,
    pub(crate) queue_sort: Arc<dyn QueueSortPlugin>,
    pub(crate) post_filter: Vec<Arc<dyn PostFilterPlugin>>,
    pub(crate) reserve: Vec<Arc<dyn ReservePlugin>>,
    pub(crate) permit: Vec<Arc<dyn PermitPlugin>>,
    pub(crate) pre_bind: Vec<Arc<dyn PreBindPlugin>>,
    pub(crate) bind: Vec<Arc<dyn BindPlugin>>,
    pub(crate) post_bind: Vec<Arc<dyn PostBindPlugin>>,
    /// Every enabled plugin with its enqueue extensions, if it has some, by name.
    pub(crate) enqueue: Vec<(&'static str, Option<Arc<dyn EnqueueExtensions>>)>,
}

/// Finds or builds each plugin once.
struct Instances<'a> {
    registry: &'a Registry,
    config: &'a KubeSchedulerProfile,
    built: Vec<(&'static str, Extensions)>,
}

impl Instances<'_> {
    fn get(&mut self, name: &str) -> Result<&(&'static str, Extensions), (String, BuildError)> {
        if let Some(at) = self.built.iter().position(|(built, _)| *built == name) {
            return Ok(&self.built[at]);
        }
        let built = self.registry.build(name, self.config.args(name)).map_err(|error| (name.to_owned(), error))?;
        self.built.push(built);
        Ok(self.built.last().expect("pushed on the line above"))
    }

    fn collect<T>(
        &mut self,
        names: &[String],
        point: ExtensionPoint,
        pick: impl Fn(&Extensions) -> Option<T>,
    ) -> Result<Vec<T>, (String, BuildError)> {
        names
            .iter()
            .map(|name| {
                let (_, extensions) = self.get(name)?;
                pick(extensions)
                    .ok_or_else(|| (name.clone(), BuildError(format!("was built without extension point {point}"))))
            })
            .collect()
    }
}

impl Profile {
    /// Builds the plugins of a profile. The error names the plugin that failed.
    pub(crate) fn build(
        config: &KubeSchedulerProfile,
        effective: &EffectivePlugins,
        percentage_of_nodes_to_score: i32,
        registry: &Registry,
    ) -> Result<Self, (String, BuildError)> {
        use ExtensionPoint as Point;
        let mut instances = Instances { registry, config, built: Vec::new() };

        let mut filters: Vec<FilterEntry> = Vec::new();
        let mut positions: Vec<(String, usize)> = Vec::new();
        let mut filter_position = |name: &String, instances: &mut Instances<'_>, filters: &mut Vec<FilterEntry>| {
            if let Some((_, at)) = positions.iter().find(|(known, _)| known == name) {
                return Ok(*at);
            }
            let plugin = instances
                .collect(std::slice::from_ref(name), Point::Filter, |extensions| extensions.filter.clone())?
                .remove(0);
            filters.push(FilterEntry { plugin, filters: false });
            positions.push((name.clone(), filters.len() - 1));
            Ok(filters.len() - 1)
        };
        let mut pre_filter_order = Vec::new();
        for name in effective.at(Point::PreFilter) {
            pre_filter_order.push(filter_position(name, &mut instances, &mut filters)?);
        }
        let mut filter_order = Vec::new();
        for name in effective.at(Point::Filter) {
            let at = filter_position(name, &mut instances, &mut filters)?;
            filters[at].filters = true;
            filter_order.push(at);
        }

        let mut scores: Vec<ScoreEntry> = Vec::new();
        let mut positions: Vec<(String, usize)> = Vec::new();
        let mut score_position = |name: &String, instances: &mut Instances<'_>, scores: &mut Vec<ScoreEntry>| {
            if let Some((_, at)) = positions.iter().find(|(known, _)| known == name) {
                return Ok(*at);
            }
            let plugin = instances
                .collect(std::slice::from_ref(name), Point::Score, |extensions| extensions.score.clone())?
                .remove(0);
            scores.push(ScoreEntry { plugin, weight: None });
            positions.push((name.clone(), scores.len() - 1));
            Ok(scores.len() - 1)
        };
        let mut pre_score_order = Vec::new();
        for name in effective.at(Point::PreScore) {
            pre_score_order.push(score_position(name, &mut instances, &mut scores)?);
        }
        let mut score_order = Vec::new();
        for name in effective.at(Point::Score) {
            let at = score_position(name, &mut instances, &mut scores)?;
            scores[at].weight = Some(i64::from(effective.score_weight(name)));
            score_order.push(at);
        }

        let score_twins = scores
            .iter()
            .map(|score| filters.iter().position(|filter| filter.plugin.name() == score.plugin.name()))
            .collect();

        let pre_enqueue =
            instances.collect(effective.at(Point::PreEnqueue), Point::PreEnqueue, |e| e.pre_enqueue.clone())?;
        let queue_sort = instances
            .collect(effective.at(Point::QueueSort), Point::QueueSort, |e| e.queue_sort.clone())?
            .pop()
            .ok_or_else(|| (String::new(), BuildError("no queue sort plugin is enabled".to_owned())))?;
        let post_filter =
            instances.collect(effective.at(Point::PostFilter), Point::PostFilter, |e| e.post_filter.clone())?;
        let reserve = instances.collect(effective.at(Point::Reserve), Point::Reserve, |e| e.reserve.clone())?;
        let permit = instances.collect(effective.at(Point::Permit), Point::Permit, |e| e.permit.clone())?;
        let pre_bind = instances.collect(effective.at(Point::PreBind), Point::PreBind, |e| e.pre_bind.clone())?;
        let bind = instances.collect(effective.at(Point::Bind), Point::Bind, |e| e.bind.clone())?;
        let post_bind = instances.collect(effective.at(Point::PostBind), Point::PostBind, |e| e.post_bind.clone())?;
        let enqueue = instances.built.iter().map(|(name, extensions)| (*name, extensions.enqueue.clone())).collect();

        Ok(Self {
            scheduler_name: config.scheduler_name.as_str().into(),
            percentage_of_nodes_to_score,
            filters,
            pre_filter_order,
            filter_order,
            score_twins,
            scores,
            pre_score_order,
            score_order,
            pre_enqueue,
            queue_sort,
            post_filter,
            reserve,
            permit,
            pre_bind,
            bind,
            post_bind,
            enqueue,
        })
    }

    /// PreEnqueue plugins, in order.
    #[must_use]
    pub fn pre_enqueue(&self) -> &[Arc<dyn PreEnqueuePlugin>] {
        &self.pre_enqueue
    }

    /// The plugin that orders the queue.
    #[must_use]
    pub fn queue_sort(&self) -> &Arc<dyn QueueSortPlugin> {
        &self.queue_sort
    }

    /// Every enabled plugin by name, with its enqueue extensions if it has some.
    #[must_use]
    pub fn enqueue_extensions(&self) -> &[(&'static str, Option<Arc<dyn EnqueueExtensions>>)] {
        &self.enqueue
    }
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("scheduler_name", &self.scheduler_name)
            .field("n_filters", &self.filters.len())
            .field("n_scores", &self.scores.len())
            .finish_non_exhaustive()
    }
}
