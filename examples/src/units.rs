//! Sizes, durations and lists as people type them.

use std::{num::NonZeroUsize, time::Duration};

use crate::tpch;

/// Parses `512MiB`, `2GiB`, `1.5GB`, `65536`.
///
/// # Errors
/// A sentence that says what would be accepted.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = split_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => {
            return Err(format!(
                "unknown unit '{unit}': use B, KiB, MiB, GiB, TiB, KB, MB or GB"
            ));
        }
    };
    let bytes = positive(number, "512MiB")? * factor;
    if bytes > usize::MAX as f64 {
        return Err("larger than this machine can address".to_owned());
    }
    Ok(bytes as usize)
}

/// Parses `250ms`, `30s`, `5m`, `1.5h`; a bare number is seconds.
///
/// # Errors
/// A sentence that says what would be accepted.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "ms" => 0.001,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit '{unit}': use ms, s, m or h")),
    };
    Duration::try_from_secs_f64(positive(number, "30s")? * factor).map_err(|e| e.to_string())
}

/// Parses TPC-H query numbers: `3`, `1..22` or `1-22`, `1,5,9-12`; a leading `q` is allowed.
///
/// # Errors
/// A sentence that says what would be accepted.
pub fn parse_queries(text: &str) -> Result<Vec<usize>, String> {
    let mut numbers = Vec::new();
    for item in text.split(',') {
        let (first, last) = match item.split_once("..").or_else(|| item.split_once('-')) {
            Some((first, last)) => (
                query_number(first)?,
                query_number(last.trim_start_matches('='))?,
            ),
            None => (query_number(item)?, query_number(item)?),
        };
        if first > last {
            return Err(format!(
                "'{item}' runs backwards: write the smaller number first"
            ));
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

/// Parses a whole number that is not zero.
///
/// # Errors
/// A sentence that says what would be accepted.
pub fn parse_count(text: &str) -> Result<NonZeroUsize, String> {
    let expected = |_| "expected a whole number of at least 1".to_owned();
    text.trim().parse().map_err(expected)
}

/// `1 worker`, `2 workers`.
pub fn display_count(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// Parses `key=value`, with neither side empty.
///
/// # Errors
/// A sentence that says what would be accepted.
pub fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected key=value, such as distributed.compression=zstd".to_owned()),
    }
}

/// A byte count for people: `1.5 MiB`.
pub fn display_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    match unit {
        "B" => format!("{bytes} B"),
        _ => format!("{value:.1} {unit}"),
    }
}

/// Milliseconds with one decimal, as tables and JSON show them.
pub fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

fn query_number(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.strip_prefix(['q', 'Q']).unwrap_or(text);
    match digits.parse() {
        Ok(number) if tpch::query(number).is_some() => Ok(number),
        _ => Err(format!(
            "'{text}' is no TPC-H query: use 1 to {}",
            tpch::QUERY_COUNT
        )),
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

fn positive(number: &str, example: &str) -> Result<f64, String> {
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!(
            "expected a number above zero with a unit, such as {example}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes() {
        assert_eq!(parse_bytes("65536"), Ok(65_536));
        assert_eq!(parse_bytes("2GiB"), Ok(2 << 30));
        assert_eq!(parse_bytes("1.5 MB"), Ok(1_500_000));
        for bad in ["", "GiB", "-1", "0", "1 parsec", "99999999999TiB", "1.2.3"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(display_bytes(0), "0 B");
        assert_eq!(display_bytes(1536), "1.5 KiB");
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("3"), Ok(Duration::from_secs(3)));
        for bad in ["", "soon", "0s", "-3s", "9999999999999999999999h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn queries() {
        assert_eq!(parse_queries("3"), Ok(vec![3]));
        assert_eq!(parse_queries("q1..3,22"), Ok(vec![1, 2, 3, 22]));
        assert_eq!(parse_queries("1-22").map(|all| all.len()), Ok(22));
        for bad in ["", "0", "23", "3..1", "x", "1..", "1,,2"] {
            assert!(parse_queries(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts() {
        assert_eq!(parse_count("3").map(usize::from), Ok(3));
        for bad in ["0", "-1", "", "x"] {
            let error = parse_count(bad).err().unwrap_or_default();
            assert!(error.contains("at least 1"), "{bad}: {error}");
        }
        assert_eq!(display_count(1, "worker"), "1 worker");
        assert_eq!(display_count(0, "worker"), "0 workers");
    }

    #[test]
    fn settings() {
        assert_eq!(
            parse_setting("a.b = c=d"),
            Ok(("a.b".to_owned(), "c=d".to_owned()))
        );
        assert!(parse_setting("a").is_err());
        assert!(parse_setting("=1").is_err());
    }
}
