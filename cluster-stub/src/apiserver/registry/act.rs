//! POST of a body that acts on an object: binding, eviction, token. A usual body is not decoded where admission was asked about
//! one like it before, left it as it was, and would do so again: what it read then is as it was, and nobody has a say who is
//! outside of this server (webhooks, policies).

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use super::body::Expected;
use super::context::RequestContext;
use super::media::{self, Accept, Encoding};
use super::options::{WriteOptions, WriteVerb};
use super::reads::{Noting, Reads};
use super::response::{self, Response};
use super::{Entry, Registry};
use crate::apiserver::admission::{AdmissionRequest, Operation};
use crate::apiserver::authn::UserInfo;
use crate::apiserver::codec::binding::Usual;
use crate::apiserver::resources::{Action, ActionRequest, Objects, Subresource, UsualRequest};
use crate::apiserver::status::ApiError;

/// Kinds of requests that are known to pass at a time; when it is more, all are forgotten.
const MAX_PASSED: usize = 64;

/// Requests with usual bodies that passed admission as they were.
#[derive(Default)]
pub(super) struct Passed {
    passes: RwLock<Vec<Arc<Pass>>>,
    /// Requests that were answered by it.
    #[cfg(test)]
    n_used: std::sync::atomic::AtomicU64,
}

/// One of them, without what its body says.
struct Pass {
    entry: Arc<Entry>,
    subresource: String,
    namespace: String,
    user: Arc<UserInfo>,
    reads: Reads,
}

impl Registry {
    /// Answers a POST to an acting subresource.
    pub(super) async fn on_action(
        &self,
        ctx: &mut RequestContext,
        entry: &Arc<Entry>,
        subresource: &Subresource,
        action: &dyn Action,
        body: &[u8],
        accept: Accept,
    ) -> Result<Response, ApiError> {
        ctx.options = WriteOptions::parse(&ctx.query, WriteVerb::Create)?;
        let ctx = &*ctx;
        let usual = usual(ctx, action, body);
        if let Some(usual) = usual
            && let Some(response) = self.act_as_usual(ctx, entry, action, usual, accept).await?
        {
            return Ok(response);
        }
        let api_version = if subresource.version.is_empty() {
            entry.api_version.clone()
        } else if subresource.group.is_empty() {
            subresource.version.to_string()
        } else {
            format!("{}/{}", subresource.group, subresource.version)
        };
        let ty = self.0.schema.find(&subresource.type_name);
        let expected = Expected { api_version: &api_version, kind: &subresource.kind, ty, custom: None };
        let object = self.decode_body(ctx, body, expected)?;
        let noting = usual.map(|_| Noting::new(self));
        Box::pin(self.act(ctx, entry, &ctx.info.name, action, object, accept, noting)).await
    }

    /// Admits the body of an action and lets it run on the object of this name. With `noting`, it is remembered if it passes.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request, handed on as they are")]
    pub(super) async fn act(
        &self,
        ctx: &RequestContext,
        entry: &Arc<Entry>,
        name: &str,
        action: &dyn Action,
        mut object: Value,
        accept: Accept,
        noting: Option<Noting<'_>>,
    ) -> Result<Response, ApiError> {
        let info = &ctx.info;
        if entry.resource.namespaced {
            super::create::check_namespace(super::meta::text(&object, "namespace"), &info.namespace)?;
        }
        action.apply_defaults(&mut object);
        let before = noting.as_ref().map(|_| object.clone());
        let options = super::create::create_options(ctx);
        let mut request = AdmissionRequest {
            operation: Operation::Create,
            resource: &entry.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: name.to_string(),
            user: &ctx.user,
            now: ctx.now,
            dry_run: ctx.options.dry_run,
            object,
            old_object: None,
            options: &options,
            objects: noting.as_ref().map_or(self as &dyn Objects, |noting| noting),
            warnings: Vec::new(),
            drawn: None,
        };
        self.0.admission.mutate(&mut request).await?;
        self.0.admission.validate(&mut request).await?;
        let passes = before.is_some_and(|before| before == request.object)
            && request.warnings.is_empty()
            && self.0.admission.is_determined(&request);
        std::mem::take(&mut request.warnings).into_iter().for_each(|warning| ctx.warn(warning));
        let object = request.object;
        if let Some(reads) = noting.filter(|_| passes).and_then(Noting::reads) {
            self.0.passed.put(Pass::of(ctx, entry, reads));
        }
        let dry_run = ctx.options.dry_run || dry_run_of(&object);
        let request = ActionRequest {
            namespace: &info.namespace,
            name,
            body: object,
            context: ctx.write_context(),
            dry_run,
            objects: self,
        };
        let (code, answer) = action.run(request).await?;
        Ok(response::object(code, &answer, accept))
    }

