//! Time of a whole decision over shapes, cluster sizes and threads: all pods different, and replicas.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use rayon::{ThreadPool, ThreadPoolBuilder};

use benches::bare_loop::BareLoop;
use benches::workload::{Incoming, Shape, cluster, default_bound, new_pod};
use scheduler_core::engine::{Change, Scheduler};
use scheduler_core::model::{Pod, Timestamp};

const SIZES: [usize; 4] = [1_000, 5_000, 50_000, 100_000];
/// Pods that find room on each node beside those at the start.
const ROOM: usize = 20;
/// The largest cluster, for one shape only: building it takes seconds.
const LARGEST: usize = 1_000_000;

fn pool(n_threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(n_threads).build().expect("threads can be started")
}

/// Threads to compare: one, and all.
fn threads() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all == 1 { vec![1] } else { vec![1, all] }
}

/// One decision: the pod enters the queue, is placed, and stays assumed on its node.
fn decide(scheduler: &mut Scheduler, pod: Pod, pool: &ThreadPool) {
    scheduler.handle(Change::Applied(pod.into()), Timestamp::ZERO);
    black_box(scheduler.schedule_one(Timestamp::ZERO, pool));
    black_box(scheduler.drain_effects());
}

fn decisions(criterion: &mut Criterion, group: &str, distinct: f64, n_replicas: usize) {
    let mut group = criterion.benchmark_group(group);
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for shape in Shape::ALL {
        let largest = (shape == Shape::Basic).then_some(LARGEST);
        for n_nodes in SIZES.into_iter().chain(largest) {
            for n_threads in threads() {
                let pool = pool(n_threads);
                // Before the nodes are full, it begins again: a pod that fits nowhere is not what is measured.
                let fresh = || cluster(shape, n_nodes, default_bound(n_nodes));
                let scheduler = RefCell::new(fresh());
                let incoming = Incoming { shape, n_nodes, distinct, n_replicas };
                let mut k = 0_usize;
                let id = BenchmarkId::new(format!("{}/{n_threads}-threads", shape.name()), n_nodes);
                group.bench_function(id, |bencher| {
                    bencher.iter_batched(
                        || {
                            k += 1;
                            if k.is_multiple_of(ROOM * n_nodes) {
                                scheduler.replace(fresh());
                            }
                            incoming.pod(k)
                        },
                        |pod| decide(&mut scheduler.borrow_mut(), pod, &pool),
                        BatchSize::SmallInput,
                    );
                });
            }
        }
    }
    group.finish();
}

/// Every pod differs from every other: nothing is shared between two decisions.
fn cycle(criterion: &mut Criterion) {
    decisions(criterion, "cycle", 1.0, 1);
}

/// Replicas of one workload, one after the other.
fn batch(criterion: &mut Criterion) {
    decisions(criterion, "batch", 0.0, 1_000_000);
}

/// The loop that no scheduler which looks at every node can beat.
fn bare_loop(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bare-loop");
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for n_nodes in SIZES.into_iter().chain([LARGEST]) {
        let columns = BareLoop::new(n_nodes, default_bound(n_nodes));
        let pod = new_pod(Shape::Basic, 0, n_nodes);
        for n_threads in threads() {
            let pool = pool(n_threads);
            group.bench_function(BenchmarkId::new(format!("{n_threads}-threads"), n_nodes), |bencher| {
                bencher.iter(|| match n_threads {
                    1 => columns.best(0..n_nodes, black_box(&pod)),
                    _ => columns.best_of_all(&pool, black_box(&pod)),
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, cycle, batch, bare_loop);
criterion_main!(benches);
