//! What the outside world does, and when: the input of a run. Where it comes from is `source`'s business.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use scheduler_core::model::{Object, Pod, Timestamp};

use super::workload::Workload;

/// When a pod goes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// It stays.
    #[default]
    Never,
    /// At this time, placed or not.
    At(Timestamp),
    /// So long after it was bound: it has done its work.
    After(Duration),
}

/// An object by kind, namespace and name; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name {
    /// Kind, such as `Deployment`.
    pub(crate) kind: String,
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// A pod is created, or one that has a node is there.
    Pod(Arc<Pod>, Leaves),
    /// A node, volume, namespace, … is created or changed.
    Object(Object),
    /// A workload is created or changed: its pods follow.
    Workload(Box<Workload>),
    /// An object is deleted; a workload with its pods, a node with those on it.
    Delete(Name),
    /// A workload gets another number of replicas.
    Scale(Name, u32),
    /// A node takes no new pods.
    Cordon(Arc<str>),
    /// A node takes pods again.
    Uncordon(Arc<str>),
    /// A node is cordoned, and its pods leave except those of DaemonSets.
    Drain(Arc<str>),
    /// A node is out of reach: it takes no pods now, and loses those it has after five minutes.
    Fail(Arc<str>),
    /// A node that was out of reach is back.
    Recover(Arc<str>),
}

/// Something and its time.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    /// When.
    pub(crate) at: Timestamp,
    /// What.
    pub(crate) what: Happening,
    /// Where it was read, for messages.
    pub(crate) line: u64,
}

/// Why an input cannot be used: where and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputError {
    /// File and line.
    pub(crate) place: String,
    /// What is wrong and what was expected.
    pub(crate) problem: String,
}

impl InputError {
    /// An error at a line of a file.
    pub(crate) fn at(file: &str, line: u64, problem: impl fmt::Display) -> Self {
        Self { place: format!("{file}:{line}"), problem: problem.to_string() }
    }

    /// A file that cannot be read, with the system's reason.
    pub(crate) fn unreadable(file: &str, error: &std::io::Error) -> Self {
        Self { place: format!("cannot read {file}"), problem: error.to_string() }
    }

    /// An error of a file as a whole.
    pub(crate) fn of(file: &str, problem: impl fmt::Display) -> Self {
        Self { place: file.to_owned(), problem: problem.to_string() }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

impl std::error::Error for InputError {}

/// Happenings in the order of their times, read while the run goes on, so that a long trace needs no memory.
pub(crate) type Script<'a> = Box<dyn Iterator<Item = Result<Timed, InputError>> + 'a>;
