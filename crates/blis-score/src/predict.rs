//! Predictions of every point of a list of sweeps, in its order, on as many threads as asked for.

#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use blis_contracts::engine::{EngineSnapshot, StepTicket};
use blis_contracts::record::RequestRecord;
use blis_contracts::scenario::Scenario;
use blis_sim::{Observer, Origin, Progress, World, launch_line, prepare, run};
use blis_vllm::config::{Stated, former_spellings};

use crate::grade::{GradeReason, ReasonCode};
use crate::point::{POOL, scenario, warms_up, with_warm_up};
use crate::prediction::Prediction;
use crate::recorded::{self, Build};
use crate::refusal;
use crate::sweep::Sweep;

/// Predicts every point. The order of the answer is the order of the sweeps and of their concurrencies, whatever `jobs` is.
///
/// `done` is called after each point with the number finished so far.
pub fn predict(sweeps: &[Sweep], jobs: usize, world: &World, done: &(dyn Fn(usize) + Sync)) -> Vec<Prediction> {
    let points: Vec<(&Sweep, u32)> =
        sweeps.iter().flat_map(|sweep| sweep.concurrency.iter().map(move |concurrency| (sweep, *concurrency))).collect();
    // The largest runs first, so that no thread is left alone with one at the end.
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|&index| {
        let (sweep, concurrency) = points[index];
        let client = &sweep.launch.client;
        std::cmp::Reverse(u64::from(concurrency) * u64::from(client.osl + client.isl / 8))
    });
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let answers: Vec<Mutex<Option<Prediction>>> = points.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (sweep, concurrency) = points[index];
                    let answer = predict_point(sweep, concurrency, world);
                    *answers[index].lock().expect("no thread panics while it holds an answer") = Some(answer);
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    answers.into_iter().map(|answer| answer.into_inner().expect("the threads have ended").expect("every point was answered")).collect()
}

/// Predicts one point, or says why it cannot be.
fn predict_point(sweep: &Sweep, concurrency: u32, world: &World) -> Prediction {
    attempt(sweep, concurrency, world).unwrap_or_else(|reason| Prediction::refused(sweep, concurrency, reason))
}

fn attempt(sweep: &Sweep, concurrency: u32, world: &World) -> Result<Prediction, GradeReason> {
    if sweep.framework != blis_vllm::KIND {
        let text = format!("engine `{}` is not modelled", sweep.framework);
        return Err(GradeReason::new(ReasonCode::EngineUnsupported, sweep.framework.clone(), text));
    }
    let build = Build::of(&sweep.launch.image)?;
    let mut scenario = scenario(sweep, concurrency)?;
    let mut reasons: Vec<GradeReason> = build.reason().into_iter().collect();
    let (stated, assumed) = read_line(&mut scenario, build)?;
    reasons.extend(assumed);
    in_catalog(&mut scenario, sweep, stated.model(), world)?;
    if let Some(problem) = scenario.validate().first() {
        let text = format!("{}: {}", problem.path, problem.message);
        return Err(GradeReason::new(ReasonCode::RunRefused, problem.path.clone(), text));
    }
    reasons.extend(recorded::check(sweep, concurrency, build, &stated)?);
    let warm = warms_up(sweep) && prepare(&scenario, world).map_err(|error| refusal::of_run(&error))?.kv.prefix_caching;
    if warm {
        scenario = with_warm_up(scenario);
    }
    let origin = Origin { scenario_sha256: String::new(), edits: Vec::new() };
    let result = run(&scenario, &origin, world, &mut Silent).map_err(|error| refusal::of_run(&error))?.result;
    reasons.extend(result.settings.get(POOL).map(|ours| recorded::resolved_otherwise(sweep, concurrency, ours)).unwrap_or_default());
    let translated = |note: &String| {
        let spelling = note.split([' ', '=']).next().unwrap_or_default();
        GradeReason::new(ReasonCode::SettingTranslated, spelling, note.clone())
    };
    reasons.extend(result.substitutions.get(POOL).into_iter().flatten().map(translated));
    reasons.push(client(sweep));
    Prediction::of(sweep, &scenario, &result, reasons)
}

/// What of the client is not repeated.
fn client(sweep: &Sweep) -> GradeReason {
    let source = sweep.launch.client.source.as_deref().unwrap_or("of unrecorded origin");
    let text = format!("prompts have the lengths that the client ({source}) draws; what its tokenizer made of them was not verified");
    GradeReason::new(ReasonCode::ClientDiffers, "prompt lengths", text)
}

/// Reads the launch line in the spellings of the release it was written for.
///
/// A build of no release says nothing of its spellings: the modelled release's are tried, then those of each release that is known to
/// have had others, newest first.
fn read_line(scenario: &mut Scenario, build: Build<'_>) -> Result<(Stated, Option<GradeReason>), GradeReason> {
    if let Build::Release(release) = build {
        scenario.engine.written_for = Some(release.to_owned());
        return launch_line(scenario).map(|stated| (stated, None)).map_err(|error| refusal::of_line(&error));
    }
    let unread = match launch_line(scenario) {
        Ok(stated) => return Ok((stated, None)),
        Err(error) => refusal::of_line(&error),
    };
    for release in releases_with_spellings() {
        scenario.engine.written_for = Some(release.to_owned());
        if let Ok(stated) = launch_line(scenario) {
            let text = format!("the build is of no release; its launch line is read in the spellings of {release}");
            return Ok((stated, Some(GradeReason::new(ReasonCode::SpellingsAssumed, release, text))));
        }
    }
    Err(unread)
}

/// Releases whose spellings the engine's table translates, newest first.
fn releases_with_spellings() -> Vec<&'static str> {
    let number = |release: &&str| -> Vec<u32> { release.split('.').map(|part| part.parse().unwrap_or(0)).collect() };
    let mut releases: Vec<&str> = former_spellings().iter().flat_map(|row| row.seen.iter().copied()).collect();
    releases.sort_by_key(number);
    releases.dedup();
    releases.reverse();
    releases
}

/// Gives the scenario the catalog's name of the model that the launch line serves.
fn in_catalog(scenario: &mut Scenario, sweep: &Sweep, served: &str, world: &World) -> Result<(), GradeReason> {
    let missing = |kind: &str, name: &str| GradeReason::new(ReasonCode::NotInCatalog, name, format!("no {kind} `{name}` in the catalog"));
    world.catalog.resolve(served).ok_or_else(|| missing("model", served))?.clone_into(&mut scenario.model);
    if world.catalog.chips().all(|chip| chip != sweep.gpu) {
        return Err(missing("chip", &sweep.gpu));
    }
    Ok(())
}

/// Looks at nothing.
struct Silent;

impl Observer for Silent {
    fn record(&mut self, _record: &RequestRecord) {}

    fn stepped(&mut self, _step: &StepTicket, _state: &EngineSnapshot) {}

    fn progress(&mut self, _progress: Progress) {}
}
