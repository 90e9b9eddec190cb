//! A recorded case as it stands in the file.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// One file.
#[derive(Deserialize)]
pub(crate) struct Suite {
    #[serde(rename = "suite")]
    pub(crate) name: String,
    pub(crate) cases: Vec<Case>,
}

impl Suite {
    #[expect(clippy::disallowed_methods, reason = "a test reads its data")]
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut text = Vec::new();
        if path.extension().is_some_and(|extension| extension == "gz") {
            flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut text).expect("a gzip file");
        } else {
            text = bytes;
        }
        serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) config: Option<Value>,
    pub(crate) objects: Vec<Value>,
    pub(crate) pod: Value,
    pub(crate) expect: Expect,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Expect {
    pub(crate) result: ExpectResult,
    pub(crate) pre_enqueue: Option<Status>,
    pub(crate) pre_filter: Option<PreFilter>,
    pub(crate) filter: Option<BTreeMap<String, Option<Status>>>,
    pub(crate) filter_all: Option<BTreeMap<String, BTreeMap<String, Status>>>,
    pub(crate) feasible: Option<Vec<String>>,
    pub(crate) scores: Option<BTreeMap<String, Scores>>,
    pub(crate) skip_score: Option<Vec<String>>,
    pub(crate) total: Option<Vec<i64>>,
    pub(crate) best: Option<Vec<String>>,
    pub(crate) message: Option<String>,
    pub(crate) preemption: Option<Preemption>,
    pub(crate) plugins: Option<BTreeMap<String, Vec<String>>>,
}

#[derive(Deserialize)]
pub(crate) struct ExpectResult {
    pub(crate) code: String,
    pub(crate) selected: Option<Vec<String>>,
    pub(crate) evaluated: Option<usize>,
    pub(crate) feasible: Option<usize>,
    #[serde(default)]
    pub(crate) sampled: bool,
    pub(crate) error: Option<String>,
}

#[derive(Deserialize, Debug, PartialEq, Eq, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    pub(crate) plugin: Option<String>,
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) reasons: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PreFilter {
    pub(crate) code: String,
    pub(crate) plugin: Option<String>,
    #[serde(default)]
    pub(crate) reasons: Vec<String>,
    pub(crate) nodes: Option<Vec<String>>,
    pub(crate) nodes_from: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) skip: Vec<String>,
    #[serde(default)]
    pub(crate) per_plugin: BTreeMap<String, PreFilterAlone>,
}

#[derive(Deserialize, Debug, PartialEq, Eq, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreFilterAlone {
    pub(crate) code: Option<String>,
    #[serde(default)]
    pub(crate) reasons: Vec<String>,
    pub(crate) nodes: Option<Vec<String>>,
}

#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scores {
    pub(crate) weight: i64,
    pub(crate) raw: Vec<i64>,
    pub(crate) norm: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Preemption {
    pub(crate) code: String,
    pub(crate) message: String,
    /// Null where preemption is not enabled.
    pub(crate) potential_nodes: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) candidates: BTreeMap<String, Candidate>,
    #[serde(default)]
    pub(crate) failures: BTreeMap<String, Status>,
    pub(crate) best: Vec<String>,
}

#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Candidate {
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) victims: Vec<String>,
    pub(crate) pdb_violations: usize,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
