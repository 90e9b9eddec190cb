//! `performance-config.yaml`: test cases, their operations, and the parameters of their workloads. Says what is wrong by
//! test case and operation; runs nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use scheduler_core::config::KubeSchedulerConfiguration;
use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) use super::op::Workload;
use super::op::{Churn, ChurnMode, CreatePods, Op, Stage};
use super::template::{Source, Template, first_line};
use benches::workloads as builtin;

/// Opcodes that are understood.
const OPCODES: &str = "createNodes, createNamespaces, createPods, createPodSets, createAny, deletePods, churn, barrier, \
    sleep, startCollectingMetrics, stopCollectingMetrics";
/// Pause between two rounds of `churn` when none is given.
const CHURN_INTERVAL: Duration = Duration::from_millis(500);

/// Why a workload cannot be run; names the file, the test case and the operation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);

/// The workloads that `spec` means: a file, all of them or those whose name begins as given after a colon
/// (`FILE:CASE/NAME`); or the name of a test case or workload that comes with the command.
///
/// # Errors
/// There is no such file or workload, or it asks for something that is not supported.
pub(crate) fn load(spec: &str) -> Result<Vec<Workload>, ConfigError> {
    let (file, filter) = match spec.rsplit_once(':') {
        Some((file, filter)) if Path::new(file).is_file() => (Some(file), Some(filter)),
        _ if Path::new(spec).is_file() => (Some(spec), None),
        _ => (None, Some(spec)),
    };
    let Some(file) = file else {
        if spec.ends_with(".yaml") || spec.ends_with(".yml") {
            return Err(ConfigError(format!("{spec}: no such file")));
        }
        let cases = parse("the built-in workloads", builtin::CONFIG)?;
        return resolve("the built-in workloads", Source::Builtin, &cases, filter);
    };
    let text = std::fs::read_to_string(file).map_err(|error| ConfigError(format!("cannot read {file}: {error}")))?;
    resolve(file, Source::Beside(Path::new(file)), &parse(file, &text)?, filter)
}

/// The names of the workloads that come with the command.
///
/// # Errors
/// None that a test does not find: they are part of the program.
pub(crate) fn names() -> Result<Vec<String>, ConfigError> {
    let cases = parse("the built-in workloads", builtin::CONFIG)?;
    let of_case = |case: &TestCase| -> Vec<String> {
        case.workloads.iter().map(|workload| format!("{}/{}", case.name, workload.name)).collect()
    };
    Ok(cases.iter().flat_map(of_case).collect())
}

