//! Comparing what the engine says with what was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::config::error::ConfigError;
use scheduler_core::config::plugins::ExtensionPoint;
use scheduler_core::engine::{
    Change, Examination, Examined, NodeRejection, Options, Outcome, PluginScores, PostFilterOutcome, Scheduler,
};
use scheduler_core::framework::{EffectKind, FilterStatus, PreFilterVerdict, Registry};
use scheduler_core::model::{Object, Pod};
use scheduler_core::plugins::default_preemption::{DryRuns, Preemptor, best_candidates};

use super::case::{Candidate, Case, PreFilterAlone, Preemption, Scores, Status};
use super::cluster::{self, NOW};

/// What differs, one line each; empty when all of the case matches.
pub(crate) fn check(case: &Case, pool: &rayon::ThreadPool) -> Vec<String> {
    let mut differences = Differences::default();
    let registry = scheduler_core::plugins::registry();
    let config = match read_config(case) {
        Ok(config) => config,
        Err(error) => return config_error(case, &error),
    };
    let mut scheduler = match Scheduler::new(&config, &registry, Options { seed: 1, ..Options::default() }) {
        Ok(scheduler) => scheduler,
        Err(error) => return config_error(case, &error),
    };
    if case.expect.result.code == "ConfigError" {
        return vec![format!("expected ConfigError {:?}, got a scheduler", case.expect.result.error)];
    }
    check_plugins(case, &config, &registry, &mut differences);
    cluster::apply(&mut scheduler, &case.objects);

    let pod = cluster::pod(&case.pod);
    let examined = scheduler
        .examine(&pod, NOW, |examined| case.expect.preemption.as_ref().map(|_| Dry::run(examined)).unwrap_or_default());
    if let Some((examination, dry)) = &examined {
        check_examination(case, examination, &mut differences);
        check_preemption(case, examination, dry, &mut differences);
    }
    check_attempt(
        case,
        &mut scheduler,
        pod,
        examined.as_ref().map(|(examination, _)| examination),
        pool,
        &mut differences,
    );
    differences.0
}

fn read_config(case: &Case) -> Result<KubeSchedulerConfiguration, ConfigError> {
    case.config
        .as_ref()
        .map_or_else(|| Ok(KubeSchedulerConfiguration::default()), KubeSchedulerConfiguration::from_value)
}

fn config_error(case: &Case, error: &ConfigError) -> Vec<String> {
    match &*case.expect.result.code {
        "ConfigError" => Vec::new(),
        other => vec![format!("expected {other}, got ConfigError: {error}")],
    }
}

#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare<T: PartialEq + Debug>(&mut self, what: &str, expected: &T, got: &T) {
        if expected != got {
            self.0.push(format!("{what}: expected {expected:?}, got {got:?}"));
        }
    }
}

fn check_plugins(case: &Case, config: &KubeSchedulerConfiguration, registry: &Registry, differences: &mut Differences) {
    let Some(expected) = &case.expect.plugins else { return };
    let effective = config.effective_plugins(registry).expect("the scheduler was built from it");
    for (point, expected) in expected {
        let Some(known) = ExtensionPoint::ALL.into_iter().find(|known| known.field() == point) else {
            differences.0.push(format!("plugins: unknown extension point {point}"));
            continue;
        };
        let got: Vec<String> = effective[0]
            .at(known)
            .iter()
            .map(|name| match known {
                ExtensionPoint::Score => format!("{name}:{}", effective[0].score_weight(name)),
                _ => name.clone(),
            })
            .collect();
        differences.compare(&format!("plugins.{point}"), expected, &got);
    }
}

