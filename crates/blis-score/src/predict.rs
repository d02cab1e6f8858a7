//! Predictions of every point of a list of sweeps, in its order, on as many threads as asked for.

#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use blis_contracts::engine::{EngineSnapshot, StepTicket};
use blis_contracts::record::RequestRecord;
use blis_contracts::scenario::Scenario;
use blis_contracts::units::SimTime;
use blis_sim::{Observer, Origin, Progress, RunError, World, estimated_line, prepare_stated, run_prepared};
use blis_vllm::config::{Reading, former_spellings, release_after};
use blis_workload::source::Draft;

use crate::grade::{Grade, GradeReason, ReasonCode};
use crate::point::{POOL, other_client, scenario, warms_up, with_warm_up};
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
    attempt(sweep, concurrency, world).unwrap_or_else(|reasons| Prediction::refused(sweep, concurrency, reasons))
}

fn attempt(sweep: &Sweep, concurrency: u32, world: &World) -> Result<Prediction, Vec<GradeReason>> {
    let Point { scenario, reading, warm, mut reasons } = to_scenario(sweep, concurrency, world)?;
    let refused = |error: &RunError| vec![refusal::of_run(error)];
    let prepare = |scenario: &Scenario| prepare_stated(scenario, &reading.stated, world).map_err(|error| refused(&error));
    let mut prepared = prepare(&scenario)?;
    let warm = warm && prepared.kv.prefix_caching;
    let scenario = if warm { with_warm_up(scenario) } else { scenario };
    if warm {
        prepared = prepare(&scenario)?;
    }
    let origin = Origin { scenario_sha256: String::new(), edits: Vec::new(), trace_sha256: None };
    let result = run_prepared(&scenario, prepared, &origin, world, &mut Silent).map_err(|error| refused(&error))?.result;
    reasons.extend(result.settings.get(POOL).map(|ours| recorded::resolved_otherwise(sweep, concurrency, ours)).unwrap_or_default());
    let translated = |note: &String| {
        let spelling = note.split([' ', '=']).next().unwrap_or_default();
        GradeReason::new(ReasonCode::SettingTranslated, spelling, note.clone())
    };
    reasons.extend(result.substitutions.get(POOL).into_iter().flatten().map(translated));
    reasons.push(client(sweep));
    Prediction::of(sweep, &scenario, &result, reasons).map_err(|reason| vec![reason])
}

/// A point that can be tried.
struct Point {
    scenario: Scenario,
    reading: Reading,
    /// Whether its client warmed the engine up.
    warm: bool,
    /// Why its grade is not better, so far.
    reasons: Vec<GradeReason>,
}

/// The scenario of a point, or every reason that can be told without one why there is none.
fn to_scenario(sweep: &Sweep, concurrency: u32, world: &World) -> Result<Point, Vec<GradeReason>> {
    let mut refusals: Vec<GradeReason> = other_client(&sweep.launch.client).into_iter().map(GradeReason::from).collect();
    let supported = sweep.framework == blis_vllm::KIND;
    if !supported {
        let text = format!("engine `{}` is not modelled", sweep.framework);
        refusals.push(GradeReason::new(ReasonCode::EngineUnsupported, sweep.framework.clone(), text));
    }
    if world.catalog.chips().all(|chip| chip != sweep.gpu) {
        refusals.push(not_in_catalog("chip", &sweep.gpu));
    }
    let build = Build::of(&sweep.launch.image).map_err(|reason| refusals.push(reason)).ok();
    let scenario = scenario(sweep, concurrency).map_err(|error| refusals.push(error.into())).ok();
    let (Some(build), Some(mut scenario), true) = (build, scenario, supported) else { return Err(refusals) };
    let (mut reading, assumed) = match read_line(&mut scenario, build) {
        Ok(read) => read,
        Err(reason) => {
            refusals.push(reason);
            return Err(refusals);
        }
    };
    refusals.extend(reading.refusals.iter().map(refusal::of_line));
    match world.catalog.resolve(reading.stated.model()) {
        Some(model) => {
            model.clone_into(&mut scenario.model);
            let ran = match build {
                Build::Release(release) => Some(release),
                Build::Nightly(_) | Build::Custom(_) => sweep.run_date.as_deref().and_then(release_after),
            };
            if let (Some(release), Ok(graph)) = (ran, world.catalog.model(model)) {
                reading.stated.take_defaults_of(release, &graph).map_err(|error| vec![refusal::of_line(&error)])?;
            }
        }
        None => refusals.push(not_in_catalog("model", reading.stated.model())),
    }
    let mut reasons: Vec<GradeReason> = build.reason().into_iter().chain(assumed).collect();
    reasons.extend(
        reading
            .estimates
            .iter()
            .map(|estimated| GradeReason::new(ReasonCode::SettingEstimated, estimated.field.name(), estimated.account())),
    );
    // What was refused is not among what the line states, so that nothing could be compared with it.
    if refusals.is_empty() {
        let invalid = scenario.validate().into_iter().map(|problem| {
            let text = format!("{}: {}", problem.path, problem.message);
            GradeReason::new(ReasonCode::RunRefused, problem.path, text)
        });
        let (conflicts, differences) = recorded::check(sweep, concurrency, build, &reading)
            .into_iter()
            .partition::<Vec<_>, _>(|reason| reason.code.grade() == Grade::G5);
        refusals.extend(invalid.chain(conflicts));
        reasons.extend(differences);
    }
    if refusals.is_empty() { Ok(Point { scenario, reading, warm: warms_up(sweep), reasons }) } else { Err(refusals) }
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
/// have had others, newest first; the first under which least is refused is taken.
fn read_line(scenario: &mut Scenario, build: Build<'_>) -> Result<(Reading, Option<GradeReason>), GradeReason> {
    if let Build::Release(release) = build {
        scenario.engine.written_for = Some(release.to_owned());
        let reading = estimated_line(scenario).map_err(|error| refusal::of_line(&error))?;
        return Ok((reading, None));
    }
    let mut best = (estimated_line(scenario).map_err(|error| refusal::of_line(&error))?, None);
    for release in releases_with_spellings() {
        if best.0.refusals.is_empty() {
            break;
        }
        scenario.engine.written_for = Some(release.to_owned());
        if let Ok(reading) = estimated_line(scenario)
            && reading.refusals.len() < best.0.refusals.len()
        {
            best = (reading, Some(release));
        }
    }
    let (reading, release) = best;
    scenario.engine.written_for = release.map(str::to_owned);
    let assumed = release.map(|release| {
        let text = format!("the build is of no release; its launch line is read in the spellings of {release}");
        GradeReason::new(ReasonCode::SpellingsAssumed, release, text)
    });
    Ok((reading, assumed))
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

fn not_in_catalog(kind: &str, name: &str) -> GradeReason {
    GradeReason::new(ReasonCode::NotInCatalog, name, format!("no {kind} `{name}` in the catalog"))
}

/// Looks at nothing.
struct Silent;

impl Observer for Silent {
    fn sent(&mut self, _at: SimTime, _draft: &Draft) {}

    fn record(&mut self, _record: &RequestRecord) {}

    fn stepped(&mut self, _step: &StepTicket, _state: &EngineSnapshot) {}

    fn progress(&mut self, _progress: Progress) {}
}
