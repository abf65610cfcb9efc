//! Percentile sketches.
//!
//! The sketch library trusts its own state: a sketch with keys outside its bins panics when it is merged or read. Its
//! fields are reachable only through its serialized form, so a received sketch is checked as a message, written in
//! that form by this side, and read back. Nothing that a peer sent reaches the deserializer.

use sketches_ddsketch::{Config, DDSketch};

use super::message::{BinsMessage, SketchMessage};

/// Keys stay far inside `i32`, so that the library's arithmetic on them cannot overflow. The largest `f64` has a key of
/// about 36 000.
const MAX_KEY: i32 = 1 << 17;

/// Samples in a sketch: three days of one per nanosecond, and 65 000 such sketches add up without overflow.
const MAX_SAMPLES: u64 = 1 << 48;

/// One side of a sketch as the library serializes it: bins, count, lowest key, highest key, key of the first bin, limit
/// of bins, collapsed.
type SerializedBins = (Vec<u64>, u64, i32, i32, i32, u64, bool);

/// A sketch as the library serializes it: configuration, positive side, negative side, min, max, sum, zero count.
type SerializedSketch = (Config, SerializedBins, SerializedBins, f64, f64, f64, u64);

/// The message for a serialized sketch. `None` for one that [`decode_sketch`] would not accept: the engine builds none,
/// but its constructor takes sketches of any configuration.
pub(super) fn encode_sketch(serialized: &[u8]) -> Option<SketchMessage> {
    let sketch: SerializedSketch = bincode::deserialize(serialized).ok()?;
    let (config, positive, negative, min, max, sum, zero_count) = sketch;
    if config != Config::defaults() {
        return None;
    }
    let message = SketchMessage {
        positive: encode_bins(positive)?,
        negative: encode_bins(negative)?,
        zero_count,
        min,
        max,
        sum,
    };
    check_sketch(&message).is_ok().then_some(message)
}

/// The inner `None` is a side without samples.
fn encode_bins(bins: SerializedBins) -> Option<Option<BinsMessage>> {
    let (counts, count, min_key, max_key, first_key, limit, collapsed) = bins;
    if counts.is_empty() && count == 0 {
        return Some(None);
    }
    let message = BinsMessage {
        counts,
        first_key,
        min_key,
        max_key,
        collapsed,
    };
    let is_whole = limit == bin_limit() && samples(&message) == Some(count);
    is_whole.then_some(Some(message))
}

/// The sketch in a message. The error names the field.
pub(super) fn decode_sketch(message: SketchMessage) -> Result<DDSketch, String> {
    check_sketch(&message)?;
    let sketch: SerializedSketch = (
        Config::defaults(),
        decode_bins(message.positive),
        decode_bins(message.negative),
        message.min,
        message.max,
        message.sum,
        message.zero_count,
    );
    bincode::serialize(&sketch)
        .and_then(|bytes| bincode::deserialize(&bytes))
        .map_err(|err| err.to_string())
}

fn decode_bins(bins: Option<BinsMessage>) -> SerializedBins {
    match bins {
        None => (Vec::new(), 0, i32::MAX, i32::MIN, 0, bin_limit(), false),
        Some(bins) => {
            let count = samples(&bins).unwrap_or(u64::MAX);
            let BinsMessage {
                counts,
                first_key,
                min_key,
                max_key,
                collapsed,
            } = bins;
            let limit = bin_limit();
            (counts, count, min_key, max_key, first_key, limit, collapsed)
        }
    }
}

/// What the library relies on in everything it does with a sketch.
fn check_sketch(message: &SketchMessage) -> Result<(), String> {
    let mut total = message.zero_count;
    for (side, bins) in [
        ("positive", &message.positive),
        ("negative", &message.negative),
    ] {
        let Some(bins) = bins else { continue };
        let samples = check_bins(bins).map_err(|found| format!("{side}: {found}"))?;
        total = total.saturating_add(samples);
    }
    if total > MAX_SAMPLES {
        return Err(format!("{total} samples are more than {MAX_SAMPLES}"));
    }
    Ok(())
}

fn check_bins(bins: &BinsMessage) -> Result<u64, String> {
    let BinsMessage {
        counts,
        first_key,
        min_key,
        max_key,
        ..
    } = bins;
    let len = match i32::try_from(counts.len()) {
        Ok(len) if counts.len() as u64 <= bin_limit() => len,
        _ => return Err(format!("{} bins are too many", counts.len())),
    };
    if [first_key, min_key, max_key]
        .iter()
        .any(|key| !(-MAX_KEY..=MAX_KEY).contains(*key))
    {
        return Err(format!(
            "a key of {first_key}, {min_key}, {max_key} is out of range"
        ));
    }
    if first_key > min_key || min_key > max_key || max_key - first_key >= len {
        return Err(format!(
            "keys {min_key} to {max_key} do not lie in {len} bins from {first_key}"
        ));
    }
    match samples(bins) {
        None | Some(0) => Err("the bins hold no samples, or too many".to_owned()),
        Some(samples) => Ok(samples),
    }
}

fn samples(bins: &BinsMessage) -> Option<u64> {
    bins.counts
        .iter()
        .try_fold(0u64, |sum, count| sum.checked_add(*count))
}

fn bin_limit() -> u64 {
    u64::from(Config::defaults().max_num_bins)
}
