//! Conditions on figures, such as `ttft.p99>500ms`: what `--fail-if` takes.
//!
//! The grammar is `metric[class].statistic op value unit`; the class, in its brackets, and the unit of anything but a time may be
//! left out. Without a class the figure is the whole cluster's.

use std::fmt;
use std::str::FromStr;

use blis_contracts::metric::Metric;
use blis_contracts::result::{Figure, RunResult, Statistic};
use blis_contracts::scenario::Scenario;
use blis_contracts::strict::did_you_mean;
use blis_report::quantity;

/// What the scope of a service class starts with.
const CLASS: &str = "class/";

/// A condition under which a run fails.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    text: String,
    metric: Metric,
    /// The figure's scope: `cluster`, or `class/<name>`.
    scope: String,
    statistic: Statistic,
    operator: Operator,
    /// In the unit of the metric's definition.
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    AtLeast,
    AtMost,
    Above,
    Below,
}

impl Operator {
    /// Every operator; one that another begins with comes after it.
    const ALL: [(&'static str, Self); 4] = [(">=", Self::AtLeast), ("<=", Self::AtMost), (">", Self::Above), ("<", Self::Below)];

    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtLeast => value >= limit,
            Self::AtMost => value <= limit,
            Self::Above => value > limit,
            Self::Below => value < limit,
        }
    }
}

/// Units a value may be written in, each with the unit of the metric registry and how many of those it is.
const UNITS: &[(&str, &str, f64)] = &[
    ("us", "us", 1.0),
    ("ms", "us", 1e3),
    ("s", "us", 1e6),
    ("%", "ratio", 1e-2),
    ("", "ratio", 1.0),
    ("1/s", "1/s", 1.0),
    ("", "1/s", 1.0),
    ("tokens/s", "tokens/s", 1.0),
    ("", "tokens/s", 1.0),
    ("requests", "requests", 1.0),
    ("", "requests", 1.0),
    ("usd", "usd", 1.0),
    ("", "usd", 1.0),
];

impl Condition {
    /// Why no run of the scenario has the figure; none if runs have it.
    pub(crate) fn refusal(&self, scenario: &Scenario) -> Option<String> {
        let id = self.metric.definition().id;
        let classes = &scenario.objectives;
        if let Some(key) = self.metric.needs()
            && (key == "objectives" && classes.is_empty() || key == "cost" && scenario.cost.is_none())
        {
            return Some(format!("--fail-if `{self}`: a run gives {id} only where its scenario states `{key}`"));
        }
        let class = self.scope.strip_prefix(CLASS)?;
        if self.metric.needs() != Some("objectives") {
            return Some(format!("--fail-if `{self}`: {id} is not given by service class; leave `[{class}]` out"));
        }
        if classes.len() > 1 && classes.contains_key(class) {
            return None;
        }
        if classes.contains_key(class) {
            return Some(format!("--fail-if `{self}`: `{class}` is the only class with an objective; leave `[{class}]` out"));
        }
        let known: Vec<&str> = classes.keys().map(String::as_str).collect();
        let hint = did_you_mean(class, &known).map(|hint| format!("; {hint}")).unwrap_or_default();
        Some(format!("--fail-if `{self}`: the scenario has no objective for class `{class}`{hint}"))
    }

    /// What to tell the user if the run fails the condition; none if it passes. A figure without a value fails.
    pub(crate) fn failure(&self, result: &RunResult) -> Option<String> {
        let id = self.metric.definition().id;
        let is_it = |figure: &&Figure| figure.metric == id && figure.statistic == self.statistic && figure.scope == self.scope;
        let figure = result.figures.iter().find(is_it);
        let Some(value) = figure.and_then(|figure| figure.value) else {
            let unfinished = figure.map_or(0, |figure| figure.unfinished);
            let why = if unfinished > 0 {
                format!("{} had not finished when the run stopped", quantity::counted(unfinished, "request"))
            } else {
                "no request has a sample".to_owned()
            };
            return Some(format!("`{self}` cannot be judged: {id}.{} has no value, because {why}", self.statistic.as_str()));
        };
        let shown = quantity::value(value, self.metric.definition().unit);
        self.operator.holds(value, self.limit).then(|| format!("`{self}` holds: {id}.{} is {shown}", self.statistic.as_str()))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Operator::ALL.iter().filter_map(|(sign, operator)| Some((text.find(sign)?, sign, operator)));
        let Some((at, sign, operator)) = found.min_by_key(|(at, sign, _)| (*at, 2 - sign.len())) else {
            return Err("a condition compares a figure with `>`, `>=`, `<` or `<=`, as in `ttft.p99>500ms`".to_owned());
        };
        let (metric, scope, statistic) = figure(text[..at].trim())?;
        let limit = limit(text[at + sign.len()..].trim(), metric)?;
        Ok(Self { text: text.to_owned(), metric, scope, statistic, operator: *operator, limit })
    }
}

