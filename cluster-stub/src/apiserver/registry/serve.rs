//! From an authorized request to the verb that answers it. The future of each verb has a box of its own: a request is not to
//! move, and make room for, what the largest of them needs.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use jiff::Timestamp;
use serde_json::Value;

use super::alike::Notes;
use super::connect::ConnectRequest;
use super::context::RequestContext;
use super::media::{self, Accept, Encoding};
use super::options::{DeleteOptions, ListOptions, WriteOptions, WriteVerb};
use super::patch::PatchType;
use super::response::{self, Response};
use super::{Entry, Registry};
use crate::apiserver::authn::UserInfo;
use crate::apiserver::codec::proto::{self, Envelope};
use crate::apiserver::codec::yaml;
use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::resources::{Behavior, Verbs};
use crate::apiserver::status::ApiError;

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

impl Registry {
    /// Answers an authorized request for a resource. `received` is when it came in.
    pub async fn serve(
        &self,
        info: Arc<RequestInfo>,
        user: Arc<UserInfo>,
        mut parts: Parts,
        body: Bytes,
        received: Timestamp,
    ) -> Response {
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let headers = std::mem::take(&mut parts.headers);
        let mut ctx = RequestContext::new(info, query, headers, user, received);
        let method = parts.method.clone();
        let extensions = std::mem::take(&mut parts.extensions);
        let outcome = self.dispatch(&mut ctx, &method, extensions, body).await;
        outcome
            .unwrap_or_else(|error| response::failure(&error, Accept::negotiate(&ctx.headers, &ctx.query, true).ok()))
    }

    async fn dispatch(
        &self,
        ctx: &mut RequestContext,
        method: &Method,
        extensions: http::Extensions,
        body: Bytes,
    ) -> Result<Response, ApiError> {
        let info = &ctx.info;
        let entry = self.entry(&info.group, &info.version, &info.resource).ok_or_else(ApiError::no_such_resource)?;
        check_scope(&entry, info)?;
        let verb = verb_of(&info.verb).ok_or_else(ApiError::method_not_allowed)?;
        if let Some(warning) = &entry.resource.deprecation {
            ctx.warn(warning.as_ref());
        }
        let outcome = if info.subresource.is_empty() {
            self.on_resource(ctx, &entry, verb, method, extensions, body).await
        } else {
            self.on_subresource(ctx, &entry, verb, method, extensions, body).await
        };
        let mut response = outcome?;
        response::add_warnings(&mut response, &ctx.take_warnings());
        Ok(response)
    }

