//! Predictions of every point of a list of units, in its order, on as many threads as asked for.

#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use blis_contracts::record::RequestRecord;
use blis_sim::{Observer, Origin, Progress, World, prepare, run, served_checkpoint};

use crate::point::{POOL, scenario, warms_up, with_warm_up};
use crate::prediction::Prediction;
use crate::unit::Unit;

/// Predicts every point. The order of the answer is the order of the units and of their concurrencies, whatever `jobs` is.
///
/// `done` is called after each point with the number finished so far.
pub fn predict(units: &[Unit], jobs: usize, done: &(dyn Fn(usize) + Sync)) -> Vec<Prediction> {
    let points: Vec<(&Unit, u32)> =
        units.iter().flat_map(|unit| unit.concurrency.iter().map(move |concurrency| (unit, *concurrency))).collect();
    // The largest runs first, so that no thread is left alone with one at the end.
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|&index| {
        let (unit, concurrency) = points[index];
        let client = &unit.launch.client;
        std::cmp::Reverse(u64::from(concurrency) * u64::from(client.osl + client.isl / 8))
    });
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let answers: Vec<Mutex<Option<Prediction>>> = points.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                let world = World::released();
                while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (unit, concurrency) = points[index];
                    let answer = predict_point(unit, concurrency, &world);
                    *answers[index].lock().expect("no thread panics while it holds an answer") = Some(answer);
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    answers.into_iter().map(|answer| answer.into_inner().expect("the threads have ended").expect("every point was answered")).collect()
}

/// Predicts one point, or says why it cannot be.
fn predict_point(unit: &Unit, concurrency: u32, world: &World) -> Prediction {
    match attempt(unit, concurrency, world) {
        Ok(prediction) => prediction,
        Err(reason) => Prediction::refused(unit, concurrency, reason),
    }
}

fn attempt(unit: &Unit, concurrency: u32, world: &World) -> Result<Prediction, String> {
    if unit.framework != blis_vllm::KIND {
        return Err(format!("engine `{}` is not modelled", unit.framework));
    }
    let mut scenario = scenario(unit, concurrency).map_err(|error| error.to_string())?;
    let served = served_checkpoint(&scenario).map_err(|error| error.to_string())?;
    let model = world.catalog.resolve(&served).ok_or_else(|| format!("model `{served}` is not in the catalog"))?;
    model.clone_into(&mut scenario.model);
    if let Some(problem) = scenario.validate().first() {
        return Err(format!("{}: {}", problem.path, problem.message));
    }
    if warms_up(unit) && caches_prefixes(&scenario, world)? {
        scenario = with_warm_up(scenario);
    }
    let origin = Origin { scenario_sha256: String::new(), edits: Vec::new() };
    let result = run(&scenario, &origin, world, &mut Silent).map_err(|error| error.to_string())?.result;
    let ran = scenario.engine.written_for.as_deref().unwrap_or(blis_vllm::RELEASE);
    let mut reasons = vec![format!("ran {ran}, scored on {}", blis_vllm::RELEASE)];
    reasons.extend(result.substitutions.get(POOL).into_iter().flatten().cloned());
    Ok(Prediction::of(unit, concurrency, &result, reasons))
}

fn caches_prefixes(scenario: &blis_contracts::scenario::Scenario, world: &World) -> Result<bool, String> {
    let prepared = prepare(scenario, world).map_err(|error| error.to_string())?;
    Ok(prepared.kv.prefix_caching)
}

/// Looks at nothing.
struct Silent;

impl Observer for Silent {
    fn record(&mut self, _record: &RequestRecord) {}

    fn progress(&mut self, _progress: Progress) {}
}
