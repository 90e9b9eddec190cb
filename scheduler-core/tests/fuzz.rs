//! The bodies of the fuzz targets over their corpus and over random bytes, so that they run without a nightly compiler.
//! More: `FUZZ_RUNS=1000000 cargo test -p scheduler-core --test fuzz --release`.

#[path = "../fuzz/src/convert.rs"]
mod convert;
#[path = "../fuzz/src/cycle.rs"]
mod cycle;
#[path = "../fuzz/src/odd.rs"]
mod odd;

use std::path::Path;

/// Inputs of a target that are kept.
#[expect(clippy::disallowed_methods, reason = "a test reads its data")]
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("folder entry").path())
        .collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("the file can be read")).collect()
}

fn n_runs(default: u64) -> u64 {
    std::env::var("FUZZ_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Bytes of the n-th run; the constants are those of splitmix64.
fn random(n: u64) -> Vec<u8> {
    let mut state = n;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    };
    let n_words = next() % 100;
    (0..n_words).flat_map(|_| next().to_le_bytes()).collect()
}

/// One byte of a kept input is another.
fn mutated(input: &[u8], n: u64) -> Vec<u8> {
    let mut input = input.to_vec();
    let draws = random(n.wrapping_add(1_000_000_007));
    for draw in draws.chunks_exact(8).take(3) {
        if !input.is_empty() {
            let at = usize::from(u16::from_le_bytes([draw[0], draw[1]])) % input.len();
            input[at] = draw[2];
        }
    }
    input
}

fn drive(target: &str, default_runs: u64, run: fn(&[u8])) {
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "the corpus of {target} is kept");
    corpus.iter().for_each(|input| run(input));
    for n in 0..n_runs(default_runs) {
        run(&random(n));
        let input = &corpus[usize::try_from(n).unwrap_or(0) % corpus.len()];
        run(&mutated(input, n));
    }
}

#[test]
fn converting_odd_objects_never_panics() {
    drive("convert", 1_000, convert::run);
}

#[test]
fn cycles_over_odd_objects_keep_every_promise() {
    drive("cycle", 150, cycle::run);
}