    async fn on_resource(
        &self,
        ctx: &mut RequestContext,
        entry: &Arc<Entry>,
        verb: Verbs,
        method: &Method,
        extensions: http::Extensions,
        body: Bytes,
    ) -> Result<Response, ApiError> {
        let named = !ctx.info.name.is_empty();
        let fits = match verb {
            Verbs::CREATE => !named,
            Verbs::GET | Verbs::UPDATE | Verbs::PATCH | Verbs::DELETE => named,
            _ => true,
        };
        if !fits || !entry.resource.verbs.contains(verb) {
            return Err(ApiError::method_not_allowed());
        }
        let accept = Accept::negotiate(&ctx.headers, &ctx.query, true)?;
        if entry.cache.is_none() {
            return Box::pin(self.on_virtual(ctx, entry, verb, method, extensions, &body, accept)).await;
        }
        match verb {
            Verbs::GET => {
                let written = self.get_object(ctx, entry).await?;
                self.answer(ctx, entry, 200, written, accept)
            }
            Verbs::LIST => {
                let options = list_options(ctx, false)?;
                Box::pin(self.list(ctx, entry, &options, accept)).await
            }
            Verbs::WATCH => {
                let options = list_options(ctx, true)?;
                let mut own = RequestContext::new(
                    ctx.info.clone(),
                    ctx.query.clone(),
                    http::HeaderMap::new(),
                    ctx.user.clone(),
                    ctx.now,
                );
                own.options = ctx.options.clone();
                Box::pin(self.watch(Arc::new(own), entry.clone(), options, accept)).await
            }
            Verbs::CREATE => {
                ctx.options = WriteOptions::parse(&ctx.query, WriteVerb::Create)?;
                let ctx = &*ctx;
                let candidate = self.candidate(ctx, entry, &body, accept);
                if let Some(candidate) = &candidate
                    && let Some(response) = Box::pin(self.create_alike(candidate, accept)).await?
                {
                    return Ok(response);
                }
                let object = self.decode_body(ctx, &body, entry.expected())?;
                if let Some(action) = &entry.resource.action {
                    let name = super::meta::text(&object, "name").to_string();
                    return Box::pin(self.act(ctx, entry, &name, action.as_ref(), object, accept, None)).await;
                }
                let candidate = candidate.filter(|candidate| self.is_worth_noting(candidate));
                let notes = candidate.as_ref().map(|_| Notes::new(self));
                let creation = self.create_noted(ctx, entry, &ctx.info.namespace, object, notes.as_ref());
                let written = Box::pin(creation).await?;
                if let (Some(candidate), Some(notes)) = (candidate, notes) {
                    self.remember(&candidate, notes, &written.object);
                }
                self.answer(ctx, entry, 201, written, accept)
            }
            Verbs::UPDATE => {
                ctx.options = WriteOptions::parse(&ctx.query, WriteVerb::Update)?;
                let object = self.decode_body(ctx, &body, entry.expected())?;
                let (created, written) = Box::pin(self.update_object(ctx, entry, "", object)).await?;
                self.answer(ctx, entry, if created { 201 } else { 200 }, written, accept)
            }
            Verbs::PATCH => Box::pin(self.on_patch(ctx, entry, "", &body, accept)).await,
            Verbs::DELETE => {
                let options = self.delete_options(ctx, &body)?;
                let info = &ctx.info;
                let deleted = Box::pin(self.delete_object(ctx, entry, &info.namespace, &info.name, &options)).await?;
                let code = if !deleted.gone && options.orphan_dependents == Some(false) { 202 } else { 200 };
                self.answer(ctx, entry, code, deleted.answer, accept)
            }
            _ => {
                let list = ListOptions::parse(&ctx.query, false)?;
                let options = self.delete_options(ctx, &body)?;
                let bytes = Box::pin(self.delete_collection(ctx, entry, &list, &options)).await?;
                Ok(response::encoded(200, bytes, accept))
            }
        }
    }

    async fn on_patch(
        &self,
        ctx: &mut RequestContext,
        entry: &Entry,
        subresource: &str,
        body: &[u8],
        accept: Accept,
    ) -> Result<Response, ApiError> {
        let patch_type = PatchType::of(ctx, entry)?;
        let verb = if patch_type == PatchType::Apply { WriteVerb::Apply } else { WriteVerb::Patch };
        ctx.options = WriteOptions::parse(&ctx.query, verb)?;
        let (created, written) = self.patch_object(ctx, entry, subresource, patch_type, body).await?;
        self.answer(ctx, entry, if created { 201 } else { 200 }, written, accept)
    }

    async fn on_subresource(
        &self,
        ctx: &mut RequestContext,
        entry: &Arc<Entry>,
        verb: Verbs,
        method: &Method,
        extensions: http::Extensions,
        body: Bytes,
    ) -> Result<Response, ApiError> {
        let resource = entry.resource.clone();
        let name = ctx.info.subresource.clone();
        let subresource = resource.subresource(&name).ok_or_else(ApiError::no_such_resource)?;
        if !subresource.verbs.contains(verb) {
            return Err(ApiError::method_not_allowed());
        }
        let accept = Accept::negotiate(&ctx.headers, &ctx.query, true)?;
        match (&subresource.behavior, verb) {
            (Behavior::Object(_), Verbs::GET) => {
                let written = self.get_object(ctx, entry).await?;
                self.answer(ctx, entry, 200, written, accept)
            }
            (Behavior::Object(_), Verbs::UPDATE) => {
                ctx.options = WriteOptions::parse(&ctx.query, WriteVerb::Update)?;
                let object = self.decode_body(ctx, &body, entry.expected())?;
                let (_, written) = Box::pin(self.update_object(ctx, entry, &name, object)).await?;
                self.answer(ctx, entry, 200, written, accept)
            }
            (Behavior::Object(_), _) => Box::pin(self.on_patch(ctx, entry, &name, &body, accept)).await,
            (Behavior::Scale(scale), _) => {
                Box::pin(self.on_scale(ctx, entry, scale.as_ref(), verb, &body, accept)).await
            }
            (Behavior::Action(action), _) => {
                Box::pin(self.on_action(ctx, entry, subresource, action.as_ref(), &body, accept)).await
            }
            (Behavior::Connect, _) => {
                let request = ConnectRequest {
                    ctx,
                    resource: &entry.resource,
                    method,
                    extensions,
                    body: &body,
                    object: Value::Null,
                    accept,
                    registry: self,
                };
                self.0.connector.connect(request).await
            }
        }
    }

