//! Rules of kube-scheduler 1.36.2 that re-implementations get wrong, and the test that holds each.
//!
//! `golden SUITE/CASE` is a recorded decision in `tests/golden`, checked whole by `tests/golden.rs`; `MODULE::NAME` is a
//! test of this binary; `queue`, `preemption`, `binding` and so on are unit tests beside the code. The test
//! [`every_test_that_the_table_names_exists`] keeps the table honest.
//!
//! | rule | test |
//! |---|---|
//! | PostFilter: DynamicResources speaks before DefaultPreemption | golden messages/preemption-mixed |
//! | nothing is said of PostFilter when preemption succeeds | golden default-preemption/basic |
//! | a final PreFilter rejection ends in `. not found`, without preemption | golden volumes/pvc-missing |
//! | reasons sort as text, count first; a node counts once for each reason | golden messages/sorted-as-strings |
//! | an event's text is cut to 1020 bytes and ` ...` | golden new-1.36/message-truncated |
//! | a PreFilter rejection is said once, not per node | golden messages/prefilter-conflict |
//! | nodes outside a metadata.name restriction have one reason; names may not exist | golden node-affinity/fields-in-unknown-node |
//! | nodes that preemption does not look at are `not helpful` | golden default-preemption/unresolvable-nodes |
//! | Skip in PreFilter skips AddPod: a nominated pod's anti-affinity is not seen | golden mixed/nominated-anti-affinity-not-skipped |
//! | gated pods do not count as nominated | golden scheduling-gates/gates-nominated-gated |
//! | pods on a node that is not known are not seen | golden mixed/pod-on-unknown-node |
//! | with one feasible node nothing is scored | cycle::one_feasible_node_is_chosen_without_scores |
//! | a nominated node that fits wins before all others | cycle::the_nominated_node_is_taken_if_it_fits |
//! | without score plugins the search stops at the first feasible node | golden profile-config/disable-all-score |
//! | sampling: all below 100 nodes, else max(5, 50 - n/125) per cent, at least 100 | golden sampling/260-nodes-adaptive |
//! | sampling counts the nodes that PreFilter left | golden sampling/prefilter-restricted |
//! | the profile's percentage wins over the global one | cycle::the_percentage_of_the_profile_wins |
//! | plugins of a specific point come before multiPoint's | golden profile-config/order-specific-before-multipoint |
//! | naming a default in multiPoint changes its weight and keeps its place | golden profile-config/weight-multipoint-without-disable |
//! | disabled and enabled again moves to the end | golden profile-config/order-multipoint-enabled-reorder |
//! | enabled at score replaces the weight without being disabled | golden profile-config/weight-via-score-without-disable |
//! | weight 0 means 1 | golden profile-config/weight-zero-becomes-one |
//! | NodeResourcesFit scoring ignores pod-level requests | golden node-resources-fit/pod-level-score-ignored-by-fit |
//! | a request above allocatable makes the whole status unresolvable | golden node-resources-fit/mixed-unresolvable |
//! | a node without allocatable pods takes none | golden node-resources-fit/too-many-pods-zero |
//! | 100m and 200Mi are assumed per container, for scoring alone | golden node-resources-fit/nonzero-defaults-scoring |
//! | an explicit zero request stays zero | golden node-resources-fit/nonzero-explicit-zero |
//! | init containers are assumed to ask for something, too | golden node-resources-fit/nonzero-init |
//! | RequestedToCapacityRatio leaves out resources that score 0 | golden node-resources-fit/rtcr-zero-score-dropped |
//! | MostAllocated clamps at capacity | golden node-resources-fit/most-clamped |
//! | a resource with allocatable 0 leaves the mean | golden node-resources-fit/least-zero-allocatable |
//! | ephemeral-storage stays in the mean though not requested | golden node-resources-fit/least-ephemeral |
//! | BalancedAllocation is skipped for a pod that asks for nothing | golden balanced-allocation/best-effort-skipped |
//! | BalancedAllocation rewards the change: 50 + (50 + with - without) / 2 | golden new-1.36/balanced-improves |
//! | both parts are truncated before the difference | golden new-1.36/balanced-truncation-order |
//! | a pod in resize counts the larger of spec and status | golden new-1.36/pod-level-resize-status |
//! | an infeasible resize counts the status alone | golden node-resources-fit/resize-infeasible-existing |
//! | a node missing one key counts for no hard constraint | golden pod-topology-spread/two-constraints-node-missing-one-key |
//! | an empty selector counts no existing pod, but preemption subtracts them | golden default-preemption/spread-empty-selector-victim |
//! | terminating pods do not count, but preemption subtracts them | golden default-preemption/spread-terminating-victim |
//! | a cordoned domain stays one even with Honor; a tainted one does not | spread::cordoned_nodes_are_domains_and_tainted_ones_only_by_policy |
//! | log weight counts domains of feasible nodes | golden pod-topology-spread/soft-infeasible-zone-not-sized |
//! | under system defaults nodes without a zone add one domain to the weight | golden pod-topology-spread/default-nodes-without-zone-many |
//! | counts by hostname ignore the inclusion policies | spread::soft_counts_by_hostname_ignore_the_policies |
//! | no matching pods: 100, ignored nodes 0 | golden pod-topology-spread/soft-all-zero |
//! | preemption keeps two domains with few pods, so a third may be overlooked | spread::preemption_sees_the_two_emptiest_domains_alone |
//! | NotIn in a namespaceSelector of the incoming pod matches every namespace | golden inter-pod-affinity/req-ns-selector-notin-quirk |
//! | terms of existing pods look at the real labels of the namespace | golden inter-pod-affinity/existing-anti-ns-selector-notin |
//! | the first pod of a group is let in only where all keys are | golden inter-pod-affinity/req-first-pod-needs-key |
//! | and only if no pod anywhere matches | golden inter-pod-affinity/req-first-pod-not-if-other-exists |
//! | a pod counts for affinity only if it matches all terms | golden inter-pod-affinity/req-two-terms-same-pod |
//! | anti-affinity works term by term | golden inter-pod-affinity/anti-any-term |
//! | affinity is said first and is unresolvable | golden inter-pod-affinity/affinity-before-anti |
//! | matchLabelKeys of affinity terms are the API server's business | golden inter-pod-affinity/match-label-keys-merged |
//! | equal scores normalise to 0 | golden inter-pod-affinity/pref-all-equal |
//! | existing required affinity scores with the hard weight | golden inter-pod-affinity/hard-weight-default-1 |
//! | the first untolerated taint decides, soft ones are no reason | golden taint-toleration/prefer-skipped-in-reason |
//! | keys and values of taints are not in the text | golden new-1.36/taint-text |
//! | a NoSchedule toleration does not count in scoring | golden taint-toleration/prefer-not-tolerated-by-noschedule-toleration |
//! | an empty node selector term matches nothing | golden node-affinity/empty-term-matches-nothing |
//! | a conflicting name term rejects only if no other term is left | golden node-affinity/fields-conflict-plus-good-term |
//! | `::` is no wildcard address | golden node-ports/ipv6-wildcard-not-special |
//! | ports of plain init containers do not count, of sidecars they do | golden node-ports/sidecar-existing-counts |
//! | image names are not completed with docker.io | golden image-locality/no-docker-io-equivalence |
//! | an image of two containers counts twice | golden image-locality/same-image-two-containers |
//! | image volumes score, the upper limit counts containers | golden new-1.36/image-volume-and-container |
//! | a claim bound by name without the annotation is an unbound immediate one | binding::why_a_pod_cannot_be_placed_at_all |
//! | ReadWriteOncePod conflicts can be resolved | golden volumes/rwop-in-use-preempt |
//! | CSI limits can be resolved | golden volumes/limits-message-preempt |
//! | iSCSI compares the qualified name alone | golden volumes/inline-iscsi |
//! | maximumVolumeSize wins over capacity | golden volumes/capacity-max-volume-size |
//! | a capacity without topology is within nobody's reach | golden volumes/capacity-no-topology |
//! | a beta zone label of a volume finds GA labels of nodes, not the other way | golden volumes/zone-ga-label-not-translated |
//! | Portworx volumes count as migrated without the annotation | golden new-1.36/migrated-portworx-no-annotation |
//! | violators of budgets are reprieved first | golden default-preemption/pdb-reprieve-violating-first |
//! | a budget with an empty selector protects nothing | golden default-preemption/pdb-empty-selector |
//! | a pod without labels is protected by no budget | golden default-preemption/pdb-unlabelled-pod |
//! | fewer victims win by the offset of the sum | golden default-preemption/choose-fewer-victims |
//! | start times count for the most important victims alone | golden default-preemption/choose-start-only-highest |
//! | a victim that has not started counts as the newest | golden default-preemption/not-started-victim |
//! | nominated pods are added in a first pass, left out in a second | golden default-preemption/nominated-affinity-two-passes |
//! | a preemptor waits only for victims of the scheduler's preemption | golden default-preemption/own-nomination-terminating |
//! | a node must declare the features that a pod needs | golden new-1.36/features-message |
//! | RequestedToCapacityRatio without a shape is refused | golden new-1.36/config-rtcr-missing |
//! | DynamicResources scores without a pre-point and fails if PreFilter is off | golden profile-config/disable-all-filter |
//! | with one feasible node that does not matter | golden new-1.36/config-no-prefilter-one-node |
//! | plugins of pod groups may be named | config::plugins_of_pod_groups_may_be_named |
//! | any of the nodes with the highest total may be chosen | cycle::one_of_the_best_is_chosen |
//! | Gt and Lt tolerate nothing | taint::a_toleration_matches_by_key_operator_value_and_effect |
//! | the node is nominated before work of PreBind or a wait in Permit, and only then | nomination::a_wait_in_permit_nominates_the_node_and_its_end_clears_it |
//! | a pod that waits for its volume is nominated and has no condition | nomination::a_pod_that_waits_for_its_volume_is_nominated_and_has_no_condition |
//! | a victim that waits in Permit goes back to the queue and is not deleted | preemption::a_victim_in_permit_gives_way_in_memory |
//! | PreBind plugins that allow it work at the same time | pre_bind::plugins_that_allow_it_work_at_the_same_time |
//! | victims hear for which pod, by UID, they went | preemption::a_victim_is_told_who_preempted_it |
//! | a nomination does not hold a ReadWriteOncePod claim | preemption::a_nomination_does_not_hold_a_read_write_once_pod_claim |
//! | deleting an assumed pod frees its node at once | queue::a_pod_deleted_on_its_way_frees_its_node |
//! | a pod created anew under its old name is another pod | queue::a_pod_created_anew_starts_from_nothing |
//! | back-off does not hold a rejected pod when nothing else waits | queue::an_unschedulable_pod_is_tried_with_every_helpful_change |
//! | a pod that met an error waits 1, 2, 4, 8, 10, 10 s | unit::an_error_serves_its_back_off_of_1_2_4_8_10_10_seconds |
//! | no nodes is such an error, with a message of its own | queue::without_nodes_a_pod_is_retried_with_back_off |
//! | hints are exact: what cannot make the pod fit does not wake it | retries::a_pod_is_retried_when_and_only_when_it_may_fit_now |
//! | a pod with affinity is not woken when a pod goes, but after five minutes | queue::a_pod_with_affinity_waits_for_the_flush_when_its_last_peer_goes |
//! | a node that an extender leaves out is lost for good, without a reason | extender::a_node_of_which_an_extender_says_nothing_is_lost_without_a_reason_and_for_good |
//! | nodes that the search did not come to have no verdict when extenders reject all others | extender::nodes_that_a_sample_left_out_have_no_verdict_when_an_extender_rejects_the_sample |
//! | any event wakes a pod that extenders rejected | extender::any_event_may_help_a_pod_that_extenders_rejected |
//! | an extender may name victims that preemption did not propose, if they are there | extender::an_extender_may_name_other_victims_but_only_pods_that_are_there |
//! | resources that extenders manage and the scheduler ignores replace NodeResourcesFit's ignoredResources | extender::resources_that_the_scheduler_ignores_for_an_extender_are_not_counted |
//! | an event names the version of the pod that it is about | queue::an_event_names_the_version_of_the_pod |

