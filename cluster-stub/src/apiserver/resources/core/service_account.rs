//! ServiceAccounts. The `token` subresource is answered where the cluster's token key lives.
//!
//! Upstream: v1.36.2 `pkg/registry/core/serviceaccount/strategy.go`.

use super::super::columns;
use super::super::kind::Kind;
use super::super::resource::Resource;

/// ServiceAccount.
pub(super) fn resource() -> Resource {
    Kind::new("", "v1", "serviceaccounts", "ServiceAccount")
        .returns_deleted()
        .short_names(&["sa"])
        .columns(columns::NAME_AND_AGE, columns::name_and_age)
        .build()
}
