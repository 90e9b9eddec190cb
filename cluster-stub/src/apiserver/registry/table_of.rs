//! Answers in other views than the object: tables and metadata.

use serde_json::{Value, json};

use super::context::RequestContext;
use super::list::Page;
use super::media::{Accept, View};
use super::write::Written;
use super::{Entry, Registry, response};
use crate::apiserver::status::ApiError;
use crate::apiserver::table::{self, IncludeObject};

impl Registry {
    /// A list as a table or as metadata.
    pub(super) fn view_of_list(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        page: &Page,
        accept: Accept,
    ) -> Result<Value, ApiError> {
        let values: Vec<Value> = page.objects.iter().map(|object| entry.value(object)).collect();
        if accept.view == View::Metadata {
            return Ok(table::partial_metadata_list(values.iter(), &page.metadata()));
        }
        let include = IncludeObject::parse(&ctx.query)?;
        let columns = entry.resource.columns.as_ref();
        Ok(table::table(columns, values.iter(), page.metadata(), include, ctx.now, true))
    }

    /// One object in the view that the client asked for.
    pub(super) fn answer(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        code: u16,
        written: Written,
        accept: Accept,
    ) -> Result<response::Response, ApiError> {
        let object = &written.object;
        // A Status has no columns.
        if accept.view == View::Object || object["kind"] == "Status" {
            return Ok(response::encoded(code, written.bytes, accept));
        }
        let view = view_of_object(ctx, entry, object, accept.view, true)?;
        Ok(response::object(code, &view, accept))
    }
}

/// One object as a table of one row or as metadata.
pub(super) fn view_of_object(
    ctx: &RequestContext,
    entry: &Entry,
    object: &Value,
    view: View,
    with_columns: bool,
) -> Result<Value, ApiError> {
    Ok(match view {
        View::Object => object.clone(),
        View::Metadata => table::partial_metadata(object),
        View::Table => {
            let include = IncludeObject::parse(&ctx.query)?;
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            let columns = entry.resource.columns.as_ref();
            let one = std::iter::once(object);
            // A watch may run for hours: ages count from now, not from its beginning.
            table::table(columns, one, metadata, include, jiff::Timestamp::now().max(ctx.now), with_columns)
        }
    })
}
