//! Output tokens per second of whole runs, loading of data left out.

use blis_bench::{CLOSED_LOOP, OPEN_LOOP, complete, scenario};
use blis_sim::World;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn runs(criterion: &mut Criterion) {
    let world = World::released();
    let mut group = criterion.benchmark_group("output tokens");
    group.sample_size(10);
    for (name, text) in [("closed loop of 64", CLOSED_LOOP), ("open loop at 20/s", OPEN_LOOP)] {
        let scenario = scenario(text);
        group.throughput(Throughput::Elements(complete(&scenario, &world).result.tokens.output));
        group.bench_function(name, |bencher| bencher.iter(|| complete(&scenario, &world)));
    }
    group.finish();
}

criterion_group!(benches, runs);
criterion_main!(benches);
