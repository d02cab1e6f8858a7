//! The verdict on a run's domain: whether deployments like it were compared with measurements, and how far those lay from simulation.

use blis_contracts::plan::Layout;
use blis_contracts::validity::{ErrorInterval, Validity};
use blis_registry::errors::{ANY, Domain, ErrorOf, ErrorTable, Nearness, Widths, family};

/// What a run was, as far as its domain goes. Amounts are means over requests.
pub(crate) struct Case<'a> {
    pub(crate) model: &'a str,
    pub(crate) chip: &'a str,
    pub(crate) layout: Layout,
    pub(crate) replicas: u32,
    /// Requests in flight; none where none was measured.
    pub(crate) requests: Option<f64>,
    pub(crate) prompt_tokens: f64,
    pub(crate) output_tokens: f64,
}

/// The verdict. A run outside in chip or family has a wider interval, from deployments left out as far; one outside in anything else has
/// none, since nothing measured says how errors grow there.
pub(crate) fn validity(case: &Case<'_>, table: Option<&ErrorTable>) -> Validity {
    let Some(table) = table else {
        return Validity { outside: vec!["the registry holds no table of errors".to_owned()], ..Validity::default() };
    };
    let family = family(case.model);
    let near = table.nearness(&family, case.chip);
    let unlike = match near {
        Some(Nearness::Measured) => None,
        Some(Nearness::OtherChip) => Some(format!("no model of the family {family} was measured on {}", case.chip)),
        Some(Nearness::OtherFamily) => Some(format!("no model of the family {family} was measured")),
        None => Some(format!("neither the family {family} nor the chip {} was measured", case.chip)),
    };
    let beyond = beyond(case, table.domain(&family, case.chip));
    let interval = |latency| {
        let (row, covered) = table.interval(latency, &family, case.chip, case.requests?)?;
        // A row is for a load without end; measured were the loads of the domain.
        let domain = table.domain(&row.over_family, &row.over_chip).map_or(row.requests, |domain| domain.requests);
        let (least, most) = (row.requests.0.max(domain.0), row.requests.1.min(domain.1));
        let all = |name: &str, what: &str| if name == ANY { format!("every measured {what}") } else { name.to_owned() };
        Some(ErrorInterval {
            low: row.low,
            high: row.high,
            level: table.level,
            covered: covered.covered,
            over: format!("{} on {}, {least} to {most} requests in flight", all(&row.over_family, "family"), all(&row.over_chip, "chip")),
            points: row.points,
            deployments: row.deployments,
        })
    };
    let [tpot, ttft] = if beyond.is_empty() { [ErrorOf::Tpot, ErrorOf::Ttft].map(interval) } else { [None, None] };
    let outside: Vec<String> = unlike.into_iter().chain(beyond).collect();
    Validity { inside: outside.is_empty(), outside, tpot, ttft }
}