fn check_examination(case: &Case, got: &Examination, differences: &mut Differences) {
    let expect = &case.expect;
    let gated = got.gated.as_ref().map(|(plugin, reasons)| Status {
        plugin: Some((*plugin).to_owned()),
        code: "UnschedulableAndUnresolvable".to_owned(),
        reasons: reasons.iter().map(ToString::to_string).collect(),
    });
    differences.compare("preEnqueue", &expect.pre_enqueue, &gated);
    check_pre_filter(case, got, differences);
    if let Some(expected) = &expect.filter {
        let got: BTreeMap<String, Option<Status>> =
            got.filter.iter().map(|(node, rejection)| (node.to_string(), rejection.as_ref().map(status))).collect();
        let expected = expected.iter().map(|(node, status)| (node.clone(), status.clone().map(sorted))).collect();
        differences.compare("filter", &expected, &got);
    }
    if expect.filter.is_some() {
        let got: BTreeMap<String, BTreeMap<String, Status>> = got
            .filter_all
            .iter()
            .map(|(node, by_plugin)| {
                let of = |rejection: &NodeRejection| Status { plugin: None, ..status(rejection) };
                (node.to_string(), by_plugin.iter().map(|(plugin, r)| ((*plugin).to_owned(), of(r))).collect())
            })
            .collect();
        let expected = expect.filter_all.iter().flatten().map(|(node, by_plugin)| {
            (node.clone(), by_plugin.iter().map(|(plugin, status)| (plugin.clone(), sorted(status.clone()))).collect())
        });
        differences.compare("filterAll", &expected.collect(), &got);
    }
    check_scores(case, got, differences);
}

fn check_pre_filter(case: &Case, got: &Examination, differences: &mut Differences) {
    let Some(expected) = &case.expect.pre_filter else { return };
    let got = &got.pre_filter;
    let rejection = got.rejection.as_ref().map(status);
    let code = rejection.as_ref().map_or("Success", |status| &*status.code);
    differences.compare("preFilter.code", &&*expected.code, &code);
    differences.compare("preFilter.plugin", &expected.plugin, &rejection.as_ref().and_then(|r| r.plugin.clone()));
    let mut reasons = rejection.map(|status| status.reasons).unwrap_or_default();
    let mut expected_reasons = expected.reasons.clone();
    reasons.sort();
    expected_reasons.sort();
    differences.compare("preFilter.reasons", &expected_reasons, &reasons);
    let names = |names: &BTreeSet<std::sync::Arc<str>>| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    differences.compare("preFilter.nodes", &expected.nodes, &got.nodes.as_ref().map(names));
    let from: Vec<String> = got.nodes_from.iter().map(|name| (*name).to_owned()).collect();
    differences.compare("preFilter.nodesFrom", &expected.nodes_from.clone().unwrap_or_default(), &from);
    let skip: Vec<String> = got.skip.iter().map(|name| (*name).to_owned()).collect();
    differences.compare("preFilter.skip", &expected.skip, &skip);
    let alone: BTreeMap<String, PreFilterAlone> =
        got.per_plugin.iter().filter_map(|(plugin, verdict)| Some(((*plugin).to_owned(), alone(verdict)?))).collect();
    differences.compare("preFilter.perPlugin", &expected.per_plugin, &alone);
}

/// `None` if the plugin neither restricts nor rejects.
fn alone(verdict: &PreFilterVerdict) -> Option<PreFilterAlone> {
    let rejected = |code: &str, reasons: &[std::borrow::Cow<'static, str>]| {
        let reasons = reasons.iter().map(ToString::to_string).collect();
        Some(PreFilterAlone { code: Some(code.to_owned()), reasons, nodes: None })
    };
    match verdict {
        PreFilterVerdict::Skip | PreFilterVerdict::Success(None) => None,
        PreFilterVerdict::Success(Some(nodes)) => Some(PreFilterAlone {
            code: Some("Success".to_owned()),
            nodes: Some(nodes.iter().map(ToString::to_string).collect()),
            ..PreFilterAlone::default()
        }),
        PreFilterVerdict::Unschedulable(reasons) => rejected("Unschedulable", reasons),
        PreFilterVerdict::UnschedulableAndUnresolvable(reasons) => rejected("UnschedulableAndUnresolvable", reasons),
    }
}

