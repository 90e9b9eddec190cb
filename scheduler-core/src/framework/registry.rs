//! Which plugins exist, which extension points they have, and how each is built from its arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    BindPlugin, DynFilter, DynScore, EnqueueExtensions, FilterPlugin, PermitPlugin, Plugin, PostBindPlugin,
    PostFilterPlugin, PreBindPlugin, PreEnqueuePlugin, QueueSortPlugin, ReservePlugin, ScorePlugin,
};
use crate::config::args::PluginArgs;
use crate::config::plugins::ExtensionPoint;
use crate::config::profile::PluginCatalog;

/// One built plugin: the same instance at each of its extension points.
///
/// Forgetting to implement a trait is a compile error at the line that registers the point:
///
/// ```compile_fail,E0277
/// use std::sync::Arc;
/// use scheduler_core::framework::{Extensions, Plugin};
///
/// struct Spare;
///
/// impl Plugin for Spare {}
///
/// // error[E0277]: `Spare` is not a filter plugin
/// //   note: implement `FilterPlugin` with at least `type State`, `filter` and `reasons`, and `Plugin`
/// Extensions::new().filter(&Arc::new(Spare));
/// ```
#[derive(Default, Clone)]
pub struct Extensions {
    pub(crate) points: Vec<ExtensionPoint>,
    pub(crate) pre_enqueue: Option<Arc<dyn PreEnqueuePlugin>>,
    pub(crate) queue_sort: Option<Arc<dyn QueueSortPlugin>>,
    pub(crate) filter: Option<Arc<dyn DynFilter>>,
    pub(crate) post_filter: Option<Arc<dyn PostFilterPlugin>>,
    pub(crate) score: Option<Arc<dyn DynScore>>,
    pub(crate) reserve: Option<Arc<dyn ReservePlugin>>,
    pub(crate) permit: Option<Arc<dyn PermitPlugin>>,
    pub(crate) pre_bind: Option<Arc<dyn PreBindPlugin>>,
    pub(crate) bind: Option<Arc<dyn BindPlugin>>,
    pub(crate) post_bind: Option<Arc<dyn PostBindPlugin>>,
    pub(crate) enqueue: Option<Arc<dyn EnqueueExtensions>>,
}

impl Extensions {
    /// A plugin without extension points, to which the methods below add.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The plugin runs at PreEnqueue.
    #[must_use]
    pub fn pre_enqueue<P: PreEnqueuePlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::PreEnqueue);
        self.pre_enqueue = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin orders the queue.
    #[must_use]
    pub fn queue_sort<P: QueueSortPlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::QueueSort);
        self.queue_sort = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin runs at PreFilter.
    #[must_use]
    pub fn pre_filter<P: FilterPlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::PreFilter);
        self.filter = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin runs at Filter.
    #[must_use]
    pub fn filter<P: FilterPlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::Filter);
        self.filter = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin runs at PostFilter.
    #[must_use]
    pub fn post_filter<P: PostFilterPlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::PostFilter);
        self.post_filter = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin runs at PreScore.
    #[must_use]
    pub fn pre_score<P: ScorePlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::PreScore);
        self.score = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin runs at Score (and NormalizeScore).
    #[must_use]
    pub fn score<P: ScorePlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::Score);
        self.score = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin runs at Reserve and Unreserve.
    #[must_use]
    pub fn reserve<P: ReservePlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::Reserve);
        self.reserve = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin runs at Permit.
    #[must_use]
    pub fn permit<P: PermitPlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::Permit);
        self.permit = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin runs at PreBind.
    #[must_use]
    pub fn pre_bind<P: PreBindPlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::PreBind);
        self.pre_bind = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin binds.
    #[must_use]
    pub fn bind<P: BindPlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::Bind);
        self.bind = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin runs at PostBind.
    #[must_use]
    pub fn post_bind<P: PostBindPlugin>(mut self, plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::PostBind);
        self.post_bind = Some(Arc::<P>::clone(plugin));
        self
    }

    /// The plugin has the point PlacementGenerate, which belongs to cycles of pod groups. Those are off in v1.36.2.
    #[must_use]
    pub fn placement_generate<P: Plugin>(mut self, _plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::PlacementGenerate);
        self
    }

    /// The plugin has the point PlacementScore, which belongs to cycles of pod groups. Those are off in v1.36.2.
    #[must_use]
    pub fn placement_score<P: Plugin>(mut self, _plugin: &Arc<P>) -> Self {
        self.points.push(ExtensionPoint::PlacementScore);
        self
    }

    /// The plugin tells which events may help pods that it rejected. Without this every event does.
    #[must_use]
    pub fn enqueue<P: EnqueueExtensions>(mut self, plugin: &Arc<P>) -> Self {
        self.enqueue = Some(Arc::<P>::clone(plugin));
        self
    }
}

