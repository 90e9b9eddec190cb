//! The policy that the labels of a namespace ask for.
//!
//! Upstream: v1.36.2 `k8s.io/pod-security-admission/api/helpers.go`.

use serde_json::Value;

use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path};

/// How strict a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Everything goes.
    Privileged,
    /// No known privilege escalations.
    Baseline,
    /// Current hardening practices.
    Restricted,
}

/// A level as of a minor version, `None` for the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) minor: Option<u32>,
}

impl std::fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.minor {
            None => write!(f, "{level}:latest"),
            Some(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

/// What holds in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

fn level(text: &str) -> Result<Level, &'static str> {
    match text {
        "privileged" => Ok(Level::Privileged),
        "baseline" => Ok(Level::Baseline),
        "restricted" => Ok(Level::Restricted),
        _ => Err("must be one of privileged, baseline, restricted"),
    }
}

fn version(text: &str) -> Result<Option<u32>, &'static str> {
    if text == "latest" {
        return Ok(None);
    }
    let minor = text.strip_prefix("v1.").filter(|minor| !minor.starts_with('0') || *minor == "0");
    minor
        .filter(|minor| minor.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|minor| minor.parse().ok())
        .map(Some)
        .ok_or("must be \"latest\" or \"v1.x\"")
}

/// The policy of labels, and what is wrong with the labels. A bad level counts as restricted when enforced, else as privileged; a bad
/// version as the latest.
pub(super) fn of(labels: &Value) -> (Policy, Vec<FieldError>) {
    const METADATA: Path<'static> = Path::root("metadata");
    let path = METADATA.child("labels");
    let mut errors = Vec::new();
    let mut mode = |name: &str, fallback: Level| -> (LevelVersion, Option<bool>, bool) {
        let mut policy = LevelVersion { level: Level::Privileged, minor: None };
        let key = format!("pod-security.kubernetes.io/{name}");
        let mut level_fine = None;
        if let Some(text) = labels.get(&key).and_then(Value::as_str) {
            match level(text) {
                Ok(level) => policy.level = level,
                Err(why) => {
                    policy.level = fallback;
                    errors.push(FieldError::invalid(&path.key(&key), text, why));
                }
            }
            level_fine = Some(level(text).is_ok());
        }
        let key = format!("{key}-version");
        if let Some(text) = labels.get(&key).and_then(Value::as_str) {
            match version(text) {
                Ok(minor) => policy.minor = minor,
                Err(why) => errors.push(FieldError::invalid(&path.key(&key), text, why)),
            }
        }
        (policy, level_fine, labels.has(&key))
    };
    let (enforce, enforce_level, _) = mode("enforce", Level::Restricted);
    let (audit, ..) = mode("audit", Level::Privileged);
    let (mut warn, warn_level, warn_version) = mode("warn", Level::Privileged);
    if warn_level.is_none() && enforce_level == Some(true) && enforce.level > warn.level {
        warn.level = enforce.level;
        if !warn_version {
            warn.minor = enforce.minor;
        }
    }
    (Policy { enforce, audit, warn }, errors)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn warnings_follow_what_is_enforced() {
        let (policy, errors) = of(
            &json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "v1.20"}),
        );
        assert!(errors.is_empty());
        assert_eq!(policy.warn.to_string(), "baseline:v1.20");
        assert_eq!(policy.audit.to_string(), "privileged:latest");
    }

    #[test]
    fn a_bad_level_is_refused_and_enforced_as_restricted() {
        let (policy, errors) = of(&json!({"pod-security.kubernetes.io/enforce": "superb"}));
        assert_eq!(policy.enforce.level, Level::Restricted);
        assert_eq!(policy.warn.level, Level::Privileged);
        assert_eq!(
            errors[0].to_string(),
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"superb\": must be one of privileged, baseline, restricted"
        );
    }
}
