//! Binding a pod to a node: POST to `pods/binding`, or to `bindings`.
//!
//! Upstream: v1.36.2 `pkg/registry/core/pod/storage/storage.go` BindingREST.

use std::sync::LazyLock;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::super::action::{Action, ActionRequest, UsualRequest};
use super::super::core::persistent_volume::timestamp;
use super::super::objects::EncodedChange;
use super::super::resource::GroupResource;
use super::set_condition;
use crate::apiserver::codec::binding::{self as encoded, Plain, Usual};
use crate::apiserver::codec::sketch::Wanted;
use crate::apiserver::codec::stored;
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path};

const PODS: GroupResource = GroupResource::of("", "pods");
const PODS_BINDING: Qualified<'static> = Qualified { group: "", name: "pods/binding" };

/// What [`bind`] looks at and changes.
const MEMBERS: &Wanted = &[
    ("metadata", &["annotations", "deletionTimestamp", "labels", "uid"]),
    ("spec", &["nodeName", "schedulingGates"]),
    ("status", &["conditions", "nominatedNodeName"]),
];

/// Sets `spec.nodeName` once.
pub(super) struct BindPod;

impl Action for BindPod {
    fn run<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<(u16, Value), ApiError>> {
        Box::pin(async move {
            let metadata = request.body.at("metadata");
            let name = if request.name.is_empty() { metadata.text("name").to_owned() } else { request.name.to_owned() };
            if metadata.text("name") != name {
                return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
            }
            validate(&request.body)?;
            if !request.dry_run && bind_plainly(&request, &name).await? {
                return Ok((201, success()));
            }
            let binding = request.body.clone();
            let (pod_name, now) = (name.clone(), request.context.now);
            let change = move |pod: &mut Value| bind(pod, &binding, &pod_name, now);
            if request.dry_run {
                let pod = request.objects.read(&PODS, request.namespace, &name).await?;
                let mut pod = pod.ok_or_else(|| ApiError::not_found(Qualified { group: "", name: "pods" }, &name))?;
                change(&mut pod)?;
            } else {
                let (pods, namespace) = (&PODS, request.namespace);
                request.objects.update_members(pods, namespace, &name, MEMBERS, Box::new(change)).await?;
            }
            Ok((201, success()))
        })
    }

    fn usual<'b>(&self, body: &'b [u8]) -> Option<Usual<'b>> {
        encoded::read(body)
    }

    fn run_usual<'a>(&'a self, request: UsualRequest<'a>) -> BoxFuture<'a, Result<Option<(u16, Bytes)>, ApiError>> {
        static SUCCESS: LazyLock<Bytes> = LazyLock::new(|| stored::encode_served(&success()).into());
        Box::pin(async move {
            let UsualRequest { namespace, body, context, objects } = request;
            let time = timestamp(context.now);
            let plain = Plain { uid: body.uid, node: body.node, time: &time };
            let change: EncodedChange<'_> = Box::new(|pod| encoded::bind(pod, plain));
            let is_bound = objects.update_encoded(&PODS, namespace, body.name, change).await?;
            Ok(is_bound.then(|| (201, SUCCESS.clone())))
        })
    }
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// Binds a pod that nothing is known to stand in the way of; `false` when it takes a closer look.
async fn bind_plainly(request: &ActionRequest<'_>, name: &str) -> Result<bool, ApiError> {
    let time = timestamp(request.context.now);
    let Some(plain) = plain(&request.body, &time) else { return Ok(false) };
    let change: EncodedChange<'_> = Box::new(|pod| encoded::bind(pod, plain));
    request.objects.update_encoded(&PODS, request.namespace, name, change).await
}

/// A binding that asks for nothing but a node, at this time.
fn plain<'a>(binding: &'a Value, time: &'a str) -> Option<Plain<'a>> {
    let metadata = binding.at("metadata");
    let asks_more = ["annotations", "labels"].iter().any(|key| metadata.has(key));
    let is_plain = !asks_more && metadata.text("resourceVersion").is_empty();
    is_plain.then(|| Plain { uid: metadata.text("uid"), node: binding.at("target").text("name"), time })
}

/// Upstream answers a malformed binding with a bare 500.
fn validate(binding: &Value) -> Result<(), ApiError> {
    let target = binding.at("target");
    let path = Path::root("target");
    let mut errors = Vec::new();
    let kind = target.text("kind");
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported(&path.child("kind"), kind, &["Node", "<empty>"]));
    }
    if target.text("name").is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Err(ApiError::unclassified(crate::apiserver::status::aggregate(&texts)))
}

