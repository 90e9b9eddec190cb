//! GET of `pods/NAME/log`, and the refusal of all other connections: the containers of this cluster are simulated.

use futures::StreamExt as _;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::apiserver::registry::{ConnectRequest, Response};
use crate::apiserver::request::Query;
use crate::apiserver::resources::{GroupResource, Objects as _};
use crate::apiserver::server::Body;
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::field::Path;
use crate::kubelet::logs::{LogError, LogOptions, LogRequest, SharedLogSource};

const PODS: GroupResource = GroupResource::of("", "pods");
const OPTIONS: Qualified<'static> = Qualified { group: "", name: "PodLogOptions" };

/// Upstream v1.36.2: pkg/registry/core/pod/rest/log.go and strategy.go LogLocation.
pub(super) async fn log(request: &ConnectRequest<'_>, source: Option<&SharedLogSource>) -> Result<Response, ApiError> {
    let info = &request.ctx.info;
    let query = &request.ctx.query;
    let options = options(query, request.ctx.now).map_err(|faults| ApiError::invalid(OPTIONS, &info.name, &faults))?;
    let pod = pod(request).await?;
    let container = container(&pod, query.get("container").unwrap_or_default(), &info.name)?;
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let (Some(source), true) = (source, bound) else { return Ok(nothing()) };
    let wanted = LogRequest {
        namespace: info.namespace.clone(),
        pod: info.name.clone(),
        container,
        previous: flag(query, "previous"),
        options,
    };
    match source.logs(wanted).await {
        Ok(stream) => Ok(plain(Body::stream(stream.map(|piece| piece.map_err(|error| error.to_string()))))),
        Err(LogError::PodNotFound { .. }) => {
            Err(ApiError::not_found(Qualified { group: "", name: "pods" }, &info.name))
        }
        Err(error) => Err(ApiError::bad_request(error.to_string())),
    }
}

/// Why exec, attach, port-forward and proxy lead nowhere.
pub(super) fn no_connection(request: &ConnectRequest<'_>) -> ApiError {
    let info = &request.ctx.info;
    let resource = Qualified { group: &info.group, name: &info.resource };
    let Some(object) = request.registry.get(&request.resource.group_resource(), &info.namespace, &info.name) else {
        return ApiError::not_found(resource, &info.name);
    };
    if info.resource == "pods"
        && let Err(error) = streaming_location(&object, &request.ctx.query, &info.subresource, &info.name)
    {
        return error;
    }
    let (what, name) = (&info.subresource, &info.name);
    ApiError::unavailable(format!(
        "{resource} {name:?} is simulated: nothing runs there that {what} could connect to, want a cluster with real nodes"
    ))
}

/// What a connection to a pod needs before its node is asked: a container that is there, and a node.
///
/// Upstream v1.36.2: pkg/registry/core/pod/strategy.go streamLocation and PortForwardLocation.
fn streaming_location(pod: &Value, query: &Query, subresource: &str, name: &str) -> Result<(), ApiError> {
    if matches!(subresource, "exec" | "attach") {
        container(pod, query.get("container").unwrap_or_default(), name)?;
    }
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if bound || subresource == "proxy" {
        return Ok(());
    }
    Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")))
}

async fn pod(request: &ConnectRequest<'_>) -> Result<Value, ApiError> {
    let info = &request.ctx.info;
    let found = request.registry.read(&PODS, &info.namespace, &info.name).await?;
    found.ok_or_else(|| ApiError::not_found(Qualified { group: "", name: "pods" }, &info.name))
}

/// The container that is meant: the named one, or the only one.
fn container(pod: &Value, wanted: &str, name: &str) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<&str> {
        pod["spec"][list].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect()
    };
    let (containers, init, ephemeral) = (names("containers"), names("initContainers"), names("ephemeralContainers"));
    if !wanted.is_empty() {
        let known = [&containers, &init, &ephemeral].into_iter().flatten().any(|name| *name == wanted);
        return if known {
            Ok(wanted.to_owned())
        } else {
            Err(ApiError::bad_request(format!("container {wanted} is not valid for pod {name}")))
        };
    }
    match containers.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(ApiError::bad_request(format!("a container name must be specified for pod {name}"))),
        many => {
            let mut message =
                format!("a container name must be specified for pod {name}, choose one of: [{}]", many.join(" "));
            if !init.is_empty() {
                message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            if !ephemeral.is_empty() {
                message.push_str(&format!(" or one of the ephemeral containers: [{}]", ephemeral.join(" ")));
            }
            Err(ApiError::bad_request(message))
        }
    }
}