    /// A kind that is asked but never stored.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request, handed on as they are")]
    async fn on_virtual(
        &self,
        ctx: &mut RequestContext,
        entry: &Entry,
        verb: Verbs,
        method: &Method,
        extensions: http::Extensions,
        body: &Bytes,
        accept: Accept,
    ) -> Result<Response, ApiError> {
        let mut object = Value::Null;
        if verb == Verbs::CREATE {
            ctx.options = WriteOptions::parse(&ctx.query, WriteVerb::Create)?;
            object = self.decode_body(ctx, body, entry.expected())?;
            entry.resource.strategy.apply_defaults(&mut object);
        }
        let request =
            ConnectRequest { ctx, resource: &entry.resource, method, extensions, body, object, accept, registry: self };
        let (code, answer) = self.0.connector.answer(request).await?;
        Ok(response::object(code, &answer, accept))
    }

    /// The options of a delete: from the body if there is one, otherwise from the query.
    fn delete_options(&self, ctx: &RequestContext, body: &[u8]) -> Result<DeleteOptions, ApiError> {
        if body.is_empty() {
            return DeleteOptions::from_query(&ctx.query);
        }
        let value: Value = match media::body_encoding(&ctx.headers)? {
            Encoding::Json => serde_json::from_slice(body).map_err(|error| {
                ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
            })?,
            Encoding::Yaml => yaml::parse(body).map_err(ApiError::bad_request)?,
            Encoding::Protobuf => {
                let envelope = Envelope::open(body).map_err(ApiError::bad_request)?;
                let ty = self.0.schema.find(DELETE_OPTIONS).ok_or_else(|| ApiError::internal(DELETE_OPTIONS))?;
                proto::decode(&self.0.schema, ty, envelope.raw).map_err(ApiError::bad_request)?
            }
        };
        let kind = value["kind"].as_str().unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            return Err(ApiError::bad_request("decoded object cannot be converted to DeleteOptions"));
        }
        DeleteOptions::from_body(&value)
    }
}

/// The API verb of this name.
fn verb_of(name: &str) -> Option<Verbs> {
    Some(match name {
        "get" => Verbs::GET,
        "list" => Verbs::LIST,
        "watch" => Verbs::WATCH,
        "create" => Verbs::CREATE,
        "update" => Verbs::UPDATE,
        "patch" => Verbs::PATCH,
        "delete" => Verbs::DELETE,
        "deletecollection" => Verbs::DELETE_COLLECTION,
        _ => return None,
    })
}

/// A namespaced object is only found inside a namespace, a cluster-scoped one only outside; a namespace itself is both.
fn check_scope(entry: &Entry, info: &RequestInfo) -> Result<(), ApiError> {
    let resource = &entry.resource;
    if resource.namespaced {
        let collection = matches!(info.verb.as_str(), "list" | "watch");
        let virtual_create = entry.cache.is_none() && info.verb == "create";
        if info.namespace.is_empty() && !collection {
            if virtual_create {
                return Err(ApiError::no_such_resource());
            }
            // A create or collection delete outside a namespace has a path, but no such method.
            return Err(if info.name.is_empty() || info.verb == "deletecollection" {
                ApiError::method_not_allowed()
            } else {
                ApiError::no_such_resource()
            });
        }
    } else if !info.namespace.is_empty() && info.resource != "namespaces" {
        return Err(ApiError::no_such_resource());
    }
    Ok(())
}

fn list_options(ctx: &RequestContext, watch: bool) -> Result<ListOptions, ApiError> {
    let mut options = ListOptions::parse(&ctx.query, watch)?;
    // `/watch/<resource>/<name>` follows one object.
    if ctx.info.watch_prefix && !ctx.info.name.is_empty() {
        options.fields = crate::apiserver::selector::FieldSelector::parse(&format!("metadata.name={}", ctx.info.name))
            .map_err(ApiError::bad_request)?;
    }
    Ok(options)
}
