//! Both embedded stores against a plain model of their history, and their particular promises one by one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster_stub::store::compactor;
use cluster_stub::store::durable::DurableStore;
use cluster_stub::store::memory::MemoryStore;
use cluster_stub::store::{
    Compare, KeyValue, Op, OpResult, RangeEnd, RangeRequest, Revision, Store, StoreError, TxnRequest, WatchEventKind,
    WatchItem, WatchRequest,
};
use futures::StreamExt;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::test_runner::Config;

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future)
}

/// Both backends, the durable one in a directory that lives as long as the second value.
fn stores() -> (Vec<(&'static str, Arc<dyn Store>)>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let durable = DurableStore::open(&dir.path().join("data")).unwrap();
    (vec![("memory", Arc::new(MemoryStore::new())), ("durable", Arc::new(durable))], dir)
}

async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    let txn = TxnRequest { success: vec![Op::put(key.to_owned(), value.to_owned())], ..TxnRequest::default() };
    store.txn(txn).await.unwrap().revision
}

async fn delete(store: &dyn Store, key: &str) -> Revision {
    let txn = TxnRequest { success: vec![Op::delete(key.to_owned())], ..TxnRequest::default() };
    store.txn(txn).await.unwrap().revision
}

async fn get(store: &dyn Store, key: &str) -> Option<KeyValue> {
    store.range(RangeRequest::key(key.to_owned())).await.unwrap().kvs.pop()
}

/// The items of a watch of everything from `from` up to the present.
async fn replay(store: &dyn Store, prefix: &str, from: Revision) -> Result<Vec<WatchItem>, StoreError> {
    let mut watch = store.watch(WatchRequest::prefix(prefix.to_owned(), Some(from)));
    store.request_progress(prefix.as_bytes());
    let mut items = Vec::new();
    while let Some(item) = watch.next().await {
        match item? {
            WatchItem::Progress(_) => break,
            item => items.push(item),
        }
    }
    Ok(items)
}

type Keys = BTreeMap<Vec<u8>, KeyValue>;

/// The model: the whole state at every revision.
struct Model {
    at: Vec<Keys>,
    compacted: usize,
}

impl Model {
    fn now(&self) -> &Keys {
        self.at.last().unwrap()
    }

    fn revision(&self) -> Revision {
        Revision(self.at.len() as i64 - 1)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let mut next = self.now().clone();
        let revision = Revision(self.at.len() as i64);
        let prev = next.get(key);
        let kv = KeyValue {
            key: key.to_vec().into(),
            value: value.to_vec().into(),
            create_revision: prev.map_or(revision, |prev| prev.create_revision),
            mod_revision: revision,
            version: prev.map_or(1, |prev| prev.version + 1),
            lease: None,
        };
        next.insert(key.to_vec(), kv);
        self.at.push(next);
    }

