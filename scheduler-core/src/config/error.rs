//! What can be wrong with a KubeSchedulerConfiguration, each error with the path of the field. No decoding here.

use std::fmt;

/// Where in the document a field stands, for example `profiles[0].pluginConfig[1].args.resources[2].weight`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(String);

impl FieldPath {
    /// The document itself; children of it print without a leading dot.
    pub fn root() -> Self {
        Self::default()
    }

    /// The field `name` of the object at this path.
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// The element `index` of the list at this path.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("document") } else { f.write_str(&self.0) }
    }
}

/// Why a KubeSchedulerConfiguration was refused. Every variant names the field or the plugin, and what was expected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is neither YAML nor JSON, or a mapping has the same key twice.
    #[error("document is not readable as YAML or JSON: {detail}")]
    Syntax {
        /// The parser's message with line and column.
        detail: String,
    },
    /// `apiVersion` or `kind` is missing or not the one that is served.
    #[error("{path}: got {got}, expected {expected:?}")]
    UnexpectedType {
        /// `apiVersion` or `kind`, of the document or of plugin arguments.
        path: FieldPath,
        /// What the document says, quoted, or `nothing`.
        got: String,
        /// The only value that is accepted.
        expected: String,
    },
    /// A field that the type does not have.
    #[error("{path}: unknown field{}", nearest.as_ref().map(|name| format!(", did you mean {name:?}?")).unwrap_or_default())]
    UnknownField {
        /// Path of the unknown field.
        path: FieldPath,
        /// The known field with the most similar name.
        nearest: Option<String>,
    },
    /// A value of the wrong JSON type, or a number that does not fit its field.
    #[error("{path}: got {got}, expected {expected}")]
    WrongType {
        /// Path of the field.
        path: FieldPath,
        /// The value found.
        got: String,
        /// What the field takes.
        expected: &'static str,
    },
    /// A value outside its allowed range or form.
    #[error("{path}: invalid value {value}: {detail}")]
    Invalid {
        /// Path of the field.
        path: FieldPath,
        /// The refused value.
        value: String,
        /// What is expected of the value.
        detail: String,
    },
    /// A value that is none of the enumerated ones.
    #[error("{path}: unsupported value {value:?}, expected one of {}", supported.join(", "))]
    NotSupported {
        /// Path of the field.
        path: FieldPath,
        /// The refused value.
        value: String,
        /// The accepted values.
        supported: Vec<&'static str>,
    },
    /// A field that must be set is absent.
    #[error("{path}: required value: {detail}")]
    Required {
        /// Path of the field.
        path: FieldPath,
        /// When and why it is required.
        detail: String,
    },
    /// A field that must not be set here.
    #[error("{path}: forbidden: {detail}")]
    Forbidden {
        /// Path of the field.
        path: FieldPath,
        /// Why it may not be set.
        detail: String,
    },
    /// A value that must be unique stands twice.
    #[error("{path}: duplicate value {value:?}")]
    Duplicate {
        /// Path of the second occurrence.
        path: FieldPath,
        /// The repeated value.
        value: String,
    },
    /// A plugin is enabled that nobody registered.
    #[error("profile {profile:?}: {point} plugin {plugin:?} does not exist{}", nearest.as_ref().map(|name| format!(", did you mean {name:?}?")).unwrap_or_default())]
    UnknownPlugin {
        /// `schedulerName` of the profile.
        profile: String,
        /// The extension point at which it is enabled.
        point: &'static str,
        /// The unknown name.
        plugin: String,
        /// The registered plugin with the most similar name.
        nearest: Option<String>,
    },
    /// A plugin is enabled at an extension point that it does not have.
    #[error("profile {profile:?}: plugin {plugin:?} has no extension point {point}")]
    NoSuchExtensionPoint {
        /// `schedulerName` of the profile.
        profile: String,
        /// The extension point.
        point: &'static str,
        /// The plugin.
        plugin: String,
    },
    /// A plugin is enabled twice at one extension point.
    #[error("profile {profile:?}: plugin {plugin:?} is enabled twice at {point}")]
    EnabledTwice {
        /// `schedulerName` of the profile.
        profile: String,
        /// The extension point, or `multiPoint`.
        point: &'static str,
        /// The plugin.
        plugin: String,
    },
    /// The number of plugins at an extension point is wrong.
    #[error("profile {profile:?}: {got} {point} plugins are enabled, expected {expected}")]
    PluginCount {
        /// `schedulerName` of the profile.
        profile: String,
        /// The extension point.
        point: &'static str,
        /// How many plugins are enabled there.
        got: usize,
        /// How many there must be, in words.
        expected: &'static str,
    },
    /// The weights are so large that a total score could overflow.
    #[error("profile {profile:?}: the weights of the score plugins add up to more than a total score can hold")]
    ScoreOverflow {
        /// `schedulerName` of the profile.
        profile: String,
    },
    /// Profiles with different queue sort plugins or arguments; there is one queue for all.
    #[error("profile {profile:?}: queue sort plugin {got:?} differs from {expected:?} of the first profile")]
    DifferentQueueSort {
        /// `schedulerName` of the profile.
        profile: String,
        /// The plugin of this profile, with its arguments if only those differ.
        got: String,
        /// The plugin of the first profile.
        expected: String,
    },
    /// A plugin refused its arguments when it was built.
    #[error("profile {profile:?}: initializing plugin {plugin:?}: {detail}")]
    Plugin {
        /// `schedulerName` of the profile.
        profile: String,
        /// The plugin.
        plugin: String,
        /// What it says.
        detail: String,
    },
    /// A scheduler extender is configured where none is called.
    #[error("{path}: extender {url_prefix:?} is not called here, remove it")]
    ExtenderUnavailable {
        /// Path of the extender.
        path: FieldPath,
        /// Its `urlPrefix`.
        url_prefix: String,
    },
    /// More than one of the above, in document order.
    #[error("{}", lines(.0))]
    Several(Vec<ConfigError>),
}

impl ConfigError {
    /// One error for all of `errors`; `Ok` when there are none.
    pub(crate) fn from_all(mut errors: Vec<ConfigError>) -> Result<(), ConfigError> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(ConfigError::Several(errors)),
        }
    }
}

fn lines(errors: &[ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The candidate that is most like `name`: equal but for case, or within a third of its letters by edit distance.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(&lower, &candidate.to_lowercase()), candidate))
        .min_by_key(|(distance, candidate)| (*distance, candidate.len()))
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3)
        .map(|(_, candidate)| candidate.to_owned())
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::{FieldPath, nearest};

    #[test]
    fn paths_print_as_upstream_prints_them() {
        let path = FieldPath::root().child("profiles").index(0).child("plugins");
        assert_eq!(path.to_string(), "profiles[0].plugins");
        assert_eq!(FieldPath::root().to_string(), "document");
    }

    #[test]
    fn the_nearest_name_is_found_or_none() {
        let known = ["hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"];
        assert_eq!(nearest("hardPodAffinityWeigth", known).as_deref(), Some("hardPodAffinityWeight"));
        assert_eq!(nearest("HARDPODAFFINITYWEIGHT", known).as_deref(), Some("hardPodAffinityWeight"));
        assert_eq!(nearest("color", known), None);
    }
}