fn check_scores(case: &Case, got: &Examination, differences: &mut Differences) {
    let expect = &case.expect;
    // Recorded lists are in name order.
    let mut order: Vec<usize> = (0..got.feasible.len()).collect();
    order.sort_by(|a, b| got.feasible[*a].cmp(&got.feasible[*b]));
    let pick = |column: &[i64]| order.iter().map(|at| column[*at]).collect::<Vec<_>>();
    let names: Vec<String> = order.iter().map(|at| got.feasible[*at].to_string()).collect();
    if expect.filter.is_some() {
        differences.compare("feasible", &expect.feasible.clone().unwrap_or_default(), &names);
    }
    let Some(expected) = &expect.scores else { return };
    match &got.scores {
        Err(error) => differences.0.push(format!("scores: expected some, got error {error:?}")),
        Ok(scores) => {
            let of = |scores: &PluginScores| Scores {
                weight: scores.weight,
                raw: pick(&scores.raw),
                norm: pick(&scores.normalized),
            };
            let got: BTreeMap<String, Scores> =
                scores.iter().filter(|s| !s.skipped).map(|s| (s.plugin.to_owned(), of(s))).collect();
            for plugin in expected.keys().chain(got.keys()).collect::<BTreeSet<_>>() {
                differences.compare(&format!("scores.{plugin}"), &expected.get(plugin), &got.get(plugin));
            }
        }
    }
    let skipped: Vec<String> = got.skip_score.iter().map(|name| (*name).to_owned()).collect();
    differences.compare("skipScore", &expect.skip_score.clone().unwrap_or_default(), &skipped);
    let totals = pick(&got.totals);
    differences.compare("total", &expect.total.clone().unwrap_or_default(), &totals);
    if let Some(best) = &expect.best {
        let highest = totals.iter().max();
        let got = names.iter().zip(&totals).filter(|(_, total)| Some(*total) == highest).map(|(name, _)| name.clone());
        differences.compare("best", best, &got.collect());
    }
}

/// What preemption's dry runs found.
#[derive(Default)]
struct Dry {
    potential: Vec<String>,
    candidates: BTreeMap<String, Candidate>,
    failures: BTreeMap<String, Status>,
    best: Vec<String>,
}

impl Dry {
    fn run(examined: Examined<'_>) -> Self {
        let Some(rejected) = examined.rejected else { return Self::default() };
        let Examined { cycle, filters, states, .. } = examined;
        let preemptor = Preemptor { cycle, filters, states, rejected };
        let nodes = preemptor.potential_nodes();
        let runs = preemptor.dry_run(&nodes, 0, nodes.len());
        let name = |node| cycle.snapshot.node(node).name.to_string();
        let mut potential: Vec<String> = nodes.iter().copied().map(name).collect();
        potential.sort();
        let mut best: Vec<String> =
            best_candidates(&runs.candidates, cycle.now).iter().map(|best| best.node_name.to_string()).collect();
        best.sort();
        let candidates = runs.candidates.iter().map(|candidate| {
            let victims = candidate.victims.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
            let got = Candidate { victims, pdb_violations: candidate.n_pdb_violations };
            (candidate.node_name.to_string(), got)
        });
        let failures = runs.failures.iter().map(|failure| {
            let rejection = NodeRejection {
                plugin: Some(failure.plugin),
                status: failure.status,
                reasons: failure.reasons.clone(),
            };
            (name(failure.node), status(&rejection))
        });
        let without_victims = runs.without_victims.iter().map(|node| {
            let reasons = vec![DryRuns::NO_VICTIMS.into()];
            let status = FilterStatus::UnschedulableAndUnresolvable;
            (name(*node), self::status(&NodeRejection { plugin: None, status, reasons }))
        });
        let failures = failures.chain(without_victims);
        Self { potential, candidates: candidates.collect(), failures: failures.collect(), best }
    }
}

fn check_preemption(case: &Case, examination: &Examination, dry: &Dry, differences: &mut Differences) {
    let Some(expected) = &case.expect.preemption else {
        differences.compare("preemption", &true, &(examination.post_filter.is_none() || case.expect.message.is_none()));
        return;
    };
    let (code, message) = match &examination.post_filter {
        None => ("none", String::new()),
        Some(PostFilterOutcome::Success(_)) => ("Success", String::new()),
        Some(PostFilterOutcome::Unschedulable(message)) => ("Unschedulable", message.clone()),
        Some(PostFilterOutcome::Error(message)) => ("Error", message.clone()),
    };
    differences.compare("preemption.code", &&*expected.code, &code);
    differences.compare("preemption.message", &expected.message, &message);
    if let Some(expected) = &expected.potential_nodes {
        differences.compare("preemption.potentialNodes", expected, &dry.potential);
    }
    // Candidates are recorded only where the plugin got as far as the dry runs.
    if !expected.candidates.is_empty() || !expected.failures.is_empty() {
        check_dry_runs(expected, dry, differences);
    }
}

