//! What a plain scalar means: the YAML 1.2 core schema, less every spelling whose value is not plain to see.
//!
//! Integers are decimal without leading zeros; decimals have at most 17 significant digits and are finite and normal in
//! binary64. Hexadecimal, octal, `.nan` and `.inf` are refused rather than read as text. Left out: YAML 1.1 booleans
//! (`yes`, `on`), sexagesimals and digit separators, which the core schema reads as text.

use super::Value;

/// The most significant digits a decimal may have: enough to name every binary64 value.
const MAX_DIGITS: usize = 17;

/// Why a plain scalar has no value: the message, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) hint: &'static str,
}

/// The value of a plain (unquoted) scalar.
pub(super) fn resolve(text: &str) -> Result<Value, Refusal> {
    match text {
        "" => return refuse("there is no value here", "write a value, `null`, or leave the key out"),
        "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return refuse(format!("`{text}` is not a finite number"), "quote it if text is meant");
    }
    if is_based(text) {
        return refuse(format!("`{text}` is not a decimal number"), "write the number in decimal, or quote it if text is meant");
    }
    match split(unsigned) {
        Some(parts) => number(text, &parts),
        None => Ok(Value::Str(text.to_owned())),
    }
}

/// The binary64 nearest to a literal this module accepted.
pub(super) fn real(literal: &str) -> f64 {
    literal.parse().expect("an accepted literal is in the grammar that f64 parses")
}

struct Parts<'a> {
    whole: &'a str,
    fraction: Option<&'a str>,
    exponent: Option<&'a str>,
}

/// Splits an unsigned decimal of the core schema; none when the text is not one.
fn split(text: &str) -> Option<Parts<'_>> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let power = |part: &str| {
        let bare = part.strip_prefix(['+', '-']).unwrap_or(part);
        !bare.is_empty() && digits(bare)
    };
    let any_digit = !whole.is_empty() || fraction.is_some_and(|part| !part.is_empty());
    let well_formed = any_digit && digits(whole) && fraction.is_none_or(digits) && exponent.is_none_or(power);
    well_formed.then_some(Parts { whole, fraction, exponent })
}

fn number(text: &str, parts: &Parts<'_>) -> Result<Value, Refusal> {
    if parts.whole.len() > 1 && parts.whole.starts_with('0') {
        return refuse(format!("the number `{text}` has leading zeros"), "drop the zeros, or quote it if text is meant");
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let whole = if parts.whole.is_empty() { "0" } else { parts.whole };
    if parts.fraction.is_none() && parts.exponent.is_none() {
        return Ok(Value::Int(format!("{sign}{whole}")));
    }
    let fraction = match parts.fraction {
        Some("") => ".0".to_owned(),
        Some(digits) => format!(".{digits}"),
        None => String::new(),
    };
    let exponent = parts.exponent.map(|power| format!("e{power}")).unwrap_or_default();
    let literal = format!("{sign}{whole}{fraction}{exponent}");
    check_decimal(text, parts, real(&literal))?;
    Ok(Value::Float(literal))
}

fn check_decimal(text: &str, parts: &Parts<'_>, value: f64) -> Result<(), Refusal> {
    let digits = format!("{}{}", parts.whole, parts.fraction.unwrap_or_default());
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.len() > MAX_DIGITS {
        return refuse(format!("`{text}` has more than {MAX_DIGITS} significant digits"), "round it, or quote it if text is meant");
    }
    if !value.is_finite() {
        return refuse(format!("`{text}` is too large for a finite number"), "the largest is about 1.79e308; quote it if text is meant");
    }
    if !significant.is_empty() && !value.is_normal() {
        return refuse(format!("`{text}` is too small for an exact number"), "the smallest is about 2.23e-308; quote it if text is meant");
    }
    Ok(())
}

fn is_based(text: &str) -> bool {
    let all = |digits: &str, valid: fn(char) -> bool| !digits.is_empty() && digits.chars().all(valid);
    text.strip_prefix("0x").is_some_and(|digits| all(digits, |c| c.is_ascii_hexdigit()))
        || text.strip_prefix("0o").is_some_and(|digits| all(digits, |c| ('0'..='7').contains(&c)))
}

fn refuse<T>(message: impl Into<String>, hint: &'static str) -> Result<T, Refusal> {
    Err(Refusal { message: message.into(), hint })
}