mod cycle;
mod extender;
mod host;
mod nomination;
mod pre_bind;
mod preemption;
mod queue;
mod retries;
mod spread;

use std::io::Read as _;
use std::path::Path;

/// The whole text of a file or a folder's files, unpacked.
#[expect(clippy::disallowed_methods, reason = "a test reads its data")]
fn text_of(path: &Path) -> String {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).expect("the folder can be read");
        return entries.map(|entry| text_of(&entry.expect("folder entry").path())).collect::<Vec<_>>().concat();
    }
    let bytes = std::fs::read(path).expect("the file can be read");
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("a gzip file");
    } else {
        text = String::from_utf8(bytes).expect("text");
    }
    text
}

#[test]
fn every_test_that_the_table_names_exists() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = text_of(&folder.join("tests/traps/main.rs"));
    let rust =
        [text_of(&folder.join("src")), text_of(&folder.join("tests/traps")), text_of(&folder.join("tests/config.rs"))]
            .concat();
    let mut n_rows = 0;
    for row in table.lines().filter(|line| line.starts_with("//! | ") && !line.contains("| test |")) {
        let test = row.trim_end_matches(" |").rsplit(" | ").next().expect("a row has cells");
        let exists = if let Some(case) = test.strip_prefix("golden ") {
            let (suite, case) = case.split_once('/').expect("suite/case");
            let file = folder.join("tests/golden").join(format!("{suite}.json"));
            text_of(&file).contains(&format!("\"name\":\"{case}\""))
        } else {
            let name = test.rsplit("::").next().expect("a name");
            rust.contains(&format!("fn {name}()"))
        };
        assert!(exists, "{row}");
        n_rows += 1;
    }
    assert!(n_rows > 90, "{n_rows} rows");
}
