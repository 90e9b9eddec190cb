//! The effective plugin list of a profile for each extension point: specific sets against `multiPoint`, and what registered plugins offer.
//! Upstream v1.36.2: framework/runtime/framework.go NewFramework, expandMultiPointPlugins, getValidScoreWeights.

use std::collections::BTreeMap;

use super::error::{ConfigError, nearest};
use super::in_tree::IN_TREE;
use super::plugins::{ExtensionPoint, Plugin};
use super::{KubeSchedulerConfiguration, KubeSchedulerProfile};

/// What is registered: plugin names and the extension points that each plugin has.
pub trait PluginCatalog {
    /// The extension points of `plugin`; `None` if nobody registered it.
    fn extension_points(&self, plugin: &str) -> Option<&[ExtensionPoint]>;
    /// All registered names, for suggestions.
    fn names(&self) -> Vec<&str>;
}

/// The in-tree plugins alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct InTreeCatalog;

impl PluginCatalog for InTreeCatalog {
    fn extension_points(&self, plugin: &str) -> Option<&[ExtensionPoint]> {
        IN_TREE.iter().find(|(name, _)| *name == plugin).map(|(_, points)| *points)
    }

    fn names(&self) -> Vec<&str> {
        IN_TREE.iter().map(|(name, _)| *name).collect()
    }
}

/// The plugins of a profile at each extension point, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectivePlugins {
    lists: BTreeMap<ExtensionPoint, Vec<String>>,
    score_weights: BTreeMap<String, i32>,
}

impl EffectivePlugins {
    /// The plugins that run at `point`.
    pub fn at(&self, point: ExtensionPoint) -> &[String] {
        self.lists.get(&point).map_or(&[], Vec::as_slice)
    }

    /// The factor of a score plugin's normalised score, at least 1 unless the document says a negative one; 0 if it does not score.
    pub fn score_weight(&self, plugin: &str) -> i32 {
        self.score_weights.get(plugin).copied().unwrap_or(0)
    }
}

impl KubeSchedulerConfiguration {
    /// The effective plugins of every profile, in the order of the profiles.
    ///
    /// # Errors
    /// An unknown plugin, one at an extension point that it does not have, one enabled twice, a wrong number of queue sort
    /// or bind plugins, weights that overflow, profiles whose queue sort plugins differ.
    pub fn effective_plugins(&self, catalog: &dyn PluginCatalog) -> Result<Vec<EffectivePlugins>, ConfigError> {
        let mut all: Vec<EffectivePlugins> = Vec::with_capacity(self.profiles.len());
        for profile in &self.profiles {
            let effective = profile.effective_plugins(catalog)?;
            if let Some(first) = all.first() {
                let (got, expected) =
                    (&effective.at(ExtensionPoint::QueueSort)[0], &first.at(ExtensionPoint::QueueSort)[0]);
                if got != expected {
                    return Err(ConfigError::DifferentQueueSort {
                        profile: profile.scheduler_name.clone(),
                        got: got.clone(),
                        expected: expected.clone(),
                    });
                }
                let (got_args, expected_args) = (profile.args(got), self.profiles[0].args(expected));
                if got_args != expected_args {
                    return Err(ConfigError::DifferentQueueSort {
                        profile: profile.scheduler_name.clone(),
                        got: format!("{got} {got_args:?}"),
                        expected: format!("{expected} {expected_args:?}"),
                    });
                }
            }
            all.push(effective);
        }
        Ok(all)
    }
}

impl KubeSchedulerProfile {
    /// The effective plugins of this profile alone.
    ///
    /// # Errors
    /// As [`KubeSchedulerConfiguration::effective_plugins`].
    pub fn effective_plugins(&self, catalog: &dyn PluginCatalog) -> Result<EffectivePlugins, ConfigError> {
        let mut effective = EffectivePlugins::default();
        for point in ExtensionPoint::ALL {
            let list = self.resolve(point, catalog)?;
            effective.lists.insert(point, list);
        }
        self.check_counts(&effective)?;
        effective.score_weights = self.weights(ExtensionPoint::Score, catalog)?;
        self.weights(ExtensionPoint::PlacementScore, catalog)?;
        Ok(effective)
    }