fn parse(file: &str, text: &str) -> Result<Vec<TestCase>, ConfigError> {
    crate::yaml::parse(text).map_err(|error| {
        ConfigError(format!("{file}: not a performance configuration: {}", first_line(&error.to_string())))
    })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TestCase {
    name: String,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    default_pod_template_path: Option<String>,
    scheduler_config_path: Option<String>,
    workload_template: Vec<Map<String, Value>>,
    workloads: Vec<Parameters>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parameters {
    name: String,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    #[serde(default)]
    params: BTreeMap<String, Value>,
    /// One number, or one for each topic.
    #[serde(default)]
    threshold: Value,
}

fn resolve(
    file: &str,
    source: Source<'_>,
    cases: &[TestCase],
    filter: Option<&str>,
) -> Result<Vec<Workload>, ConfigError> {
    let mut workloads = Vec::new();
    let mut known = Vec::new();
    for case in cases {
        for parameters in &case.workloads {
            let name = format!("{}/{}", case.name, parameters.name);
            let is_meant = filter.is_none_or(|filter| filter == case.name || filter == name);
            if is_meant {
                let reader = Reader { source, case, parameters };
                let workload = reader.workload(&name);
                workloads.push(workload.map_err(|problem| ConfigError(format!("{file}: {name}: {problem}")))?);
            }
            known.push(name);
        }
    }
    match filter {
        Some(filter) if workloads.is_empty() => {
            let names = known.join("\n  ");
            Err(ConfigError(format!("{file}: no workload {filter:?}, expected a file or one of\n  {names}")))
        }
        _ => Ok(workloads),
    }
}

/// One test case with one set of parameters.
struct Reader<'a> {
    source: Source<'a>,
    case: &'a TestCase,
    parameters: &'a Parameters,
}

impl Reader<'_> {
    fn workload(&self, name: &str) -> Result<Workload, String> {
        let ops = self.case.workload_template.iter().enumerate().map(|(position, op)| {
            let opcode = op.get("opcode").and_then(Value::as_str).unwrap_or_default();
            self.op(opcode, op).map_err(|problem| format!("operation {position} ({opcode}): {problem}"))
        });
        let gates = self.case.feature_gates.iter().chain(&self.parameters.feature_gates);
        Ok(Workload {
            name: name.to_owned(),
            ops: ops.collect::<Result<_, _>>()?,
            threshold: self.parameters.threshold.as_f64().unwrap_or_default(),
            feature_gates: gates.map(|(gate, on)| format!("{gate}={on}")).collect(),
            configuration: self.configuration()?,
        })
    }

    fn configuration(&self) -> Result<Option<KubeSchedulerConfiguration>, String> {
        let Some(path) = &self.case.scheduler_config_path else { return Ok(None) };
        let text = self.source.read(path)?;
        let configuration = KubeSchedulerConfiguration::from_text(&text).and_then(|configuration| {
            // What an extender takes is no time of the scheduler's.
            configuration.refuse_extenders().map(|()| configuration)
        });
        configuration.map(Some).map_err(|error| format!("{path}: {error}"))
    }

    fn op(&self, opcode: &str, op: &Map<String, Value>) -> Result<Op, String> {
        let fields = Fields { op, params: &self.parameters.params };
        Ok(match opcode {
            "createNodes" => {
                fields.only(&[
                    "count",
                    "countParam",
                    "nodeTemplatePath",
                    "templateParams",
                    "labelNodePrepareStrategy",
                    "uniqueNodeLabelStrategy",
                ])?;
                Op::CreateNodes {
                    count: fields.count()?,
                    template: self.optional_template(&fields, "nodeTemplatePath")?,
                    label: fields.label_strategy()?,
                    unique_label: fields
                        .at(&["uniqueNodeLabelStrategy", "labelKey"])
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                }
            }
            "createNamespaces" => {
                fields.only(&["prefix", "count", "countParam", "namespaceTemplatePath"])?;
                Op::CreateNamespaces {
                    prefix: fields.required("prefix")?,
                    count: fields.count()?,
                    template: self.optional_template(&fields, "namespaceTemplatePath")?,
                }
            }
            "createPods" => Op::CreatePods(self.pods(&fields)?),
            "createPodSets" => {
                fields.only(&["count", "countParam", "namespacePrefix", "createPodsOp"])?;
                let Some(Value::Object(pods)) = op.get("createPodsOp") else {
                    return Err("createPodsOp is missing".to_owned());
                };
                Op::CreatePodSets {
                    count: fields.count()?,
                    namespace_prefix: fields.required("namespacePrefix")?,
                    pods: self.pods(&Fields { op: pods, params: &self.parameters.params })?,
                }
            }
            "createAny" => {
                fields.only(&["namespace", "count", "countParam", "templatePath", "templateParams"])?;
                let has_count = op.contains_key("count") || op.contains_key("countParam");
                Op::CreateAny {
                    namespace: fields.text("namespace"),
                    count: if has_count { fields.count()? } else { 1 },
                    template: self.template(&fields, &fields.required("templatePath")?)?,
                }
            }
            "churn" => self.churn(&fields)?,
            "deletePods" => {
                fields.only(&["namespace", "deletePodsPerSecond", "skipWaitToCompletion"])?;
                let per_second = fields.number("deletePodsPerSecond")?.unwrap_or_default();
                Op::DeletePods {
                    namespace: fields.required("namespace")?,
                    per_second: u32::try_from(per_second).ok().filter(|&n| n > 0),
                    wait: !fields.flag("skipWaitToCompletion"),
                }
            }
            "barrier" => {
                fields.only(&["namespaces", "stageRequirement"])?;
                let stage = match fields.text("stageRequirement").as_deref() {
                    None | Some("" | "Scheduled") => Stage::Scheduled,
                    Some("Attempted") => Stage::Attempted,
                    Some(other) => return Err(format!("stageRequirement {other:?}, expected Scheduled or Attempted")),
                };
                Op::Barrier { namespaces: fields.texts("namespaces"), stage }
            }
            "sleep" => {
                fields.only(&["duration", "durationParam"])?;
                Op::Sleep(duration(&fields.with_param("duration", "durationParam")?)?)
            }
            "startCollectingMetrics" => {
                fields.only(&["name", "namespaces"])?;
                Op::StartCollecting {
                    name: fields.text("name").unwrap_or_default(),
                    namespaces: fields.texts("namespaces"),
                }
            }
            "stopCollectingMetrics" => Op::StopCollecting,
            _ => return Err(format!("this opcode is not supported, expected one of {OPCODES}")),
        })
    }

    fn pods(&self, fields: &Fields<'_>) -> Result<CreatePods, String> {
        fields.only(&[
            "count",
            "countParam",
            "countMultiplierParam",
            "namespace",
            "podTemplatePath",
            "templateParams",
            "collectMetrics",
            "skipWaitToCompletion",
            "steadyState",
        ])?;
        if fields.flag("steadyState") {
            return Err("steadyState is not supported".to_owned());
        }
        let path = fields.text("podTemplatePath").or_else(|| self.case.default_pod_template_path.clone());
        let multiplier = match fields.text("countMultiplierParam") {
            Some(param) => fields.param(&param)?.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or_default(),
            None => 1,
        };
        let (collect_metrics, wait) = (fields.flag("collectMetrics"), !fields.flag("skipWaitToCompletion"));
        if collect_metrics && !wait {
            return Err("collectMetrics and skipWaitToCompletion exclude each other".to_owned());
        }
        Ok(CreatePods {
            count: fields.count()? * multiplier,
            namespace: fields.text("namespace"),
            template: self
                .template(fields, &path.ok_or("podTemplatePath is missing and there is no defaultPodTemplatePath")?)?,
            collect_metrics,
            wait,
        })
    }

    fn churn(&self, fields: &Fields<'_>) -> Result<Op, String> {
        fields.only(&["mode", "number", "intervalMilliseconds", "namespace", "templatePaths"])?;
        let number = usize::try_from(fields.number("number")?.unwrap_or_default()).unwrap_or_default();
        let mode = match fields.text("mode").as_deref() {
            Some("create") => ChurnMode::Create,
            Some("recreate") if number > 0 => ChurnMode::Recreate,
            Some("recreate") => return Err("number is 0, expected more with the mode recreate".to_owned()),
            other => return Err(format!("mode {:?}, expected create or recreate", other.unwrap_or_default())),
        };
        let paths = fields.texts("templatePaths");
        if paths.is_empty() {
            return Err("templatePaths is empty".to_owned());
        }
        let interval = fields.number("intervalMilliseconds")?.filter(|&n| n > 0);
        Ok(Op::Churn(Churn {
            mode,
            number,
            interval: interval.map_or(CHURN_INTERVAL, Duration::from_millis),
            namespace: fields.text("namespace"),
            templates: paths.iter().map(|path| self.template(fields, path)).collect::<Result<_, _>>()?,
        }))
    }

    fn optional_template(&self, fields: &Fields<'_>, field: &str) -> Result<Option<Template>, String> {
        fields.text(field).map(|path| self.template(fields, &path)).transpose()
    }

    fn template(&self, fields: &Fields<'_>, path: &str) -> Result<Template, String> {
        let mut params = BTreeMap::new();
        if let Some(Value::Object(given)) = fields.op.get("templateParams") {
            for (name, value) in given {
                let value = match value {
                    Value::String(text) if text.starts_with('$') => fields.param(text)?,
                    other => other.clone(),
                };
                params.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
        }
        Template::read(self.source, path, params)
    }
}

/// The fields of one operation, and the parameters that they may name.
struct Fields<'a> {
    op: &'a Map<String, Value>,
    params: &'a BTreeMap<String, Value>,
}

