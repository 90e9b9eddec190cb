//! What a resource is: its names, verbs, subresources, columns and strategy, as data. No resource is defined here.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::columns::Columns;
use crate::apiserver::custom::CustomType;

use super::strategy::{ScaleStrategy, Strategy, UpdateStrategy};

/// A set of API verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verbs(u16);

impl Verbs {
    const NAMES: [&'static str; 8] =
        ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    /// No verb.
    pub const NONE: Verbs = Verbs(0);
    /// POST.
    pub const CREATE: Verbs = Verbs(1);
    /// DELETE of one object.
    pub const DELETE: Verbs = Verbs(1 << 1);
    /// DELETE of a collection.
    pub const DELETE_COLLECTION: Verbs = Verbs(1 << 2);
    /// GET of one object.
    pub const GET: Verbs = Verbs(1 << 3);
    /// GET of a collection.
    pub const LIST: Verbs = Verbs(1 << 4);
    /// PATCH.
    pub const PATCH: Verbs = Verbs(1 << 5);
    /// PUT.
    pub const UPDATE: Verbs = Verbs(1 << 6);
    /// GET of a collection with `watch=true`.
    pub const WATCH: Verbs = Verbs(1 << 7);
    /// What nearly every stored resource has.
    pub const ALL: Verbs = Verbs(0xff);
    /// What a status-like subresource has: get, patch, update.
    pub const SUBOBJECT: Verbs = Verbs(1 << 3 | 1 << 5 | 1 << 6);

    /// Both sets together.
    pub const fn and(self, other: Verbs) -> Verbs {
        Verbs(self.0 | other.0)
    }

    /// This set without the other.
    pub const fn without(self, other: Verbs) -> Verbs {
        Verbs(self.0 & !other.0)
    }

    /// Whether every verb of the other set is in this one.
    pub const fn contains(self, other: Verbs) -> bool {
        self.0 & other.0 == other.0
    }

    /// The verbs' names, sorted, as discovery lists them.
    pub fn names(self) -> Vec<&'static str> {
        Verbs::NAMES.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| *name).collect()
    }
}

/// Names of a resource in a group, without a version: what objects are looked up by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group, `""` for the core group.
    pub group: Cow<'static, str>,
    /// Plural name, e.g. `pods`.
    pub resource: Cow<'static, str>,
}

impl GroupResource {
    /// A pair known at compile time.
    pub const fn of(group: &'static str, resource: &'static str) -> GroupResource {
        GroupResource { group: Cow::Borrowed(group), resource: Cow::Borrowed(resource) }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            out.write_str(&self.resource)
        } else {
            write!(out, "{}.{}", self.resource, self.group)
        }
    }
}

/// One served resource of one group version. Two resources with the same `storage` are two views of the same objects.
pub struct Resource {
    /// API group, `""` for the core group.
    pub group: Cow<'static, str>,
    /// API version, e.g. `v1`.
    pub version: Cow<'static, str>,
    /// Plural name in paths, e.g. `pods`.
    pub plural: Cow<'static, str>,
    /// Singular name in discovery, e.g. `pod`.
    pub singular: Cow<'static, str>,
    /// Kind, e.g. `Pod`.
    pub kind: Cow<'static, str>,
    /// Kind of a list, e.g. `PodList`.
    pub list_kind: Cow<'static, str>,
    /// Short names, e.g. `po`.
    pub short_names: Vec<Cow<'static, str>>,
    /// Categories, e.g. `all`.
    pub categories: Vec<Cow<'static, str>>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Verbs of the resource itself.
    pub verbs: Verbs,
    /// Subresources, in the order of discovery: by name, but for custom resources, whose status comes first.
    pub subresources: Vec<Subresource>,
    /// Key of the kind in the schema table, e.g. `io.k8s.api.core.v1.Pod`.
    pub type_name: Cow<'static, str>,
    /// Table printing.
    pub columns: Arc<dyn Columns>,
    /// Defaults, validation and the rest of what is particular to the kind.
    pub strategy: Arc<dyn Strategy>,
    /// Said in a `Warning` header to every request for the resource, for what is deprecated.
    pub deprecation: Option<Cow<'static, str>>,
    /// Set where a POST to the resource acts instead of storing an object (`bindings`).
    pub action: Option<Arc<dyn super::action::Action>>,
    /// What a CustomResourceDefinition says of the objects; `None` for kinds of the server's own.
    pub custom: Option<Arc<CustomType>>,
    /// Where objects are stored under `/registry/`, as etcd of a real cluster has it (`pods`, `services/specs`, `minions`).
    pub storage: Cow<'static, str>,
}

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The resource without its version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Resource({}, {})", self.group_resource(), self.version)
    }
}

/// A subresource of a resource.
pub struct Subresource {
    /// Last part of the path, e.g. `status`.
    pub name: Cow<'static, str>,
    /// Group of the body's kind where it is not the resource's own (`policy` for `pods/eviction`).
    pub group: Cow<'static, str>,
    /// Version of the body's kind where it is not the resource's own.
    pub version: Cow<'static, str>,
    /// Kind of the body.
    pub kind: Cow<'static, str>,
    /// Key of that kind in the schema table.
    pub type_name: Cow<'static, str>,
    /// Verbs.
    pub verbs: Verbs,
    /// How requests are answered.
    pub behavior: Behavior,
}

/// How requests to a subresource are answered.
pub enum Behavior {
    /// GET, PUT and PATCH of the whole object of which the strategy lets only a part through: status, finalize, approval, …
    Object(Arc<dyn UpdateStrategy>),
    /// GET, PUT and PATCH of an `autoscaling/v1` Scale made from the object.
    Scale(Arc<dyn ScaleStrategy>),
    /// POST of a body of another kind that acts on the object: binding, eviction, token.
    Action(Arc<dyn super::action::Action>),
    /// A connection to a container, node or service: log, exec, attach, portforward, proxy.
    Connect,
}