    /// First what the specific set and `multiPoint` both name, in the order of the specific set; then what only `multiPoint`
    /// brings; then the rest of the specific set.
    fn resolve(&self, point: ExtensionPoint, catalog: &dyn PluginCatalog) -> Result<Vec<String>, ConfigError> {
        let set = self.plugins.at(point);
        let multi_point = &self.plugins.multi_point.enabled;
        let mut specific: Vec<&str> = Vec::new();
        for plugin in &set.enabled {
            if !self.points_of(plugin, point.field(), catalog)?.contains(&point) {
                return Err(ConfigError::NoSuchExtensionPoint {
                    profile: self.scheduler_name.clone(),
                    point: point.field(),
                    plugin: plugin.name.clone(),
                });
            }
            self.push_once(&mut specific, &plugin.name, point.field())?;
        }
        let is_disabled = |name: &str| set.disabled.iter().any(|disabled| disabled == name);
        if is_disabled("*") || multi_point.is_empty() {
            return Ok(specific.into_iter().map(str::to_owned).collect());
        }
        let mut expanded: Vec<&str> = Vec::new();
        for plugin in multi_point {
            let has_point = self.points_of(plugin, "multiPoint", catalog)?.contains(&point);
            if has_point && !is_disabled(&plugin.name) && !specific.contains(&plugin.name.as_str()) {
                self.push_once(&mut expanded, &plugin.name, "multiPoint")?;
            }
        }
        let in_multi_point = |name: &&str| multi_point.iter().any(|plugin| plugin.name == *name) && !is_disabled(name);
        let (overriding, added): (Vec<&str>, Vec<&str>) = specific.iter().partition(|name| in_multi_point(name));
        Ok(overriding.into_iter().chain(expanded).chain(added).map(str::to_owned).collect())
    }

    fn points_of<'c>(
        &self,
        plugin: &Plugin,
        point: &'static str,
        catalog: &'c dyn PluginCatalog,
    ) -> Result<&'c [ExtensionPoint], ConfigError> {
        catalog.extension_points(&plugin.name).ok_or_else(|| ConfigError::UnknownPlugin {
            profile: self.scheduler_name.clone(),
            point,
            plugin: plugin.name.clone(),
            nearest: nearest(&plugin.name, catalog.names()),
        })
    }

    fn push_once<'p>(&self, list: &mut Vec<&'p str>, name: &'p str, point: &'static str) -> Result<(), ConfigError> {
        if list.contains(&name) {
            let (profile, plugin) = (self.scheduler_name.clone(), name.to_owned());
            return Err(ConfigError::EnabledTwice { profile, point, plugin });
        }
        list.push(name);
        Ok(())
    }

    fn check_counts(&self, effective: &EffectivePlugins) -> Result<(), ConfigError> {
        let count = |point| effective.at(point).len();
        let (n_queue_sort, n_bind) = (count(ExtensionPoint::QueueSort), count(ExtensionPoint::Bind));
        let n_placement_generate = count(ExtensionPoint::PlacementGenerate);
        let (point, got, expected) = if n_queue_sort != 1 {
            (ExtensionPoint::QueueSort, n_queue_sort, "exactly one")
        } else if n_bind == 0 {
            (ExtensionPoint::Bind, n_bind, "at least one")
        } else if n_placement_generate > 1 {
            (ExtensionPoint::PlacementGenerate, n_placement_generate, "at most one")
        } else {
            return Ok(());
        };
        Err(ConfigError::PluginCount { profile: self.scheduler_name.clone(), point: point.field(), got, expected })
    }

    /// A weight in the specific set wins over the one in `multiPoint`; 0 means 1.
    fn weights(
        &self,
        point: ExtensionPoint,
        catalog: &dyn PluginCatalog,
    ) -> Result<BTreeMap<String, i32>, ConfigError> {
        const MAX_SCORE: i64 = 100;
        let mut weights = BTreeMap::new();
        let mut total: i64 = 0;
        for plugin in self.plugins.at(point).enabled.iter().chain(&self.plugins.multi_point.enabled) {
            let scores = self.points_of(plugin, point.field(), catalog)?.contains(&point);
            if !scores || weights.contains_key(&plugin.name) {
                continue;
            }
            let weight = if plugin.weight == 0 { 1 } else { plugin.weight };
            total = total
                .checked_add(i64::from(weight) * MAX_SCORE)
                .ok_or_else(|| ConfigError::ScoreOverflow { profile: self.scheduler_name.clone() })?;
            weights.insert(plugin.name.clone(), weight);
        }
        Ok(weights)
    }
}