/// Upstream v1.36.2: pkg/apis/core/validation/validation.go ValidatePodLogOptions.
fn options(query: &Query, now: Timestamp) -> Result<LogOptions, Vec<FieldError>> {
    let mut faults = Vec::new();
    let mut number = |name: &'static str, min: i64, why: &str| -> Option<i64> {
        let text = query.get(name).filter(|text| !text.is_empty())?;
        let parsed = text.parse::<i64>().unwrap_or(0);
        if parsed < min {
            faults.push(FieldError::invalid(&Path::root(name), parsed, why));
        }
        Some(parsed)
    };
    let tail = number("tailLines", 0, "must be greater than or equal to 0");
    let limit = number("limitBytes", 1, "must be greater than 0");
    let seconds = number("sinceSeconds", 1, "must be greater than 0");
    let time = query.get("sinceTime").and_then(|text| text.parse::<Timestamp>().ok());
    if seconds.is_some() && time.is_some() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        faults.push(FieldError::forbidden(&Path::root(""), why));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let since = seconds.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    Ok(LogOptions {
        follow: flag(query, "follow"),
        since: since.or(time),
        tail_lines: tail.and_then(|lines| usize::try_from(lines).ok()),
        timestamps: flag(query, "timestamps"),
        limit_bytes: limit.and_then(|bytes| u64::try_from(bytes).ok()),
    })
}

fn flag(query: &Query, name: &str) -> bool {
    query.get(name).is_some_and(|value| !matches!(value, "false" | "0"))
}

/// There is no place to read from yet, and so no content.
fn nothing() -> Response {
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn plain(body: Body) -> Response {
    let mut response = http::Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_container_is_named_or_the_only_one() {
        let pod = |containers: &[&str]| {
            let list: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
            json!({"spec": {"containers": list, "initContainers": [{"name": "i"}]}})
        };
        let cases = [
            (pod(&["a"]), "", Ok("a")),
            (pod(&["a"]), "i", Ok("i")),
            (pod(&["a"]), "b", Err("container b is not valid for pod p")),
            (
                pod(&["a", "b"]),
                "",
                Err(
                    "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]",
                ),
            ),
        ];
        for (pod, wanted, want) in cases {
            let got = container(&pod, wanted, "p");
            assert_eq!(got.as_deref().map_err(ApiError::message), want);
        }
    }

    #[test]
    fn a_connection_needs_a_container_and_a_node() {
        let spec = json!({"containers": [{"name": "a"}]});
        let bound = json!({"spec": {"nodeName": "n", "containers": [{"name": "a"}]}});
        let waiting = json!({"spec": spec});
        let cases = [
            (&bound, "exec", "", Ok(())),
            (&bound, "exec", "container=b", Err("container b is not valid for pod p")),
            (&bound, "portforward", "", Ok(())),
            (&waiting, "attach", "", Err("pod p does not have a host assigned")),
            (&waiting, "portforward", "", Err("pod p does not have a host assigned")),
            (&waiting, "proxy", "", Ok(())),
        ];
        for (pod, subresource, query, want) in cases {
            let got = streaming_location(pod, &Query::parse(query), subresource, "p");
            assert_eq!(got.as_ref().map_err(|error| error.message()).copied(), want, "{subresource} {query}");
        }
    }

    #[test]
    fn options_are_read_and_checked() {
        let now = Timestamp::from_second(1_000).unwrap();
        let read = options(&Query::parse("follow=true&tailLines=3&sinceSeconds=10&timestamps=false"), now).unwrap();
        assert_eq!((read.follow, read.tail_lines, read.timestamps), (true, Some(3), false));
        assert_eq!(read.since, Some(Timestamp::from_second(990).unwrap()));
        for bad in ["tailLines=-1", "limitBytes=0", "sinceSeconds=0", "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z"] {
            assert!(options(&Query::parse(bad), now).is_err(), "{bad}");
        }
    }
}
