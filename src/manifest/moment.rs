//! Moments in time, as env.toml writes them and as sources count them. No clock is asked.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use uv_normalize::PackageName as DistName;

const DAY_MS: i64 = 86_400_000;

/// The end of what is looked at, from a date or an RFC 3339 time.
///
/// A date means all of that day, in UTC: what is from before the day after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What is from this millisecond after the epoch on, or later, is left out.
    pub millis: i64,
    /// As written: a date, or a time in UTC.
    pub written: String,
}

/// A text that is no [`Moment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MomentError {
    /// Not of either form.
    #[error("it is neither `YYYY-MM-DD` nor an RFC 3339 time with its offset")]
    Form,
    /// There is no such day, hour or minute.
    #[error("there is no such day or time")]
    Range,
}

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        let bytes = text.as_bytes();
        let day = days(bytes.get(..10).ok_or(MomentError::Form)?)?;
        if bytes.len() == 10 {
            return Ok(Moment { millis: (day + 1) * DAY_MS, written: text.to_owned() });
        }
        if !matches!(bytes[10], b'T' | b't' | b' ') {
            return Err(MomentError::Form);
        }
        let clock = bytes.get(11..19).ok_or(MomentError::Form)?;
        let (hour, minute) = (number(&clock[..2])?, number(&clock[3..5])?);
        let second = number(&clock[6..])?;
        if clock[2] != b':' || clock[5] != b':' {
            return Err(MomentError::Form);
        }
        if hour > 23 || minute > 59 || second > 59 {
            return Err(MomentError::Range);
        }
        let mut rest = &bytes[19..];
        let mut fraction = 0;
        if let [b'.', digits @ ..] = rest {
            let count = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
            if count == 0 {
                return Err(MomentError::Form);
            }
            let three = digits[..count].iter().chain(std::iter::repeat(&b'0')).take(3);
            fraction = three.fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
            rest = &digits[count..];
        }
        let offset = match rest {
            b"Z" | b"z" => 0,
            [sign @ (b'+' | b'-'), hours @ .., b':', m1, m2] if hours.len() == 2 => {
                let (hours, minutes) = (number(hours)?, number(&[*m1, *m2])?);
                if hours > 23 || minutes > 59 {
                    return Err(MomentError::Range);
                }
                (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
            }
            _ => return Err(MomentError::Form),
        };
        let millis = day * DAY_MS + ((hour * 60 + minute - offset) * 60 + second) * 1000 + fraction;
        Ok(Moment { millis, written: time_of(millis) })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl Moment {
    /// A moment that a source tells, as exactly as it has to be told beside this one.
    pub fn beside(&self, millis: i64) -> String {
        if self.written.len() == 10 { date_of(millis) } else { time_of(millis) }
    }
}

fn number(digits: &[u8]) -> Result<i64, MomentError> {
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Ok(number * 10 + i64::from(digit - b'0')),
        _ => Err(MomentError::Form),
    })
}

/// Days from the epoch to `YYYY-MM-DD`, in the Gregorian calendar.
fn days(date: &[u8]) -> Result<i64, MomentError> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = date else { return Err(MomentError::Form) };
    let (year, month) = (number(&[*y1, *y2, *y3, *y4])?, number(&[*m1, *m2])?);
    let day = number(&[*d1, *d2])?;
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return Err(MomentError::Range);
    }
    let before: i64 = (1..month).map(|month| days_in(year, month)).sum();
    Ok(days_before(year) - days_before(1970) + before + day - 1)
}