/// The bounds of the nearest measured deployments that a run lies beyond.
fn beyond(case: &Case<'_>, domain: Option<&Domain>) -> Vec<String> {
    let mut beyond = Vec::new();
    let Some(domain) = domain else { return beyond };
    let amounts = [
        (case.requests, domain.requests, "requests in flight"),
        (Some(case.prompt_tokens), domain.prompt_tokens, "prompt tokens"),
        (Some(case.output_tokens), domain.output_tokens, "output tokens"),
    ];
    for (amount, (low, high), what) in amounts {
        match amount {
            // Half a unit either way: a mean of so many requests was kept up as a whole number.
            Some(amount) if amount < f64::from(low) - 0.5 || amount > f64::from(high) + 0.5 => {
                beyond.push(format!("{amount:.1} {what} on average, where {low} to {high} were measured"));
            }
            Some(_) => {}
            None => beyond.push(format!("the number of {what} is not known")),
        }
    }
    let Layout { tensor, pipeline, data, expert, domain: links } = case.layout;
    if pipeline > 1 || !domain.layouts.contains(&Widths { tensor, data, expert }) {
        let widths = [("TP", tensor), ("PP", pipeline), ("DP", data), ("EP", expert)].into_iter();
        let layout: Vec<String> =
            widths.filter(|(name, width)| *name == "TP" || *width > 1).map(|(name, width)| format!("{name}{width}")).collect();
        beyond.push(format!("a deployment with {}, of which none was measured", layout.join(" ")));
    }
    if links > 0 {
        beyond.push("ranks in several domains of links, joined by a network, where one domain was measured".to_owned());
    }
    if case.replicas > 1 {
        beyond.push(format!("{} replicas, where one was measured", case.replicas));
    }
    beyond
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run as it was measured often.
    fn case() -> Case<'static> {
        Case {
            model: "llama-3.1-70b-instruct-fp8",
            chip: "h100",
            layout: Layout { tensor: 4, ..Layout::SINGLE },
            replicas: 1,
            requests: Some(31.2),
            prompt_tokens: 922.0,
            output_tokens: 922.0,
        }
    }

    fn verdict(case: &Case<'_>) -> Validity {
        validity(case, blis_registry::Registry::embedded().errors().as_deref())
    }

    #[test]
    fn a_run_like_measured_ones_is_inside_and_has_intervals() {
        let verdict = verdict(&case());
        assert!(verdict.inside && verdict.outside.is_empty(), "{verdict:?}");
        for interval in [verdict.tpot, verdict.ttft] {
            let interval = interval.unwrap();
            assert!(interval.low < interval.high && interval.level > 0.5 && interval.points > 0, "{interval:?}");
            assert!((0.75..=0.85).contains(&interval.covered), "the table's own check: {interval:?}");
            assert_eq!(interval.over, "llama on h100, 9 to 32 requests in flight");
        }
    }

    #[test]
    fn an_interval_claims_no_load_that_was_not_measured() {
        let most = verdict(&Case { requests: Some(64.0), ..case() });
        assert_eq!(most.tpot.unwrap().over, "llama on h100, 33 to 64 requests in flight");
    }

    #[test]
    fn another_family_or_chip_is_outside_with_a_wider_interval() {
        let width = |verdict: &Validity| verdict.tpot.as_ref().map(|interval| interval.high / interval.low);
        let measured = verdict(&case());
        let family = verdict(&Case { model: "mixtral-8x7b", ..case() });
        assert!(!family.inside && width(&family) > width(&measured), "{family:?}");
        let chip = verdict(&Case { chip: "a100-sxm", ..case() });
        assert!(!chip.inside && chip.outside[0].contains("a100-sxm") && chip.tpot.is_some(), "{chip:?}");
        let neither = verdict(&Case { model: "mixtral-8x7b", chip: "a100-sxm", ..case() });
        assert_eq!((neither.inside, &neither.tpot, &neither.ttft), (false, &None, &None));
    }

    #[test]
    fn a_load_measured_of_one_family_is_not_measured_of_another() {
        let case = Case { requests: Some(1_000.0), ..case() };
        let table = blis_registry::Registry::embedded().errors();
        let widest = table.as_deref().unwrap().domains.iter().map(|domain| domain.requests.1).max().unwrap();
        assert!(widest >= 1_000, "some family was measured at as high a load");
        let verdict = verdict(&case);
        assert!(!verdict.inside && verdict.outside[0].contains("requests in flight"), "{verdict:?}");
    }

    #[test]
    fn beyond_measured_loads_lengths_and_layouts_nothing_is_known() {
        let beyond = [
            Case { requests: Some(9_000.0), ..case() },
            Case { requests: None, ..case() },
            Case { prompt_tokens: 90_000.0, ..case() },
            Case { output_tokens: 2.0, ..case() },
            Case { layout: Layout { tensor: 4, pipeline: 2, ..Layout::SINGLE }, ..case() },
            Case { replicas: 3, ..case() },
        ];
        for case in beyond {
            let verdict = verdict(&case);
            assert_eq!((verdict.inside, verdict.outside.len(), verdict.tpot, verdict.ttft), (false, 1, None, None));
        }
        let unknown = validity(&case(), None);
        assert_eq!((unknown.inside, unknown.outside[0].as_str()), (false, "the registry holds no table of errors"));
    }
}
