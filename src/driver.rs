//! Versions of NVIDIA's driver: `535.104.05`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A driver version: numbers, compared as numbers, shown as written. (`470.82.01` and `470.82.1`
/// are equal; NVIDIA writes the first.)
#[derive(Clone, Debug)]
pub struct Driver {
    numbers: Vec<u32>,
    text: String,
}

/// What was not a driver version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a driver version is numbers with dots between them, such as 535.104.05")]
pub struct NotADriver;

impl FromStr for Driver {
    type Err = NotADriver;

    fn from_str(text: &str) -> Result<Self, NotADriver> {
        let number = |part: &str| match part.bytes().all(|byte| byte.is_ascii_digit()) {
            true => part.parse().map_err(|_| NotADriver),
            false => Err(NotADriver),
        };
        let numbers = text.split('.').map(number).collect::<Result<_, _>>()?;
        Ok(Driver { numbers, text: text.to_owned() })
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Driver {
    /// Without trailing zeros: `535` is `535.0`.
    fn key(&self) -> &[u32] {
        let end = self.numbers.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1);
        &self.numbers[..end]
    }
}

impl PartialEq for Driver {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Driver {}

impl PartialOrd for Driver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Driver {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_compare_as_numbers_and_show_as_written() {
        let driver = |text: &str| text.parse::<Driver>();
        for (old, new) in [("525.60.13", "525.105.17"), ("525", "525.60.13"), ("99.9", "100")] {
            assert_eq!(
                driver(old).ok().partial_cmp(&driver(new).ok()),
                Some(Ordering::Less),
                "{old} {new}"
            );
        }
        assert_eq!(driver("535.0"), driver("535"));
        assert_eq!(driver("470.82.01"), driver("470.82.1"));
        assert_eq!(driver("470.82.01").map(|driver| driver.to_string()), Ok("470.82.01".into()));
        for odd in ["", ".", "450.", "v450", "450.80rc1", "+450", "99999999999"] {
            assert_eq!(driver(odd), Err(NotADriver), "{odd}");
        }
    }
}