    fn delete(&mut self, start: &[u8], end: &RangeEnd) -> usize {
        let mut next = self.now().clone();
        next.retain(|key, _| !end.covers(start, key));
        let n = self.now().len() - next.len();
        if n > 0 {
            self.at.push(next);
        }
        n
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    PutIfAbsent(u8, u8),
    Delete(u8),
    DeletePrefix(u8),
    Compact(u8),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), any::<u8>()).prop_map(|(k, v)| Step::Put(k % 12, v)),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(k, v)| Step::PutIfAbsent(k % 12, v)),
        2 => any::<u8>().prop_map(|k| Step::Delete(k % 12)),
        1 => any::<u8>().prop_map(|k| Step::DeletePrefix(k % 4)),
        1 => any::<u8>().prop_map(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

/// Keys `a/0` to `d/2`: four prefixes of three.
fn key(k: u8) -> String {
    format!("{}/{}", char::from(b'a' + k % 4), k / 4)
}

async fn check_history(mut store: Arc<dyn Store>, steps: &[Step], reopen: Option<&Path>) {
    let mut model = Model { at: vec![Keys::new(), Keys::new()], compacted: 0 };
    for step in steps {
        match step {
            Step::Put(k, v) => {
                model.put(key(*k).as_bytes(), &[*v]);
                let txn = TxnRequest { success: vec![Op::put(key(*k), vec![*v])], ..TxnRequest::default() };
                assert_eq!(store.txn(txn).await.unwrap().revision, model.revision());
            }
            Step::PutIfAbsent(k, v) => {
                let absent = !model.now().contains_key(key(*k).as_bytes());
                let current = model.now().get(key(*k).as_bytes()).cloned();
                if absent {
                    model.put(key(*k).as_bytes(), &[*v]);
                }
                let response = store.txn(TxnRequest::create(key(*k), vec![*v], None)).await.unwrap();
                assert_eq!((response.succeeded, response.revision), (absent, model.revision()));
                assert_eq!(response.current(), current.as_ref());
            }
            Step::Delete(k) => {
                model.delete(key(*k).as_bytes(), &RangeEnd::Key);
                assert_eq!(delete(&*store, &key(*k)).await, model.revision());
            }
            Step::DeletePrefix(k) => {
                let prefix = key(*k)[..1].to_owned();
                let n = model.delete(prefix.as_bytes(), &RangeEnd::Prefix);
                let op = Op::Delete { start: prefix.into(), end: RangeEnd::Prefix };
                let response = store.txn(TxnRequest { success: vec![op], ..TxnRequest::default() }).await.unwrap();
                assert!(matches!(&response.results[..], [OpResult::Delete { deleted }] if deleted.len() == n));
            }
            Step::Compact(n) => {
                let to = usize::from(*n) % (model.at.len() + 1);
                let outcome = store.compact(Revision(to as i64)).await;
                if to <= model.compacted {
                    assert!(matches!(outcome, Err(StoreError::Compacted { .. })), "{outcome:?}");
                } else if to >= model.at.len() {
                    assert!(matches!(outcome, Err(StoreError::FutureRevision { .. })), "{outcome:?}");
                } else {
                    outcome.unwrap();
                    model.compacted = to;
                }
            }
            Step::Reopen => {
                if let Some(dir) = reopen {
                    drop(store);
                    store = Arc::new(DurableStore::open(dir).unwrap());
                }
            }
        }
    }
    check_ranges(&*store, &model).await;
    check_watches(&*store, &model).await;
}

async fn check_ranges(store: &dyn Store, model: &Model) {
    assert_eq!(store.revision().await.unwrap(), model.revision());
    for at in 1..=model.at.len() {
        let request = RangeRequest::prefix("").at(Revision(at as i64));
        match store.range(request).await {
            Ok(range) => {
                assert!(at >= model.compacted && at < model.at.len());
                assert_eq!(range.kvs, model.at[at].values().cloned().collect::<Vec<_>>());
            }
            Err(StoreError::Compacted { .. }) => assert!(at < model.compacted),
            Err(StoreError::FutureRevision { .. }) => assert!(at >= model.at.len()),
            Err(error) => panic!("{error}"),
        }
    }
    for limit in 1..5 {
        let page = store.range(RangeRequest::prefix("b").limit(limit)).await.unwrap();
        let all: Vec<_> = model.now().values().filter(|kv| kv.key.starts_with(b"b")).cloned().collect();
        assert_eq!((page.count, page.more), (all.len() as u64, all.len() > limit));
        assert_eq!(page.kvs, all[..limit.min(all.len())]);
    }
}

/// A watch from any revision, applied to the state before it, gives the present state.
async fn check_watches(store: &dyn Store, model: &Model) {
    for prefix in ["", "a", "c/1"] {
        for from in 2..=model.at.len() {
            let items = match replay(store, prefix, Revision(from as i64)).await {
                Ok(items) => items,
                Err(StoreError::Compacted { .. }) => {
                    assert!(from <= model.compacted);
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            assert!(from > model.compacted);
            let mut state = model.at[from - 1].clone();
            for item in items {
                let WatchItem::Events { events, .. } = item else { panic!("{item:?}") };
                for event in events {
                    assert!(event.kv.key.starts_with(prefix.as_bytes()));
                    assert_eq!(event.prev, state.remove(&event.kv.key[..]));
                    if event.kind == WatchEventKind::Put {
                        state.insert(event.kv.key.to_vec(), event.kv);
                    }
                }
            }
            let of_prefix = |keys: &Keys| -> Vec<_> {
                keys.values().filter(|kv| kv.key.starts_with(prefix.as_bytes())).cloned().collect()
            };
            assert_eq!(of_prefix(&state), of_prefix(model.now()), "from {from} of {prefix:?}");
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 64, ..Config::default() })]

    #[test]
    fn memory_equals_the_model_after_any_history(steps in proptest::collection::vec(step(), 0..60)) {
        run(check_history(Arc::new(MemoryStore::new()), &steps, None));
    }

    #[test]
    fn durable_equals_the_model_after_any_history_with_restarts(steps in proptest::collection::vec(step(), 0..40)) {
        let dir = tempfile::tempdir().unwrap();
        run(async {
            let store = Arc::new(DurableStore::open(dir.path()).unwrap());
            check_history(store, &steps, Some(dir.path())).await;
        });
    }
}

#[test]
fn transaction_is_all_or_nothing_and_one_revision() {
    run(async {
        let (stores, _dir) = stores();
        for (name, store) in stores {
            let before = put(&*store, "a", "1").await;
            let txn = |compare| TxnRequest {
                compare: vec![compare],
                success: vec![Op::put("b", "2"), Op::get("b"), Op::delete("a")],
                failure: vec![Op::get("a")],
            };
            let failed = store.txn(txn(Compare::ModRevision("a".into(), Revision(99)))).await.unwrap();
            assert!(!failed.succeeded && failed.revision == before, "{name}");
            assert_eq!(failed.current().unwrap().value, "1", "{name}");
            let done = store.txn(txn(Compare::ModRevision("a".into(), before))).await.unwrap();
            assert!(done.succeeded && done.revision == before.next(), "{name}");
            assert_eq!(done.current().unwrap().value, "2", "{name}: a step sees the step before it");
            assert_eq!(get(&*store, "a").await, None, "{name}");
            let items = replay(&*store, "", done.revision).await.unwrap();
            assert!(matches!(&items[..], [WatchItem::Events { events, .. }] if events.len() == 2), "{name}");
        }
    });
}

#[test]
fn compares_of_presence_and_version() {
    run(async {
        let store = MemoryStore::new();
        put(&store, "a", "1").await;
        put(&store, "a", "2").await;
        for (compare, want) in [
            (Compare::Absent("a".into()), false),
            (Compare::Absent("b".into()), true),
            (Compare::Present("a".into()), true),
            (Compare::Present("b".into()), false),
            (Compare::Version("a".into(), 2), true),
            (Compare::Version("a".into(), 1), false),
            (Compare::ModRevision("b".into(), Revision(0)), false),
        ] {
            let txn = TxnRequest { compare: vec![compare.clone()], ..TxnRequest::default() };
            assert_eq!(store.txn(txn).await.unwrap().succeeded, want, "{compare:?}");
        }
    });
}

#[test]
fn a_key_is_written_once_in_a_transaction() {
    run(async {
        let store = MemoryStore::new();
        for ops in [
            vec![Op::put("a", "1"), Op::put("a", "2")],
            vec![Op::put("a", "1"), Op::delete("a")],
            vec![Op::delete("a"), Op::put("a", "1")],
        ] {
            let outcome = store.txn(TxnRequest { success: ops, ..TxnRequest::default() }).await;
            assert!(matches!(&outcome, Err(StoreError::DuplicateKey { key }) if key == "a"), "{outcome:?}");
        }
        assert_eq!(store.revision().await.unwrap(), Revision(1));
    });
}

#[test]
fn watch_takes_its_place_when_it_is_opened() {
    run(async {
        let (stores, _dir) = stores();
        for (name, store) in stores {
            put(&*store, "a", "before").await;
            let mut watch = store.watch(WatchRequest::prefix("a", None));
            let wrote = put(&*store, "a", "after").await;
            put(&*store, "b", "elsewhere").await;
            let Some(Ok(WatchItem::Events { events, .. })) = watch.next().await else { panic!("{name}: no events") };
            assert_eq!(events.len(), 1, "{name}");
            assert_eq!((&events[0].kv.value[..], events[0].kv.mod_revision), (&b"after"[..], wrote), "{name}");
            assert_eq!(events[0].prev.as_ref().unwrap().value, "before", "{name}");
        }
    });
}

#[test]
fn progress_comes_after_the_events_before_it_and_only_where_it_was_wanted() {
    run(async {
        let store = MemoryStore::new();
        let mut watch = store.watch(WatchRequest::prefix("a", None));
        let mut silent = store.watch(WatchRequest { progress: false, ..WatchRequest::prefix("a", None) });
        put(&store, "a", "1").await;
        let newest = put(&store, "b", "1").await;
        store.request_progress(b"a");
        assert!(matches!(watch.next().await, Some(Ok(WatchItem::Events { .. }))));
        assert_eq!(watch.next().await.unwrap().unwrap(), WatchItem::Progress(newest));
        assert!(matches!(silent.next().await, Some(Ok(WatchItem::Events { .. }))));
        assert!(tokio::time::timeout(Duration::from_secs(1), silent.next()).await.is_err());
    });
}

#[test]
fn watcher_that_falls_behind_the_compacted_history_is_told_so() {
    run(async {
        let store = MemoryStore::new();
        let mut slow = store.watch(WatchRequest::prefix("a", None));
        let mut idle = store.watch(WatchRequest::prefix("z", None));
        assert!(tokio::time::timeout(Duration::from_secs(1), idle.next()).await.is_err());
        for i in 0..10 {
            put(&store, "a", &i.to_string()).await;
        }
        store.compact(Revision(8)).await.unwrap();
        assert!(matches!(slow.next().await, Some(Err(StoreError::Compacted { .. }))));
        assert!(slow.next().await.is_none());
        put(&store, "z", "1").await;
        assert!(matches!(idle.next().await, Some(Ok(WatchItem::Events { .. }))), "nothing that it follows was lost");
    });
}

#[test]
fn long_history_is_reported_in_items_that_never_split_a_revision() {
    run(async {
        let store = MemoryStore::new();
        for i in 0..2000 {
            let success = vec![Op::put(format!("a{i}"), "x"), Op::put(format!("b{i}"), "x")];
            store.txn(TxnRequest { success, ..TxnRequest::default() }).await.unwrap();
        }
        let items = replay(&store, "", Revision(2)).await.unwrap();
        assert!(items.len() > 2);
        let mut next = 2;
        for item in items {
            let WatchItem::Events { revision, events } = item else { panic!("{item:?}") };
            for pair in events.chunks(2) {
                assert_eq!((pair[0].kv.mod_revision.0, pair[1].kv.mod_revision.0), (next, next));
                next += 1;
            }
            assert_eq!(revision.0, next - 1);
        }
        assert_eq!(next, 2002);
    });
}

#[test]
fn lease_takes_its_keys_along_unless_it_is_kept_alive() {
    run(async {
        // In memory only: a paused clock runs ahead while the other store waits for its disk.
        let store = MemoryStore::new();
        let lease = store.lease_grant(Duration::from_secs(10)).await.unwrap();
        store.txn(TxnRequest::create("kept", "1", Some(lease))).await.unwrap();
        let moved = store.txn(TxnRequest::create("moved", "1", Some(lease))).await.unwrap();
        store.txn(TxnRequest::update("moved", moved.revision, "2", None)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(8)).await;
        store.lease_keep_alive(lease).await.unwrap();
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert!(get(&store, "kept").await.is_some());
        let mut watch = store.watch(WatchRequest::prefix("", None));
        tokio::time::sleep(Duration::from_secs(4)).await;
        let Some(Ok(WatchItem::Events { events, .. })) = watch.next().await else { panic!("no events") };
        assert_eq!((events.len(), events[0].kind), (1, WatchEventKind::Delete));
        assert!(get(&store, "kept").await.is_none());
        assert!(get(&store, "moved").await.is_some(), "it was taken off the lease");
        assert!(matches!(store.lease_keep_alive(lease).await, Err(StoreError::LeaseNotFound(_))));
        let orphan = store.txn(TxnRequest::create("x", "1", Some(lease))).await;
        assert!(matches!(orphan, Err(StoreError::LeaseNotFound(_))));
    });
}

#[test]
fn compactor_keeps_one_to_two_intervals_of_history() {
    run(async {
        let store = Arc::new(MemoryStore::new());
        let minute = Duration::from_secs(60);
        let compactor = tokio::spawn(compactor::run(store.clone(), minute));
        let old = put(&*store, "a", "1").await;
        tokio::time::sleep(minute + Duration::from_secs(1)).await;
        let new = put(&*store, "a", "2").await;
        assert!(store.range(RangeRequest::key("a").at(old)).await.is_ok());
        tokio::time::sleep(2 * minute).await;
        assert!(matches!(store.range(RangeRequest::key("a").at(old)).await, Err(StoreError::Compacted { .. })));
        assert!(store.range(RangeRequest::key("a").at(new)).await.is_ok());
        compactor.abort();
    });
}

#[test]
fn dropping_a_store_ends_its_watches() {
    run(async {
        let (stores, _dir) = stores();
        for (name, store) in stores {
            let mut watch = store.watch(WatchRequest::prefix("", None));
            drop(store);
            assert!(matches!(watch.next().await, Some(Err(StoreError::Closed))), "{name}");
            assert!(watch.next().await.is_none(), "{name}");
        }
    });
}
