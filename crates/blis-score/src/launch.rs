//! A launch line whose values depend on the concurrency, at one concurrency.
//!
//! Three notations occur: `$CONC`, optionally times a number (`$CONC*2`); a choice by concurrency
//! (`<cutlass@conc=1,2,4|(unset)@conc=64,128>`); and, as the choice's values, `(set)` for a bare flag and `(unset)` for no flag.

/// A launch line that cannot be read at a concurrency.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SymbolError {
    /// No case of a choice names the concurrency.
    #[error("`{choice}` has no case for concurrency {concurrency}")]
    NoCase {
        /// The choice as written.
        choice: String,
        /// The point's concurrency.
        concurrency: u32,
    },
    /// Something after `$CONC` that is neither its end nor a factor.
    #[error("`{text}` is neither `$CONC` nor `$CONC*NUMBER`")]
    Arithmetic {
        /// The text as written.
        text: String,
    },
    /// `(unset)` with no flag before it to leave out.
    #[error("`{choice}` unsets a value, but no flag stands before it")]
    NoFlag {
        /// The choice as written.
        choice: String,
    },
}

/// The line at a concurrency. Words that hold no symbol come back as written, quotes included.
pub fn at_concurrency(line: &str, concurrency: u32) -> Result<String, SymbolError> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let Some(choice) = word.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).filter(|choice| choice.contains("@conc=")) else {
            words.push(arithmetic(word, concurrency)?);
            continue;
        };
        match chosen(choice, concurrency)? {
            "(set)" => {}
            "(unset)" => {
                let flag = words.pop().filter(|word| word.starts_with("--"));
                flag.ok_or_else(|| SymbolError::NoFlag { choice: word.to_owned() })?;
            }
            value => words.push(arithmetic(value, concurrency)?),
        }
    }
    Ok(words.join(" "))
}

/// A number in terms of `$CONC`.
pub fn count_at_concurrency(text: &str, concurrency: u32) -> Result<u64, SymbolError> {
    arithmetic(text, concurrency)?.parse().map_err(|_| SymbolError::Arithmetic { text: text.to_owned() })
}

fn chosen(choice: &str, concurrency: u32) -> Result<&str, SymbolError> {
    let concurrency_text = concurrency.to_string();
    choice
        .split('|')
        .filter_map(|case| case.split_once("@conc="))
        .find(|(_, list)| list.split(',').any(|item| item == concurrency_text))
        .map(|(value, _)| value)
        .ok_or_else(|| SymbolError::NoCase { choice: choice.to_owned(), concurrency })
}

fn arithmetic(word: &str, concurrency: u32) -> Result<String, SymbolError> {
    let Some((before, after)) = word.split_once("$CONC") else { return Ok(word.to_owned()) };
    let factor = match after.strip_prefix('*') {
        None if after.is_empty() => Ok(1),
        None => Err(()),
        Some(number) => number.parse::<u64>().map_err(|_| ()),
    };
    let factor = factor.map_err(|()| SymbolError::Arithmetic { text: word.to_owned() })?;
    Ok(format!("{before}{}", u64::from(concurrency) * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "vllm serve m --max-num-seqs $CONC --max-cudagraph-capture-size $CONC*2 --no-enable-chunked-prefill <(set)@conc=1,2|(unset)@conc=64> --decode <cutlass@conc=1,2|(unset)@conc=64> --seed 0";

    #[test]
    fn symbols_take_the_value_of_the_point() {
        let line = at_concurrency(LINE, 2).unwrap();
        assert_eq!(
            line,
            "vllm serve m --max-num-seqs 2 --max-cudagraph-capture-size 4 --no-enable-chunked-prefill --decode cutlass --seed 0"
        );
        let line = at_concurrency(LINE, 64).unwrap();
        assert_eq!(line, "vllm serve m --max-num-seqs 64 --max-cudagraph-capture-size 128 --seed 0");
    }

    #[test]
    fn quoted_text_passes_unchanged() {
        let line = r#"vllm serve m --compilation-config '{"pass_config":{"fuse_allreduce_rms":true}}'"#;
        assert_eq!(at_concurrency(line, 8).unwrap(), line);
    }

    #[test]
    fn what_no_rule_covers_is_refused() {
        assert!(matches!(at_concurrency(LINE, 3), Err(SymbolError::NoCase { concurrency: 3, .. })));
        assert_eq!(at_concurrency("a $CONC+1", 3), Err(SymbolError::Arithmetic { text: "$CONC+1".to_owned() }));
        assert!(matches!(at_concurrency("a <(unset)@conc=3>", 3), Err(SymbolError::NoFlag { .. })));
        assert_eq!(count_at_concurrency("$CONC*10", 64), Ok(640));
    }
}