fn figure(text: &str) -> Result<(Metric, String, Statistic), String> {
    let (subject, statistic) = text.rsplit_once('.').ok_or_else(|| format!("`{text}` names no statistic; write it as in `ttft.p99`"))?;
    let (name, scope) = match subject.split_once('[') {
        None => (subject, "cluster".to_owned()),
        Some((name, rest)) => match rest.strip_suffix(']') {
            Some(class) if !class.is_empty() => (name, format!("{CLASS}{class}")),
            Some(_) | None => return Err(format!("`{subject}` names no class; write it as in `goodput[chat].rate`")),
        },
    };
    let hint = |name: &str, known: &[&str]| did_you_mean(name, known).map(|hint| format!("; {hint}")).unwrap_or_default();
    let Some(metric) = Metric::named(name) else {
        let known = Metric::ALL.map(|metric| metric.definition().id);
        return Err(format!("no metric is called `{name}`{}", hint(name, &known)));
    };
    let known: Vec<&str> = metric.statistics().iter().map(|statistic| statistic.as_str()).collect();
    match metric.statistics().iter().find(|known| known.as_str() == statistic) {
        Some(statistic) => Ok((metric, scope, *statistic)),
        None => Err(format!("{name} has no statistic `{statistic}`{}", hint(statistic, &known))),
    }
}

fn limit(text: &str, metric: Metric) -> Result<f64, String> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || ".+-".contains(c))).unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim());
    let value: f64 =
        number.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| format!("`{text}` is not a number with a unit"))?;
    let wanted = metric.definition().unit;
    let of_metric = || UNITS.iter().filter(|(_, of, _)| *of == wanted);
    if wanted == "ratio" && unit.is_empty() && value > 1.0 {
        return Err(format!("{} is a share, at most 1; write `{number}%` if a percentage is meant", metric.definition().id));
    }
    if let Some((_, _, factor)) = of_metric().find(|(name, _, _)| *name == unit) {
        return Ok(value * factor);
    }
    let known: Vec<&str> = of_metric().map(|(name, _, _)| *name).filter(|name| !name.is_empty()).collect();
    let found = if unit.is_empty() { "without a unit".to_owned() } else { format!("in `{unit}`") };
    Err(format!("{} is compared {found}; write the value in {}", metric.definition().id, known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(text: &str) -> f64 {
        text.parse::<Condition>().unwrap().limit
    }

    fn refusal(text: &str) -> String {
        text.parse::<Condition>().unwrap_err()
    }

    #[test]
    fn a_limit_is_taken_in_the_unit_written() {
        let limits = ["ttft.p99>500ms", "ttft.p99 >= 0.5 s", "ttft.p99<500000us", "kv_utilisation.mean>90%", "output_throughput.rate<2000"];
        let expected = [5e5, 5e5, 5e5, 0.9, 2e3];
        for (text, expected) in limits.iter().zip(expected) {
            assert!((limit_of(text) - expected).abs() < 1e-9, "{text}");
        }
    }

    #[test]
    fn a_share_above_one_is_a_percentage_without_its_sign() {
        assert_eq!(refusal("kv_utilisation.mean>50"), "kv_utilisation is a share, at most 1; write `50%` if a percentage is meant");
        assert!((limit_of("kv_utilisation.mean>1") - 1.0).abs() < 1e-12);
    }

    #[test]
    fn every_unit_of_the_registry_can_be_written() {
        for metric in Metric::ALL {
            assert!(UNITS.iter().any(|(_, of, _)| *of == metric.definition().unit), "{metric:?}");
        }
    }

    #[test]
    fn operators_are_told_apart() {
        let operator = |text: &str| text.parse::<Condition>().unwrap().operator;
        assert_eq!(operator("ttft.p99>=1s"), Operator::AtLeast);
        assert_eq!(operator("ttft.p99>1s"), Operator::Above);
        assert_eq!(operator("ttft.p99<=1s"), Operator::AtMost);
        assert_eq!(operator("ttft.p99<1s"), Operator::Below);
    }

    #[test]
    fn wrong_names_get_the_nearest() {
        assert_eq!(refusal("tftt.p99>1s"), "no metric is called `tftt`; did you mean `ttft`?");
        assert_eq!(refusal("ttft.p98>1s"), "ttft has no statistic `p98`; did you mean `p90`?");
        assert_eq!(refusal("output_throughput.p50<1"), "output_throughput has no statistic `p50`; the only one here is `rate`");
        assert_eq!(refusal("ttft>1s"), "`ttft` names no statistic; write it as in `ttft.p99`");
        assert!(refusal("ttft.p99=1s").starts_with("a condition compares"));
    }

    #[test]
    fn a_class_stands_in_brackets() {
        assert_eq!("slo_attainment[chat].mean<99%".parse::<Condition>().unwrap().scope, "class/chat");
        assert_eq!("slo_attainment[a.b].mean<99%".parse::<Condition>().unwrap().scope, "class/a.b");
        assert_eq!("ttft.p99>1s".parse::<Condition>().unwrap().scope, "cluster");
        assert_eq!(refusal("goodput[].rate<1"), "`goodput[]` names no class; write it as in `goodput[chat].rate`");
    }

    #[test]
    fn a_time_without_a_unit_is_refused() {
        assert_eq!(refusal("ttft.p99>500"), "ttft is compared without a unit; write the value in us, ms, s");
        assert_eq!(refusal("ttft.p99>5min"), "ttft is compared in `min`; write the value in us, ms, s");
        assert_eq!(refusal("ttft.p99>nanms"), "`nanms` is not a number with a unit");
    }
}
