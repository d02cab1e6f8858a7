//! Azure's CSV of 2023 and 2024: when a request came, how long its prompt was and how much was generated.
//!
//! Times are dates with up to seven decimals of a second, perhaps with an offset from UTC; a replay starts at the first of them, and
//! rounds to microseconds. There is nothing about sessions or shared text, so no two prompts share any.

use std::io::{self, BufRead, Write};

use blis_contracts::scenario::distribution::MAX_COUNT;

use super::csv::Table;
use super::{Prompt, Row, Trace, TraceError};

const COLUMNS: &[&str] = &["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

/// Tenths of a microsecond in a day.
const TENTHS_PER_DAY: i64 = 864_000_000_000;

/// The date that written traces start at.
const EPOCH: &str = "2024-01-01";

/// Reads a file; `file` names it in errors.
pub fn read_azure(file: &str, input: impl BufRead) -> Result<Trace, TraceError> {
    let mut table = Table::open(file, input, COLUMNS, COLUMNS.len())?;
    let (mut rows, mut start): (Vec<Row>, Option<i64>) = (Vec::new(), None);
    let (mut empty, mut twins) = (0u64, 0u64);
    let mut last = None;
    while let Some(record) = table.next()? {
        let text = record.text("TIMESTAMP");
        let tenths = tenths(text).ok_or_else(|| {
            record.wrong("TIMESTAMP", format!("must be a date and time like 2023-11-16 18:15:46.6805900, found {text:?}"))
        })?;
        let first = *start.get_or_insert(tenths);
        if tenths < last.unwrap_or(first) {
            return Err(record.wrong("TIMESTAMP", format!("{text} is before the row above it; sort the rows by time")));
        }
        let input_tokens = record.count("ContextTokens", MAX_COUNT)?;
        let output_tokens = record.count("GeneratedTokens", MAX_COUNT)?;
        if input_tokens == 0 {
            return Err(record.wrong("ContextTokens", "must be at least 1"));
        }
        if output_tokens == 0 {
            empty += 1;
            continue;
        }
        let arrival_us = u64::try_from((tenths - first + 5) / 10).expect("rows come in order");
        let row = Row {
            line: record.line,
            id: rows.len() as u64,
            arrival_us,
            prompt: Prompt { own: input_tokens, ..Prompt::default() },
            output_tokens,
            ..Row::default()
        };
        let twin = |above: &Row| last == Some(tenths) && above.prompt.own == input_tokens && above.output_tokens == output_tokens;
        twins += u64::from(rows.last().is_some_and(twin));
        last = Some(tenths);
        rows.push(row);
    }
    let notes = [
        (empty > 0).then(|| format!("{empty} requests that generated no token are left out")),
        (twins > 0).then(|| format!("{twins} requests repeat the request above them in every field")),
    ];
    Trace { clients: vec!["azure".to_owned()], rows, notes: notes.into_iter().flatten().collect(), ..Trace::default() }.checked(file)
}

/// Writes a trace's times and lengths, from the start of 2024 on. Refuses what the format has no field for.
pub fn write_azure(mut out: impl Write, trace: &Trace) -> io::Result<()> {
    writeln!(out, "{}", COLUMNS.join(","))?;
    for row in &trace.rows {
        super::burstgpt::require_plain(row, "Azure's format")?;
        if row.round > 0 {
            let message = format!("request {}: is a later round of a session, which Azure's format cannot say", row.id);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let (seconds, micros) = (row.arrival_us / 1_000_000, row.arrival_us % 1_000_000);
        if seconds >= 28 * 86_400 {
            let message = format!("request {}: is sent after more than four weeks, which this writer does not date", row.id);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let (day, hour, minute, second) = (seconds / 86_400 + 1, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        let date = format!("{}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}0", &EPOCH[..7]);
        writeln!(out, "{date},{},{}", row.prompt.tokens(), row.output_tokens)?;
    }
    out.flush()
}

/// Tenths of a microsecond from a fixed day to a date and time.
fn tenths(text: &str) -> Option<i64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut fields = date.split('-');
    let (year, month, day) = (digits(fields.next()?, 4)?, digits(fields.next()?, 2)?, digits(fields.next()?, 2)?);
    let (time, offset_minutes) = offset(time)?;
    let mut fields = time.split(':');
    let (hour, minute, second) = (digits(fields.next()?, 2)?, digits(fields.next()?, 2)?, fields.next()?);
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let second = digits(second, 2)?;
    let valid = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day) && hour < 24 && minute < 60 && second < 60;
    let decimals = !fraction.is_empty() && fraction.len() <= 7 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !valid || !decimals || fields.next().is_some() || date.split('-').count() != 3 {
        return None;
    }
    let part: i64 = format!("{fraction:0<7}").parse().ok()?;
    let minutes = hour * 60 + minute - offset_minutes;
    Some(days_before(year, month, day) * TENTHS_PER_DAY + (minutes * 60 + second) * 10_000_000 + part)
}

/// A time without the offset from UTC that may follow it, and the offset in minutes.
fn offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let sign = if time[at..].starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = time[at + 1..].split_once(':')?;
    Some((&time[..at], sign * (digits(hours, 2)? * 60 + digits(minutes, 2)?)))
}

fn digits(text: &str, width: usize) -> Option<i64> {
    let holds = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    holds.then(|| text.parse().ok()).flatten()
}

fn days_of(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from the first day of year 0 to a date.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let whole_years = year * 365 + (year + 3) / 4 - (year + 99) / 100 + (year + 399) / 400;
    whole_years + (1..month).map(|month| days_of(year, month)).sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_a_day_apart_over_months_and_leap_years() {
        let days = |text: &str| tenths(&format!("{text} 00:00:00")).unwrap() / TENTHS_PER_DAY;
        for (earlier, later, apart) in [
            ("2023-11-30", "2023-12-01", 1),
            ("2023-12-31", "2024-01-01", 1),
            ("2024-02-28", "2024-03-01", 2),
            ("2100-02-28", "2100-03-01", 1),
            ("2023-01-01", "2024-01-01", 365),
        ] {
            assert_eq!(days(later) - days(earlier), apart, "{earlier}");
        }
    }

    #[test]
    fn an_offset_is_taken_off_and_decimals_count_from_the_left() {
        let utc = tenths("2024-05-12 00:00:00.5").unwrap();
        assert_eq!(tenths("2024-05-12T01:00:00.5000000+01:00"), Some(utc));
        assert_eq!(tenths("2024-05-11 22:30:00.50-01:30"), Some(utc));
        assert_eq!(tenths("2024-05-12 00:00:00.5Z"), Some(utc));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "2024-05-12",
            "2024-13-01 00:00:00",
            "2023-02-29 00:00:00",
            "2024-05-12 24:00:00",
            "2024-05-12 00:00:00.",
            "1715472000",
            "2024-05-12 00:00:00.12345678",
        ] {
            assert_eq!(tenths(text), None, "{text}");
        }
    }
}
