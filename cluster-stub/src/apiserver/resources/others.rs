//! Kinds with few rules of the groups node, resource, flowcontrol, apiregistration,
//! authentication and authorization: one line of data each, columns below.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{self, Column, or_else};
use super::kind::{Kind, same};
use super::resource::{Resource, Verbs};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::{dns_label, path_segment};
use crate::apiserver::validation::{FieldError, Path};

/// Every resource of these groups.
pub(super) fn resources() -> Vec<Resource> {
    let mut resources = vec![runtime_class()];
    resources.extend(dynamic_resources());
    resources.extend(flow_control());
    resources.push(api_service());
    resources.extend(reviews());
    resources
}

/// Upstream: `pkg/apis/node/validation/validation.go`.
fn runtime_class() -> Resource {
    Kind::new("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass")
        .cluster_scoped()
        .create_on_update()
        .conditional_update_only()
        .defaults(|object| {
            if let Some(overhead) = object.get_mut("overhead") {
                super::resource_list::round_up(overhead.get_mut("podFixed"));
            }
        })
        .validate(|object, out| {
            let (handler, field) = (object.text("handler"), Path::root("handler"));
            out.extend(dns_label(handler).into_iter().map(|fault| FieldError::invalid(&field, handler, fault)));
            let scheduling = Path::root("scheduling");
            let tolerations = object.at("scheduling").items("tolerations");
            super::pod::affinity::validate_tolerations(tolerations, &scheduling.child("tolerations"), out);
        })
        .validate_update(|object, old, out| {
            if !same(object.at("handler"), old.at("handler")) {
                out.push(FieldError::invalid(&Path::root("handler"), object.text("handler"), "field is immutable"));
            }
        })
        .columns(const { &[columns::NAME, Column::text("Handler"), columns::AGE] }, |object, now| {
            vec![columns::name(object), json!(object.text("handler")), columns::age(object, now)]
        })
        .build()
}

fn dynamic_resources() -> Vec<Resource> {
    let kind = |plural, kind| Kind::new("resource.k8s.io", "v1", plural, kind).returns_deleted();
    vec![
        kind("deviceclasses", "DeviceClass")
            .cluster_scoped()
            .generation()
            .columns(columns::NAME_AND_AGE, columns::name_and_age)
            .build(),
        kind("resourceclaims", "ResourceClaim")
            .status()
            .validate_update(|object, old, out| {
                if !same(object.at("spec"), old.at("spec")) {
                    out.push(FieldError::invalid(&Path::root("spec"), object.at("spec").clone(), "field is immutable"));
                }
            })
            .columns(const { &[columns::NAME, Column::text("State"), columns::AGE] }, claim_cells)
            .build(),
        kind("resourceclaimtemplates", "ResourceClaimTemplate")
            .columns(columns::NAME_AND_AGE, columns::name_and_age)
            .build(),
        kind("resourceslices", "ResourceSlice")
            .cluster_scoped()
            .generation()
            .field_labels(&["spec.nodeName", "spec.driver"], |object| {
                let spec = object.at("spec");
                vec![spec.text("nodeName").to_owned(), spec.text("driver").to_owned()]
            })
            .columns(
                const { &[columns::NAME, Column::text("Node"), Column::text("Driver"), Column::text("Pool"), columns::AGE] },
                |object, now| {
                    let spec = object.at("spec");
                    vec![
                        columns::name(object),
                        json!(spec.text("nodeName")),
                        json!(spec.text("driver")),
                        json!(spec.at("pool").text("name")),
                        columns::age(object, now),
                    ]
                },
            )
            .build(),
    ]
}

fn claim_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let deleted = object.at("metadata").has("deletionTimestamp");
    let status = object.at("status");
    let mut states = Vec::new();
    if deleted {
        states.push("deleted");
    }
    if status.has("allocation") {
        states.push("allocated");
        if !status.items("reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !deleted {
        states.push("pending");
    }
    vec![columns::name(object), json!(states.join(",")), columns::age(object, now)]
}