fn bind(pod: &mut Value, binding: &Value, name: &str, now: jiff::Timestamp) -> Result<(), ApiError> {
    let conflict = |why: String| ApiError::conflict(PODS_BINDING, name, why);
    let metadata = binding.at("metadata");
    for (key, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (want, have) = (metadata.text(key), pod.at("metadata").text(key));
        if !want.is_empty() && want != have {
            return Err(conflict(format!(
                "Precondition failed: {what} in precondition: {want}, {what} in object meta: {have}"
            )));
        }
    }
    if pod.at("metadata").has("deletionTimestamp") {
        return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let node = pod.at("spec").text("nodeName");
    if !node.is_empty() {
        return Err(conflict(format!("pod {name} is already assigned to node \"{node}\"")));
    }
    if !pod.at("spec").items("schedulingGates").is_empty() {
        return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    pod.object_mut("spec").put("nodeName", binding.at("target").at("name").clone());
    pod.object_mut("status").take_member("nominatedNodeName");
    for key in ["annotations", "labels"] {
        for (name, value) in metadata.entries(key).into_iter().flatten() {
            pod.object_mut("metadata").object_mut(key).put(name, value.clone());
        }
    }
    set_condition(pod, json!({"type": "PodScheduled", "status": "True"}), now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use proptest::prelude::*;

    fn any_section(keys: &'static str) -> impl Strategy<Value = Value> {
        let member = prop_oneof![
            Just(json!({})),
            Just(json!([])),
            Just(Value::Null),
            Just(json!("u")),
            any::<i32>().prop_map(Value::from),
            ".{0,4}".prop_map(Value::from),
            ".{0,2}".prop_map(|key| json!([{ key: "}" }])),
        ];
        prop::collection::btree_map(keys, member, 0..6).prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn the_plain_way_writes_what_the_long_one_does(
            metadata in any_section("annotations|labels|name|uid|uid|deletionTimestamp|managedFields|.{0,2}"),
            spec in any_section("containers|nodeName|priority|schedulerName|schedulingGates|tolerations|volumes"),
            status in any_section("conditions|nominatedNodeName|phase|qosClass|startTime|a"),
            asked in any_section("annotations|labels|resourceVersion|uid|uid|name"),
            node in "[a-z]{1,3}|\"|é",
        ) {
            let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status});
            let bytes = stored::encode(&pod);
            let binding = json!({"metadata": asked, "target": {"name": node}});
            let now = Timestamp::from_second(1_700_000_000).expect("a time");
            let time = timestamp(now);
            if let Some(got) = plain(&binding, &time).and_then(|plain| encoded::bind(&bytes, plain)) {
                let mut whole = stored::decode(&bytes, 7).expect("an object");
                bind(&mut whole, &binding, "p", now).expect("the plain way found nothing in the way");
                prop_assert_eq!(String::from_utf8(got), String::from_utf8(stored::encode(&whole)));
            }
        }
    }

    #[test]
    fn a_usual_pod_is_bound_the_plain_way() {
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "uid": "u", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c"}], "volumes": []}, "status": {"phase": "Pending", "qosClass": "Burstable"}});
        let binding =
            json!({"kind": "Binding", "metadata": {"name": "p", "uid": "u"}, "target": {"kind": "Node", "name": "n"}});
        let bytes = stored::encode(&pod);
        assert!(plain(&binding, "t").is_some_and(|plain| encoded::bind(&bytes, plain).is_some()));
        for (key, value) in [("labels", json!({"a": "b"})), ("resourceVersion", json!("5"))] {
            let mut binding = binding.clone();
            binding["metadata"][key] = value;
            assert!(plain(&binding, "t").is_none(), "{key}");
        }
    }

    #[test]
    fn a_pod_is_bound_once() {
        let binding = json!({"metadata": {"name": "p", "labels": {"zone": "a"}}, "target": {"name": "n1"}});
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {}, "status": {"nominatedNodeName": "n2"}});
        bind(&mut pod, &binding, "p", Timestamp::UNIX_EPOCH).expect("an unbound pod");
        assert_eq!(pod["spec"]["nodeName"], "n1");
        assert_eq!(pod["metadata"]["labels"]["zone"], "a");
        assert!(pod["status"].get("nominatedNodeName").is_none());
        let error = bind(&mut pod, &binding, "p", Timestamp::UNIX_EPOCH).expect_err("bound already");
        assert_eq!(
            error.message(),
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
        );
    }

    #[test]
    fn gates_and_deletion_refuse_a_binding() {
        let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n1"}});
        for pod in
            [json!({"spec": {"schedulingGates": [{"name": "g"}]}}), json!({"metadata": {"deletionTimestamp": "t"}})]
        {
            let error = bind(&mut pod.clone(), &binding, "p", Timestamp::UNIX_EPOCH).expect_err("not to be bound");
            assert_eq!(error.code(), 409);
        }
    }
}
