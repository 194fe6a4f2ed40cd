//! What a column holds.

use schemars::JsonSchema;
use serde::Serialize;

/// Whole numbers beyond this are not all different as JSON numbers: they are taken for names, as long ids are.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What all cells of a column are that are not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Whole numbers.
    Integer,
    /// Numbers.
    Number,
    /// `true` and `false`.
    Boolean,
    /// Dates as `2026-03-01`, alone or with a time after them.
    Date,
    /// Anything else, numbers with leading zeros among it.
    Text,
    /// There are only empty cells.
    Empty,
}

impl Kind {
    /// What these cells are.
    pub fn of<'a>(cells: impl Iterator<Item = &'a str>) -> Self {
        let kinds = cells.map(str::trim).filter(|cell| !cell.is_empty()).map(Self::of_one);
        let both = kinds.reduce(|a, b| match (a, b) {
            (a, b) if a == b => a,
            (Self::Integer | Self::Number, Self::Integer | Self::Number) => Self::Number,
            _ => Self::Text,
        });
        both.unwrap_or(Self::Empty)
    }

    fn of_one(cell: &str) -> Self {
        if number(cell).is_some() {
            if cell.contains(['.', 'e', 'E']) { Self::Number } else { Self::Integer }
        } else if cell.eq_ignore_ascii_case("true") || cell.eq_ignore_ascii_case("false") {
            Self::Boolean
        } else if is_date(cell) {
            Self::Date
        } else {
            Self::Text
        }
    }

    /// Whether it is numbers.
    pub fn is_numeric(self) -> bool {
        matches!(self, Self::Integer | Self::Number)
    }
}

/// A cell as a number: `-3`, `0.5`, `1e6`. None for what only looks like one: `007`, `1,000`, `inf`.
pub fn number(cell: &str) -> Option<f64> {
    let cell = cell.trim();
    let digits = cell.strip_prefix(['-', '+']).unwrap_or(cell);
    let leads = digits.bytes().next().is_some_and(|first| first.is_ascii_digit());
    let padded = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    if !leads || padded || !digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    let whole = digits.bytes().all(|b| b.is_ascii_digit());
    cell.parse().ok().filter(|number: &f64| number.is_finite() && (!whole || number.abs() <= EXACT))
}

/// Whether it begins with a day of the calendar, and has nothing or a time after it.
fn is_date(cell: &str) -> bool {
    let Some((day, rest)) = cell.split_at_checked(10) else { return false };
    let mut parts = day.splitn(3, '-').map(|part| part.bytes().all(|b| b.is_ascii_digit()).then_some(part));
    let (Some(Some(year)), Some(Some(month)), Some(Some(date))) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let (Ok(year), Ok(month), Ok(date)) = (year.parse::<u16>(), month.parse::<u8>(), date.parse::<u8>()) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u8::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    let time = |b: u8| matches!(b, b'0'..=b'9' | b':' | b'.' | b'+' | b'-' | b'Z' | b'T' | b' ');
    let bounded = rest.is_empty() || (rest.starts_with(['T', ' ']) && rest.contains(':') && rest.bytes().all(time));
    (1..=days).contains(&date) && bounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_what_all_its_cells_are() {
        for (cells, kind) in [
            (vec!["1", "", "-2", " 3 "], Kind::Integer),
            (vec!["1", "2.5", "1e3"], Kind::Number),
            (vec!["true", "FALSE"], Kind::Boolean),
            (vec!["2024-02-29", "2026-03-01T10:00:00Z", "2026-03-01 10:00"], Kind::Date),
            (vec!["1", "true"], Kind::Text),
            (vec!["", " "], Kind::Empty),
            (vec![], Kind::Empty),
        ] {
            assert_eq!(Kind::of(cells.iter().copied()), kind, "{cells:?}");
        }
    }

    #[test]
    fn what_only_looks_like_a_number_or_a_date_is_text() {
        for cell in ["007", "1,000", "inf", "NaN", "1e999", ".5", "0x10", "90071992547409921", "-", "1-2"] {
            assert_eq!((number(cell), Kind::of([cell].into_iter())), (None, Kind::Text), "{cell}");
        }
        for cell in ["2025-02-29", "2026-13-01", "2026-00-10", "2026-1-01", "2026-03-01x", "2026-03-01 x", "20260301-1"]
        {
            assert_eq!(Kind::of([cell].into_iter()), Kind::Text, "{cell}");
        }
        assert_eq!(number("0.5"), Some(0.5));
        assert_eq!(number("+3"), Some(3.0));
    }
}
