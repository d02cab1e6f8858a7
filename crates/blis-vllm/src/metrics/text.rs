//! Series as a scrape reads them: the text format of Prometheus, without descriptions, as the Python client of upstream writes it.

use std::fmt::Write;

/// What a series is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// Labels in the order of their names.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text under construction.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) lines: Vec<String>,
}

impl Text {
    /// Begins a counter or gauge; answers the name of its lines.
    pub(super) fn begin(&mut self, name: &str, kind: Kind) -> String {
        let (name, kind) = match kind {
            Kind::Counter => (format!("vllm:{name}_total"), "counter"),
            Kind::Gauge => (format!("vllm:{name}"), "gauge"),
        };
        self.lines.push(format!("# TYPE {name} {kind}"));
        name
    }

    pub(super) fn begin_histogram(&mut self, name: &str) -> String {
        self.lines.push(format!("# TYPE vllm:{name} histogram"));
        format!("vllm:{name}")
    }

    pub(super) fn line(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        let mut line = format!("{name}{{");
        for (index, (label, text)) in labels.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let escaped = text.replace('\\', r"\\").replace('\n', r"\n").replace('"', r#"\""#);
            write!(line, "{comma}{label}=\"{escaped}\"").expect("text can be written to");
        }
        write!(line, "}} {}", number(value)).expect("text can be written to");
        self.lines.push(line);
    }
}

/// A number as the format writes it: like Python, but with an exponent from a million on.
pub(super) fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let plain = python(value);
    let (digits, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    if value > 0.0 && digits.len() > 6 && !plain.contains('e') {
        let (first, rest) = digits.split_at(1);
        let mantissa = format!("{first}.{rest}{fraction}");
        return format!("{}e+0{}", mantissa.trim_end_matches(['0', '.']), digits.len() - 1);
    }
    plain
}

/// The shortest text that reads back as the same number, as Python writes it.
fn python(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_written_as_upstreams_library_writes_them() {
        let written = [0.0, 1.0, 0.3, 0.1 + 0.2, 123_456.5, 1_000_000.0, 12_345_678.25, 1e-5, 0.000_12, -0.04, f64::INFINITY].map(number);
        let expected =
            ["0.0", "1.0", "0.3", "0.30000000000000004", "123456.5", "1e+06", "1.234567825e+07", "1e-05", "0.00012", "-0.04", "+Inf"];
        assert_eq!(written, expected);
    }
}