/// Days from year 0 to the start of a year.
fn days_before(year: i64) -> i64 {
    let last = year - 1;
    year * 365 + last.div_euclid(4) - last.div_euclid(100) + last.div_euclid(400)
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `YYYY-MM-DD`, in UTC.
fn date_of(millis: i64) -> String {
    let day = millis.div_euclid(DAY_MS) + days_before(1970);
    // The mean year is 365.2425 days; the guess is off by one at most.
    let mut year = day * 400 / 146_097;
    while days_before(year) > day {
        year -= 1;
    }
    while days_before(year + 1) <= day {
        year += 1;
    }
    let mut rest = day - days_before(year);
    let mut month = 1;
    while rest >= days_in(year, month) {
        rest -= days_in(year, month);
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", rest + 1)
}

/// `YYYY-MM-DDThh:mm:ssZ`, with milliseconds where there are any.
fn time_of(millis: i64) -> String {
    let of_day = millis.rem_euclid(DAY_MS);
    let (seconds, fraction) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:03}") };
    format!("{}T{hour:02}:{minute:02}:{second:02}{fraction}Z", date_of(millis))
}

/// `exclude-newer` and `exclude-newer-package` of `[env]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludeNewer {
    /// For every package; `None`: nothing is left out.
    pub all: Option<Moment>,
    /// For packages of these names (as PEP 503 normalizes them) instead; `None`: nothing of them
    /// is left out.
    pub packages: BTreeMap<String, Option<Moment>>,
}

impl ExcludeNewer {
    /// What holds for the package of a name, conda package or distribution.
    pub fn of(&self, name: &str) -> Option<&Moment> {
        match self.packages.is_empty() {
            true => self.all.as_ref(),
            false => match self.packages.get(&Self::key(name)) {
                Some(own) => own.as_ref(),
                None => self.all.as_ref(),
            },
        }
    }

    /// The name by which a package is looked up.
    pub fn key(name: &str) -> String {
        DistName::from_str(name).map_or_else(|_| name.to_lowercase(), |name| name.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_the_whole_day_and_a_time_is_exact() {
        let millis = |text: &str| text.parse::<Moment>().unwrap().millis;
        assert_eq!(millis("1970-01-01"), DAY_MS);
        assert_eq!(millis("2024-05-01"), 1_714_608_000_000);
        assert_eq!(millis("2024-05-02T00:00:00Z"), 1_714_608_000_000);
        assert_eq!(millis("2024-05-02t02:30:00+02:30"), 1_714_608_000_000);
        assert_eq!(millis("2024-05-01 16:00:00.1239-08:00"), 1_714_608_000_123);
        assert_eq!(millis("2000-02-29"), 951_868_800_000);
        assert_eq!(millis("1969-12-31T23:59:59.5Z"), -500);
        let time: Moment = "2024-05-02T02:30:00+02:30".parse().unwrap();
        assert_eq!(time.to_string(), "2024-05-02T00:00:00Z");
        assert_eq!(time.beside(1_714_608_000_001), "2024-05-02T00:00:00.001Z");
        let date: Moment = "2024-05-01".parse().unwrap();
        assert_eq!(date.beside(1_714_607_999_999), "2024-05-01");
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "2024",
            "2024-5-1",
            "05/01/2024",
            "2024-05-01T",
            "2024-05-01T00:00:00",
            "2024-05-01T00:00Z",
            "2024-05-01T00:00:00.Z",
            "2024-05-01T00:00:00+0200",
            "now",
            "2024-05-01T00:00:00ZZ",
            "2024-05-01x",
            "２024-05-0",
        ] {
            assert_eq!(text.parse::<Moment>(), Err(MomentError::Form), "{text}");
        }
        for text in [
            "2023-02-29",
            "1900-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-04-31",
            "2024-01-00",
            "2024-05-01T24:00:00Z",
            "2024-05-01T00:60:00Z",
            "2024-05-01T00:00:00+24:00",
        ] {
            assert_eq!(text.parse::<Moment>(), Err(MomentError::Range), "{text}");
        }
    }

    proptest::proptest! {
        /// Days follow each other, and what is written is read again.
        #[test]
        fn dates_and_days_agree(day in -700_000_i64..2_900_000) {
            let (today, tomorrow) = (date_of(day * DAY_MS), date_of((day + 1) * DAY_MS - 1));
            proptest::prop_assert_eq!(&today, &tomorrow);
            proptest::prop_assert_eq!(days(today.as_bytes()), Ok(day));
            let again: Moment = time_of(day * DAY_MS + 1234).parse().unwrap();
            proptest::prop_assert_eq!(again.millis, day * DAY_MS + 1234);
        }
    }
}