impl Fields<'_> {
    /// Refuses fields that nobody would read.
    fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.op.keys().find(|key| *key != "opcode" && !known.contains(&key.as_str())) {
            Some(key) => Err(format!("the field {key} is not supported, expected {}", known.join(", "))),
            None => Ok(()),
        }
    }

    fn at(&self, path: &[&str]) -> Option<&Value> {
        path[1..].iter().try_fold(self.op.get(path[0])?, |value, key| value.get(key))
    }

    fn text(&self, field: &str) -> Option<String> {
        self.op.get(field).and_then(Value::as_str).map(str::to_owned)
    }

    fn required(&self, field: &str) -> Result<String, String> {
        self.text(field).ok_or_else(|| format!("{field} is missing"))
    }

    fn texts(&self, field: &str) -> Vec<String> {
        let values = self.op.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn flag(&self, field: &str) -> bool {
        self.op.get(field).and_then(Value::as_bool).unwrap_or(false)
    }

    fn number(&self, field: &str) -> Result<Option<u64>, String> {
        match self.op.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                value.as_u64().map(Some).ok_or_else(|| format!("{field} is {value}, expected a whole number"))
            }
        }
    }

    /// The value of `$name`.
    fn param(&self, reference: &str) -> Result<Value, String> {
        let name =
            reference.strip_prefix('$').ok_or_else(|| format!("{reference:?} is no parameter, expected $NAME"))?;
        self.params.get(name).cloned().ok_or_else(|| format!("the workload has no parameter {name}"))
    }

    /// The parameter that `param_field` names, or the value of `field`.
    fn with_param(&self, field: &str, param_field: &str) -> Result<Value, String> {
        match self.text(param_field) {
            Some(reference) => self.param(&reference),
            None => self.op.get(field).cloned().ok_or_else(|| format!("{field} is missing")),
        }
    }

    fn count(&self) -> Result<usize, String> {
        let value = self.with_param("count", "countParam")?;
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| format!("count is {value}, expected a whole number"))
    }

    fn label_strategy(&self) -> Result<Option<(String, Vec<String>)>, String> {
        let Some(strategy) = self.op.get("labelNodePrepareStrategy") else { return Ok(None) };
        let key = strategy["labelKey"].as_str().ok_or("labelNodePrepareStrategy.labelKey is missing")?;
        let values: Vec<String> = strategy["labelValues"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        if values.is_empty() {
            return Err("labelNodePrepareStrategy.labelValues is empty".to_owned());
        }
        Ok(Some((key.to_owned(), values)))
    }
}

/// `10s`, `1m30s`, `500ms`.
fn duration(value: &Value) -> Result<Duration, String> {
    let wrong = || format!("{value} is no duration, expected one such as 10s");
    let parsed: jiff::SignedDuration = value.as_str().ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
    Duration::try_from(parsed).map_err(|_| wrong())
}

#[cfg(test)]
mod tests;
