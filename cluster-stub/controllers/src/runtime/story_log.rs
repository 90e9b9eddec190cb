//! Collects what one reconcile wrote, so that it becomes one step of the story. Costs a thread-local look-up when nobody listens.

use std::cell::RefCell;
use std::time::Instant;

use cluster_stub_base::story::{Component, Step, Story};

use super::api::Object;
use super::key::ObjectKey;

/// Longest list of writes that one step spells out.
const MAX_WRITES: usize = 4;

#[derive(Debug)]
struct Write {
    verb: &'static str,
    kind: String,
    key: ObjectKey,
    resource_version: Option<String>,
}

tokio::task_local! {
    static WRITES: RefCell<Vec<Write>>;
}

/// Notes that the running reconcile wrote `object`.
pub(crate) fn wrote<K: Object>(verb: &'static str, object: &K) {
    // Outside a followed reconcile there is nothing to collect into, and that is no error.
    let _ = WRITES.try_with(|writes| {
        writes.borrow_mut().push(Write {
            verb,
            kind: K::kind(&()).into_owned(),
            key: ObjectKey::of(object),
            resource_version: object.meta().resource_version.clone(),
        });
    });
}

/// Notes that the running reconcile changed or deleted an object whose new state it does not know.
pub(crate) fn changed(verb: &'static str, kind: &str, key: &ObjectKey) {
    let _ = WRITES.try_with(|writes| {
        writes.borrow_mut().push(Write { verb, kind: kind.to_owned(), key: key.clone(), resource_version: None });
    });
}

/// Runs `reconcile` of the object `kind` `key` and tells one step if it wrote anything.
pub(crate) async fn follow<F: Future>(
    story: &Story,
    controller: &'static str,
    kind: &str,
    key: &ObjectKey,
    reconcile: F,
) -> F::Output {
    let collected = WRITES.scope(RefCell::new(Vec::new()), async {
        let output = reconcile.await;
        (output, WRITES.with(|writes| std::mem::take(&mut *writes.borrow_mut())))
    });
    let (output, writes) = collected.await;
    if !writes.is_empty() {
        story.tell(|| Step {
            at: Instant::now(),
            component: Component::Controller(controller),
            stage: "reconcile",
            what: sentence(kind, key, &writes),
            kind: kind.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            resource_version: writes
                .iter()
                .rev()
                .find(|write| write.kind == kind && write.key == *key)
                .and_then(|write| write.resource_version.clone()),
            user: None,
        });
    }
    output
}

fn sentence(kind: &str, key: &ObjectKey, writes: &[Write]) -> String {
    let mut parts: Vec<String> = writes
        .iter()
        .take(MAX_WRITES)
        .map(|write| {
            if write.kind == kind && write.key == *key {
                // The step names the object already.
                write.verb.strip_suffix(" of").unwrap_or(write.verb).to_owned()
            } else {
                format!("{} {} {}", write.verb, write.kind, write.key.name)
            }
        })
        .collect();
    if writes.len() > MAX_WRITES {
        parts.push(format!("{} more", writes.len() - MAX_WRITES));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use k8s_openapi::api::core::v1::Pod;
    use kube::api::ObjectMeta;

    use super::*;

    fn pod(name: &str) -> Pod {
        Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("default".to_owned()),
                resource_version: Some("7".to_owned()),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        }
    }

    #[tokio::test]
    async fn a_reconcile_is_one_step_and_an_idle_one_is_none() {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let story = Story::new({
            let steps = Arc::clone(&steps);
            move |step: Step| steps.lock().expect("no panic while held").push((step.what, step.resource_version))
        });
        let key = ObjectKey::new("default", "a");
        follow(&story, "test", "Pod", &key, async {}).await;
        follow(&story, "test", "Pod", &key, async {
            wrote("created", &pod("b"));
            wrote("updated status of", &pod("a"));
        })
        .await;
        let steps = steps.lock().expect("no panic while held");
        assert_eq!(*steps, [("created Pod b, updated status".to_owned(), Some("7".to_owned()))]);
    }
}
