//! The demo's input: real flights, from the program itself.
//!
//! Source and licence stand in `data/README.md` of this crate.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;

use crate::exit::{Exit, Failure};

const PACKED: &[u8] = include_bytes!("../../../data/flights-2013-60000.csv.gz");
/// The column that becomes the key.
const KEY: &str = "carrier";

/// A flight: its carrier, which is the key, and the whole row, which is the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) carrier: Bytes,
    pub(super) row: Bytes,
}

/// Rows in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct Flights {
    rows: Vec<Flight>,
}

impl Flights {
    /// The first rows of the excerpt.
    pub(super) fn load(rows: usize) -> Result<Self, Failure> {
        let mut text = Vec::new();
        GzDecoder::new(PACKED)
            .read_to_end(&mut text)
            .map_err(|error| Failure::io("the flights in this program", &error))?;
        Self::parse(&Bytes::from(text), rows)
    }

    fn parse(text: &Bytes, count: usize) -> Result<Self, Failure> {
        let damaged = || Failure::new(Exit::Failed, "the flights in this program are damaged");
        let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let header = lines.next().ok_or_else(damaged)?;
        let column = fields(header).position(|field| field == KEY.as_bytes()).ok_or_else(damaged)?;
        let rows: Option<Vec<_>> = lines
            .take(count)
            .map(|line| {
                let carrier = fields(line).nth(column)?;
                Some(Flight { carrier: text.slice_ref(carrier), row: text.slice_ref(line) })
            })
            .collect();
        let rows = rows.filter(|rows| rows.len() == count).ok_or_else(damaged)?;
        Ok(Self { rows })
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Flight> {
        self.rows.get(index)
    }

    pub(super) fn rows(&self) -> &[Flight] {
        &self.rows
    }

    /// Bytes of keys and values of the first `count` rows.
    pub(super) fn bytes(&self, count: usize) -> u64 {
        self.rows.iter().take(count).map(|flight| (flight.carrier.len() + flight.row.len()) as u64).sum()
    }
}

/// The file has no quotes, so a comma always ends a field.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excerpt_has_all_its_rows_with_carriers() {
        let flights = Flights::load(60_000).expect("the excerpt is whole");
        assert_eq!(flights.len(), 60_000);
        assert_eq!(flights.rows()[0].carrier, "UA");
        assert!(flights.rows()[0].row.starts_with(b"2013,1,1,517,"));
        assert!(flights.rows().iter().all(|flight| flight.carrier.len() == 2));
        assert!(!PACKED.contains(&b'"') || flights.rows().iter().all(|flight| !flight.row.contains(&b'"')));
    }

    #[test]
    fn fewer_rows_than_asked_for_are_damage() {
        let text = Bytes::from_static(b"a,carrier\n1,UA\n2,DL\n");
        assert_eq!(Flights::parse(&text, 2).expect("two rows").rows()[1].carrier, "DL");
        assert!(Flights::parse(&text, 3).is_err());
        assert!(Flights::parse(&Bytes::from_static(b"a,b\n1,2\n"), 1).is_err());
        assert!(Flights::parse(&Bytes::from_static(b"a,carrier\n1\n"), 1).is_err());
    }
}
