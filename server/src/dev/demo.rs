//! The demo: a sample of real flights, written through the client and read back.

use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, stream};
use trefoil_client::{Client, Consistency, Write};

use super::DevError;

/// The sample; its first line names the columns. See tests/data/README.md.
const SAMPLE: &str = include_str!("../../../tests/data/flights-sample.csv");

/// The keyspace and table it goes into.
const SCHEMA: &str = include_str!("../../../tests/data/flights.cql");

const TABLE: &str = "demo.flights";

/// What stands for a value that is missing.
const MISSING: &str = "NA";

/// Writes under way at once.
const IN_FLIGHT: usize = 256;

/// Columns that hold text; `time_hour` is an instant, all others are whole numbers.
const TEXTS: [&str; 4] = ["carrier", "tailnum", "origin", "dest"];

/// Writes the sample at QUORUM, reads it back at QUORUM, and says how it went.
pub(super) async fn run(endpoints: &[String]) -> Result<String, DevError> {
    let client = Client::builder(endpoints.to_vec()).consistency(Consistency::Quorum).connect().await?;
    for statement in trefoil::cql::parse(SCHEMA)? {
        client.apply(&statement).await?;
    }
    let started = Instant::now();
    let mut lines = SAMPLE.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let writes = lines.map(|line| flight(client.insert(TABLE), &columns, line).send());
    let written = stream::iter(writes).buffer_unordered(IN_FLIGHT).try_fold(0_u64, async |sum, _| Ok(sum + 1)).await?;
    let write_ms = started.elapsed().as_millis();
    let started = Instant::now();
    let read = client.select(TABLE).columns(["origin"]).stream().try_fold(0_u64, async |sum, _| Ok(sum + 1)).await?;
    let read_ms = started.elapsed().as_millis();
    if read != written {
        return Err(DevError::Lost { written, read });
    }
    Ok(format!(
        "demo: {written} flights written to {TABLE} at QUORUM in {write_ms} ms, {read} read back at QUORUM in {read_ms} ms"
    ))
}

/// One line of the sample, which has no quotes, as a row.
fn flight(write: Write, columns: &[&str], line: &str) -> Write {
    columns.iter().zip(line.split(',')).filter(|(_, text)| *text != MISSING).fold(write, |write, (column, text)| {
        match *column {
            column if TEXTS.contains(&column) => write.value(column, text),
            "time_hour" => write.value("time_hour", instant_ms(text)),
            column => write.value(column, text.parse::<i64>().ok()),
        }
    })
}

/// Milliseconds since 1970 of an instant such as `2013-01-01T10:00:00Z`, whose fields have fixed places.
fn instant_ms(text: &str) -> Option<i64> {
    let field = |at: std::ops::Range<usize>| text.get(at)?.parse::<i64>().ok();
    let (year, month, day) = (field(0..4)?, field(5..7)?, field(8..10)?);
    let (hour, minute, second) = (field(11..13)?, field(14..16)?, field(17..19)?);
    // Years begin in March, so that the day that is not always there comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;

    use trefoil::model::ddl::DdlStatement;

    use super::*;

    #[test]
    fn instants_are_counted_from_1970() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-03-01T00:00:01Z", 5_097_601),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2013-12-31T23:59:59Z", 1_388_534_399),
        ] {
            assert_eq!(instant_ms(text), Some(seconds * 1_000), "{text}");
        }
        assert_eq!(instant_ms("NA"), None);
    }

    /// The count that is read back is that of the lines only if no two lines are one flight, and if every field fits.
    #[test]
    fn the_sample_has_one_line_for_each_flight_and_no_field_is_lost() {
        let mut lines = SAMPLE.lines();
        let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
        let mut flights = BTreeSet::new();
        for line in lines {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!(fields.len(), columns.len(), "{line}");
            for (column, text) in columns.iter().zip(&fields).filter(|(_, text)| **text != MISSING) {
                let fits = TEXTS.contains(column) || instant_ms(text).is_some() || text.parse::<i32>().is_ok();
                assert!(fits, "{column}: {line}");
            }
            let key = ["origin", "year", "month", "day", "sched_dep_time", "carrier", "flight"];
            let key = key.map(|name| fields[columns.iter().position(|column| *column == name).unwrap()]);
            assert!(flights.insert(key), "{line}");
        }
        assert_eq!(flights.len(), 3_007);
    }

    #[test]
    fn the_schema_has_the_columns_of_the_sample() {
        let statements = trefoil::cql::parse(SCHEMA).unwrap();
        let DdlStatement::CreateTable(create) = &statements[1] else { panic!("a table is made second") };
        let mut made: Vec<&str> = create.columns.iter().map(|column| column.name.as_str()).collect();
        let mut given: Vec<&str> = SAMPLE.lines().next().unwrap().split(',').collect();
        made.sort_unstable();
        given.sort_unstable();
        assert_eq!(made, given);
    }
}