impl Extensions {
    /// What the plugin calls itself, once for each trait.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        let names = [
            self.pre_enqueue.as_ref().map(|plugin| plugin.name()),
            self.queue_sort.as_ref().map(|plugin| plugin.name()),
            self.filter.as_ref().map(|plugin| plugin.name()),
            self.post_filter.as_ref().map(|plugin| plugin.name()),
            self.score.as_ref().map(|plugin| plugin.name()),
            self.reserve.as_ref().map(|plugin| plugin.name()),
            self.permit.as_ref().map(|plugin| plugin.name()),
            self.pre_bind.as_ref().map(|plugin| plugin.name()),
            self.bind.as_ref().map(|plugin| plugin.name()),
            self.post_bind.as_ref().map(|plugin| plugin.name()),
            self.enqueue.as_ref().map(|plugin| plugin.name()),
        ];
        names.into_iter().flatten()
    }

    /// Whether the plugin has this extension point.
    #[must_use]
    pub fn has(&self, point: ExtensionPoint) -> bool {
        self.points.contains(&point)
    }
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Extensions").field(&self.points).finish()
    }
}

/// Why a plugin could not be built from its arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(pub String);

/// Why a plugin could not be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Two plugins have one name.
    #[error("a plugin named {0:?} has been registered already")]
    Duplicate(&'static str),
}

/// The arguments that a configuration gives a plugin, if it gives some.
pub type Args<'a> = Option<&'a PluginArgs>;

/// What building a plugin gives.
pub type Built = Result<Extensions, BuildError>;

/// Reads the arguments of an out-of-tree plugin; without arguments the type's own defaults count.
///
/// ```
/// use scheduler_core::config::args::PluginArgs;
/// use scheduler_core::framework::decode_args;
///
/// #[derive(serde::Deserialize)]
/// #[serde(rename_all = "camelCase", deny_unknown_fields)]
/// struct SpareArgs {
///     node_name: String,
/// }
///
/// let args = PluginArgs::Raw(serde_json::json!({"nodeName": "spare"}));
/// assert_eq!(decode_args::<SpareArgs>(Some(&args)).unwrap().node_name, "spare");
/// let error = decode_args::<SpareArgs>(None).err().unwrap();
/// assert_eq!(error.to_string(), "arguments: missing field `nodeName`");
/// ```
///
/// # Errors
/// The arguments do not have the shape of `T`.
pub fn decode_args<T: DeserializeOwned>(args: Args<'_>) -> Result<T, BuildError> {
    let value = match args {
        Some(PluginArgs::Raw(value)) => value.clone(),
        Some(other) => return Err(BuildError(format!("arguments {other:?} are those of an in-tree plugin"))),
        None => Value::Object(serde_json::Map::new()),
    };
    serde_json::from_value(value).map_err(|error| BuildError(format!("arguments: {error}")))
}

type Factory = dyn Fn(Option<&PluginArgs>) -> Result<Extensions, BuildError> + Send + Sync;

struct Entry {
    points: &'static [ExtensionPoint],
    factory: Box<Factory>,
}

/// All plugins that a configuration may name. [`crate::plugins::registry`] holds the in-tree ones.
#[derive(Default)]
pub struct Registry {
    entries: BTreeMap<&'static str, Entry>,
}

impl Registry {
    /// A registry without plugins.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a plugin under a name, with the extension points that it has and how to build it. Arguments are
    /// `None` when the configuration gives none and the plugin has no defaults of its own.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn register(
        &mut self,
        name: &'static str,
        points: &'static [ExtensionPoint],
        factory: impl Fn(Option<&PluginArgs>) -> Result<Extensions, BuildError> + Send + Sync + 'static,
    ) -> Result<(), RegisterError> {
        if self.entries.contains_key(name) {
            return Err(RegisterError::Duplicate(name));
        }
        self.entries.insert(name, Entry { points, factory: Box::new(factory) });
        Ok(())
    }

    /// Builds one registered plugin, for tests and tools; a scheduler builds its own.
    ///
    /// # Errors
    /// The name is not registered, or the plugin refuses the arguments.
    pub fn plugin(&self, name: &str, args: Args<'_>) -> Built {
        self.build(name, args).map(|(_, extensions)| extensions)
    }

    /// Builds a registered plugin. The registered name, with the built extension points.
    pub(crate) fn build(
        &self,
        name: &str,
        args: Option<&PluginArgs>,
    ) -> Result<(&'static str, Extensions), BuildError> {
        let (&name, entry) =
            self.entries.get_key_value(name).ok_or_else(|| BuildError(format!("plugin {name:?} is not registered")))?;
        let extensions = (entry.factory)(args)?;
        if let Some(other) = extensions.names().find(|other| *other != name) {
            return Err(BuildError(format!(
                "plugin {name:?} was registered under that name but calls itself {other:?}"
            )));
        }
        match entry.points.iter().find(|point| !extensions.points.contains(point)) {
            Some(missing) => {
                Err(BuildError(format!("plugin {name:?} was registered for {missing} but built without it")))
            }
            None => Ok((name, extensions)),
        }
    }
}

impl PluginCatalog for Registry {
    fn extension_points(&self, plugin: &str) -> Option<&[ExtensionPoint]> {
        self.entries.get(plugin).map(|entry| entry.points)
    }

    fn names(&self) -> Vec<&str> {
        self.entries.keys().copied().collect()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries.keys()).finish()
    }
}