/// Upstream: `pkg/apis/flowcontrol/v1/defaults.go`.
fn flow_control() -> Vec<Resource> {
    let kind = |plural, kind| {
        Kind::new("flowcontrol.apiserver.k8s.io", "v1", plural, kind).cluster_scoped().generation().status()
    };
    vec![
        kind("flowschemas", "FlowSchema")
            .defaults(|object| object.object_mut("spec").default_to("matchingPrecedence", 1000))
            .columns(
                const {
                    &[
                        columns::NAME,
                        Column::text("PriorityLevel"),
                        Column::text("MatchingPrecedence"),
                        Column::text("DistinguisherMethod"),
                        columns::AGE,
                        Column::text("MissingPL"),
                    ]
                },
                |object, now| {
                    let spec = object.at("spec");
                    let conditions = object.at("status").items("conditions");
                    let dangling = conditions.iter().find(|condition| condition.text("type") == "Dangling");
                    vec![
                        columns::name(object),
                        json!(spec.at("priorityLevelConfiguration").text("name")),
                        json!(spec.int("matchingPrecedence").unwrap_or(0)),
                        json!(or_else(spec.at("distinguisherMethod").text("type"), "<none>")),
                        columns::age(object, now),
                        json!(dangling.map_or("?", |condition| condition.text("status"))),
                    ]
                },
            )
            .build(),
        kind("prioritylevelconfigurations", "PriorityLevelConfiguration")
            .columns(
                const {
                    &[
                        columns::NAME,
                        Column::text("Type"),
                        Column::text("NominalConcurrencyShares"),
                        Column::text("Queues"),
                        Column::text("HandSize"),
                        Column::text("QueueLengthLimit"),
                        columns::AGE,
                    ]
                },
                |object, now| {
                    let limited = object.at("spec").at("limited");
                    let queuing = limited.at("limitResponse").at("queuing");
                    let shown = |holder: &Value, key: &str| {
                        holder.int(key).map_or_else(|| json!("<none>"), |value| json!(value))
                    };
                    vec![
                        columns::name(object),
                        json!(object.at("spec").text("type")),
                        shown(limited, "nominalConcurrencyShares"),
                        shown(queuing, "queues"),
                        shown(queuing, "handSize"),
                        shown(queuing, "queueLengthLimit"),
                        columns::age(object, now),
                    ]
                },
            )
            .build(),
    ]
}

fn api_service() -> Resource {
    let mut resource = Kind::new("apiregistration.k8s.io", "v1", "apiservices", "APIService")
        .name_rule(path_segment)
        .cluster_scoped()
        .categories(&["api-extensions"])
        .status()
        .defaults(|object| {
            if let Some(service) =
                object.get_mut("spec").and_then(|spec| spec.get_mut("service")).filter(|one| one.is_object())
            {
                service.default_to("port", 443);
            }
        })
        .columns(
            const { &[columns::NAME, Column::text("Service"), Column::text("Available"), columns::AGE] },
            |object, now| {
                let service = object.at("spec").at("service");
                let shown = if service.is_null() {
                    "Local".to_owned()
                } else {
                    format!("{}/{}", service.text("namespace"), service.text("name"))
                };
                let conditions = object.at("status").items("conditions");
                let available = conditions.iter().find(|condition| condition.text("type") == "Available");
                let state = available.map_or("Unknown".to_owned(), |condition| match condition.text("status") {
                    "True" => "True".to_owned(),
                    status => format!("{status} ({})", condition.text("reason")),
                });
                vec![columns::name(object), json!(shown), json!(state), columns::age(object, now)]
            },
        )
        .build();
    resource.storage = "apiregistration.k8s.io/apiservices".into();
    resource
}

/// Questions to the server that are answered and not stored. Who answers them is the server's business.
fn reviews() -> Vec<Resource> {
    let review = |group, plural, kind| {
        Kind::new(group, "v1", plural, kind).verbs(Verbs::CREATE).cluster_scoped().storage("").build()
    };
    vec![
        review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
        review("authentication.k8s.io", "tokenreviews", "TokenReview"),
        Kind::new("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview")
            .verbs(Verbs::CREATE)
            .storage("")
            .build(),
        review("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        review("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    ]
}
