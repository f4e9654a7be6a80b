//! Moments: milliseconds since 1970 in UTC, and their RFC 3339 form as Kubernetes writes it.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in milliseconds since 1970-01-01T00:00:00Z. The sandbox has no clock of its own: a plugin reads the
/// time from the [`Cluster`](crate::Cluster), so that the host knows that the answer depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Returns the moment so many milliseconds after the beginning of 1970.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns milliseconds since the beginning of 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Parses an RFC 3339 timestamp such as `2026-05-09T07:30:30Z`, with or without a fraction, in UTC or with an offset. None if it is
    /// no such text, or before 1970.
    ///
    /// ```
    /// use pilothouse_plugin::Moment;
    ///
    /// let made = Moment::parse("2024-02-29T12:00:00.5Z").unwrap();
    /// assert_eq!(made.as_millis(), 1_709_208_000_500);
    /// assert_eq!(made.to_string(), "2024-02-29T12:00:00.500Z");
    /// assert_eq!(Moment::parse("2024-02-29T20:00:00.5+08:00"), Some(made));
    /// assert_eq!(Moment::parse("yesterday"), None);
    /// ```
    pub fn parse(timestamp: &str) -> Option<Self> {
        let (date, time) = timestamp.split_once(['T', 't'])?;
        let (time, offset) = match time.strip_suffix(['Z', 'z']) {
            Some(time) => (time, 0),
            None => with_offset(time)?,
        };
        let [year, month, day] = numbers(date, '-')?;
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let [hour, minute, second] = numbers(time, ':')?;
        let valid = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_of_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60;
        if !valid || fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let millis: u64 = format!("{fraction:0<3}")[..3].parse().ok()?;
        let days = (1970..year).map(days_of_year).sum::<u64>()
            + (1..month).map(|month| days_of_month(year, month)).sum::<u64>()
            + (day - 1);
        let local = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis;
        local.checked_add_signed(-offset * 60_000).map(Self)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// Returns the time since `earlier`; zero if that is not earlier.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut days, of_day) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let mut year = 1970;
        while days >= days_of_year(year) {
            days -= days_of_year(year);
            year += 1;
        }
        let mut month = 1;
        while days >= days_of_month(year, month) {
            days -= days_of_month(year, month);
            month += 1;
        }
        let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
        write!(
            formatter,
            "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}",
            days + 1
        )?;
        match of_day % 1000 {
            0 => write!(formatter, "Z"),
            millis => write!(formatter, ".{millis:03}Z"),
        }
    }
}

/// Returns a time of day, and the minutes by which its offset is east of UTC.
fn with_offset(text: &str) -> Option<(&str, i64)> {
    let (time, sign, offset) = match text.rsplit_once('+') {
        Some((time, offset)) => (time, 1, offset),
        None => text.rsplit_once('-').map(|(time, offset)| (time, -1, offset))?,
    };
    let [hours, minutes] = numbers(offset, ':')?;
    let is_offset = offset.len() == "08:00".len() && hours < 24 && minutes < 60;
    is_offset.then(|| (time, sign * (hours * 60 + minutes).cast_signed()))
}

/// Returns exactly so many numbers, written with digits only.
fn numbers<const COUNT: usize>(text: &str, separator: char) -> Option<[u64; COUNT]> {
    let mut parts = text.split(separator).map(|part| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse().ok()).flatten()
    });
    let mut read = [0; COUNT];
    for number in &mut read {
        *number = parts.next()??;
    }
    parts.next().is_none().then_some(read)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Moment;

    #[test]
    fn writes_what_it_reads() {
        for timestamp in [
            "1970-01-01T00:00:00Z",
            "2000-02-29T23:59:59Z",
            "2026-12-31T00:00:01Z",
            "2100-03-01T06:07:08Z",
        ] {
            assert_eq!(Moment::parse(timestamp).unwrap().to_string(), timestamp);
        }
        assert_eq!(
            Moment::parse("2001-09-09T01:46:40Z"),
            Some(Moment::from_millis(1_000_000_000_000))
        );
    }

    #[test]
    fn reads_every_offset() {
        for (timestamp, utc) in [
            ("2026-05-09T07:30:30+08:00", "2026-05-08T23:30:30Z"),
            ("2026-12-31T23:30:00-01:00", "2027-01-01T00:30:00Z"),
            ("2026-05-09T07:30:30.250+05:45", "2026-05-09T01:45:30.250Z"),
            ("2026-05-09T07:30:30+00:00", "2026-05-09T07:30:30Z"),
            ("2026-05-09T07:30:30-00:00", "2026-05-09T07:30:30Z"),
            ("2026-05-09t07:30:30z", "2026-05-09T07:30:30Z"),
            ("1970-01-01T08:00:00+08:00", "1970-01-01T00:00:00Z"),
        ] {
            let read = Moment::parse(timestamp).unwrap_or_else(|| panic!("{timestamp}"));
            assert_eq!(read.to_string(), utc, "{timestamp}");
        }
    }

    #[test]
    fn refuses_what_is_no_moment() {
        for text in [
            "",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T24:00:00Z",
            "2026-01-01T0:0Z",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "99999999-01-01T00:00:00Z",
            "2026-01-01T00:00:00+8:00",
            "2026-01-01T00:00:00+0800",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+08:60",
            "2026-01-01T00:00:00Z+08:00",
            "1970-01-01T07:59:59+08:00",
            "2026-01-01T00:00:00+08:00Z",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }

    #[test]
    fn counts_forwards_and_backwards() {
        let start = Moment::from_millis(1000);
        assert_eq!(start + Duration::from_secs(2), Moment::from_millis(3000));
        assert_eq!(Moment::from_millis(3000) - start, Duration::from_secs(2));
        assert_eq!(start - Moment::from_millis(3000), Duration::ZERO);
        assert_eq!(start + Duration::MAX, Moment::from_millis(u64::MAX));
    }
}