    /// Lets the action run on a usual body if it is known that admission has nothing to do with it.
    async fn act_as_usual(
        &self,
        ctx: &RequestContext,
        entry: &Arc<Entry>,
        action: &dyn Action,
        body: Usual<'_>,
        accept: Accept,
    ) -> Result<Option<Response>, ApiError> {
        let passes = self.0.passed.get(ctx, entry).is_some_and(|pass| pass.reads.are_current(self));
        if !passes || !self.0.admission.lets_bind(body.node, self) {
            return Ok(None);
        }
        let namespace = &ctx.info.namespace;
        let request = UsualRequest { namespace, body, context: ctx.write_context(), objects: self };
        let Some((code, answer)) = action.run_usual(request).await? else { return Ok(None) };
        #[cfg(test)]
        self.0.passed.n_used.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Some(response::encoded(code, answer, accept)))
    }
}

impl Passed {
    fn get(&self, ctx: &RequestContext, entry: &Arc<Entry>) -> Option<Arc<Pass>> {
        let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
        passes.iter().find(|pass| pass.is_of(ctx, entry)).cloned()
    }

    fn put(&self, pass: Pass) {
        let mut passes = self.passes.write().unwrap_or_else(PoisonError::into_inner);
        passes.retain(|known| !known.is_like(&pass));
        if passes.len() >= MAX_PASSED {
            passes.clear();
        }
        passes.push(Arc::new(pass));
    }

    #[cfg(test)]
    pub(super) fn n_used(&self) -> u64 {
        self.n_used.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Pass {
    fn of(ctx: &RequestContext, entry: &Arc<Entry>, reads: Reads) -> Pass {
        let info = &ctx.info;
        let (subresource, namespace) = (info.subresource.clone(), info.namespace.clone());
        Pass { entry: entry.clone(), subresource, namespace, user: ctx.user.clone(), reads }
    }

    fn is_of(&self, ctx: &RequestContext, entry: &Arc<Entry>) -> bool {
        Arc::ptr_eq(&self.entry, entry)
            && self.subresource == ctx.info.subresource
            && self.namespace == ctx.info.namespace
            && (Arc::ptr_eq(&self.user, &ctx.user) || self.user == ctx.user)
    }

    fn is_like(&self, other: &Pass) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
            && self.subresource == other.subresource
            && self.namespace == other.namespace
            && self.user == other.user
    }
}

/// What a usual body says that is to be acted upon where the path says.
fn usual<'b>(ctx: &RequestContext, action: &dyn Action, body: &'b [u8]) -> Option<Usual<'b>> {
    if ctx.options.dry_run || media::body_encoding(&ctx.headers) != Ok(Encoding::Json) {
        return None;
    }
    let info = &ctx.info;
    let is_here = |usual: &Usual<'_>| {
        usual.name == info.name && (usual.namespace.is_empty() || usual.namespace == info.namespace)
    };
    action.usual(body).filter(is_here)
}

/// Evictions carry a dry run in their own delete options too.
fn dry_run_of(body: &Value) -> bool {
    body["deleteOptions"]["dryRun"].as_array().is_some_and(|values| !values.is_empty())
}
