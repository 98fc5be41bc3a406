//! The deadline of a gRPC call, as its header says it.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// The part of a caller's time that is left for the way back, so that it is told what happened before it gives up.
const WAY_BACK_PART: u32 = 10;
const WAY_BACK_MAX: Duration = Duration::from_millis(50);

/// How long an operation may take whose caller waits so long; `None` if the caller does not say, or says it wrongly.
pub(super) fn timeout(metadata: &MetadataMap) -> Option<Duration> {
    let waits = parse(metadata.get("grpc-timeout")?.to_str().ok()?)?;
    Some(waits - (waits / WAY_BACK_PART).min(WAY_BACK_MAX))
}

/// At most eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3_600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_read_and_time_is_left_for_the_way_back() {
        for (text, expected) in [
            ("100m", Some(Duration::from_millis(90))),
            ("10S", Some(Duration::from_millis(9_950))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600) - WAY_BACK_MAX)),
            ("0n", Some(Duration::ZERO)),
            ("50u", Some(Duration::from_micros(45))),
            ("1M", Some(Duration::from_millis(59_950))),
            ("123456789S", None),
            ("-1S", None),
            ("1x", None),
            ("S", None),
            ("", None),
        ] {
            let mut metadata = MetadataMap::new();
            if let Ok(value) = text.parse() {
                metadata.insert("grpc-timeout", value);
            }
            assert_eq!(timeout(&metadata), expected, "{text}");
        }
        assert_eq!(timeout(&MetadataMap::new()), None);
    }
}