fn check_dry_runs(expected: &Preemption, dry: &Dry, differences: &mut Differences) {
    differences.compare("preemption.candidates", &expected.candidates, &dry.candidates);
    for (node, expected) in &expected.failures {
        let Some(got) = dry.failures.get(node) else {
            differences.0.push(format!("preemption.failures.{node}: expected {expected:?}, got none"));
            continue;
        };
        // The plugin is not always recorded.
        let plugin = expected.plugin.as_ref().and(got.plugin.clone());
        let expected = sorted(Status { plugin: expected.plugin.clone(), ..expected.clone() });
        differences.compare(&format!("preemption.failures.{node}"), &expected, &Status { plugin, ..got.clone() });
    }
    let unexpected = dry.failures.keys().find(|node| !expected.failures.contains_key(*node));
    differences.compare("preemption.failures", &None, &unexpected);
    differences.compare("preemption.best", &expected.best, &dry.best);
}

/// Runs the whole cycle, through the chunk methods.
fn check_attempt(
    case: &Case,
    scheduler: &mut Scheduler,
    pod: Pod,
    examination: Option<&Examination>,
    pool: &rayon::ThreadPool,
    differences: &mut Differences,
) {
    let expect = &case.expect.result;
    let uid = pod.uid.clone();
    scheduler.record_decisions(true);
    scheduler.handle(Change::Applied(Object::from(pod)), NOW);
    // Pending pods of the cluster only count as nominated: it is not their turn.
    let attempt = scheduler.schedule_pod(&uid, NOW, pool);
    let code = match attempt.as_ref().map(|attempt| &attempt.outcome) {
        Some(Outcome::Scheduled { .. }) => "Scheduled",
        Some(Outcome::Unschedulable { .. }) => "Unschedulable",
        Some(Outcome::Error { .. }) => "Error",
        Some(Outcome::Skipped) => "Skipped",
        None if scheduler.queue().get(&uid).is_some_and(|entity| entity.is_gated()) => "Gated",
        // A pod that no profile serves is none of our business.
        None => "Error",
    };
    differences.compare("result.code", &&*expect.code, &code);
    let Some(attempt) = attempt else { return };
    if let Outcome::Scheduled { node, n_evaluated, n_feasible } = &attempt.outcome {
        if let Some(selected) = &expect.selected
            && !selected.iter().any(|name| **name == **node)
        {
            differences.0.push(format!("selected: expected one of {selected:?}, got {node:?}"));
        }
        if let Some(feasible) = expect.feasible {
            differences.compare("result.feasible", &feasible, n_feasible);
        }
        if let Some(evaluated) = expect.evaluated {
            differences.compare("result.evaluated", &evaluated, n_evaluated);
        }
    }
    if let (Some(record), Some(examination), false) = (&attempt.record, examination, expect.sampled) {
        // The chunk methods must agree with the node methods.
        if let (Ok(by_node), false) = (&examination.scores, record.scores.is_empty()) {
            differences.compare("chunk scores", by_node, &record.scores);
        }
    }
    check_message(case, scheduler, differences);
}

fn check_message(case: &Case, scheduler: &mut Scheduler, differences: &mut Differences) {
    let notes: Vec<String> = scheduler
        .drain_effects()
        .into_iter()
        .filter_map(|effect| match effect.kind {
            EffectKind::RecordEvent { reason: "FailedScheduling", note, .. } => Some(note),
            _ => None,
        })
        .collect();
    differences.compare("message", &case.expect.message, &notes.last().cloned());
}

fn status(rejection: &NodeRejection) -> Status {
    sorted(Status {
        plugin: rejection.plugin.map(str::to_owned),
        code: match rejection.status {
            FilterStatus::Success => "Success",
            FilterStatus::Unschedulable => "Unschedulable",
            FilterStatus::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
        }
        .to_owned(),
        reasons: rejection.reasons.iter().map(ToString::to_string).collect(),
    })
}

/// Reasons about several extended resources come in any order.
fn sorted(mut status: Status) -> Status {
    status.reasons.sort();
    status
}
