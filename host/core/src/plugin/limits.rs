//! Defines the limits on a guest and their defaults. Enforcing them is left to host/sandbox and to [`crate::answer`].

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const MEBIBYTE: u64 = 1024 * 1024;

/// What one call of a guest may use. Each limit has a default and none can be switched off.
///
/// A value outside the range that the field's comment gives is refused by [`Limits::check`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Wall-clock time of one call in milliseconds, 10 to 10,000. It is checked every 10 ms.
    #[schemars(range(min = 10, max = 10_000))]
    pub call_milliseconds: u64,
    /// Linear memory of one instance in bytes, 1 MiB to 64 MiB.
    #[schemars(range(min = 1_048_576, max = 67_108_864))]
    pub memory_bytes: u64,
    /// Elements in all tables of one instance, 100 to 100,000.
    #[schemars(range(min = 100, max = 100_000))]
    pub table_elements: u64,
    /// Native stack of one call in bytes, 64 KiB to 1 MiB.
    #[schemars(range(min = 65_536, max = 1_048_576))]
    pub stack_bytes: u64,
    /// Bytes that the host may allocate to lift what the guest passes in one call, 64 KiB to 32 MiB.
    #[schemars(range(min = 65_536, max = 33_554_432))]
    pub transfer_bytes: u64,
    /// Bytes of log messages and fields in one call, 0 to 1 MiB; what is over is dropped and counted.
    #[schemars(range(min = 0, max = 1_048_576))]
    pub log_bytes: u64,
    /// Bytes of an answer (all desired objects and the status), 1 KiB to 16 MiB.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub output_bytes: u64,
    /// Desired objects in one answer, 1 to 100,000.
    #[schemars(range(min = 1, max = 100_000))]
    pub output_objects: u64,
    /// `cluster.get`, `cluster.list`, `clock.now` and `clock.reached` calls in one call, 0 to 100,000.
    #[schemars(range(min = 0, max = 100_000))]
    pub reads: u64,
    /// Bytes that `cluster.get` and `cluster.list` may hand to the guest in one call, 0 to 32 MiB.
    #[schemars(range(min = 0, max = 33_554_432))]
    pub read_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            call_milliseconds: 100,
            memory_bytes: 32 * MEBIBYTE,
            table_elements: 10_000,
            stack_bytes: MEBIBYTE / 2,
            transfer_bytes: 16 * MEBIBYTE,
            log_bytes: 64 * 1024,
            output_bytes: 8 * MEBIBYTE,
            output_objects: 10_000,
            reads: 10_000,
            read_bytes: 16 * MEBIBYTE,
        }
    }
}

/// A limit with an unusable value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit {limit} is {value}; it must be between {least} and {most}")]
pub struct LimitError {
    /// The field as a limits file spells it.
    pub limit: &'static str,
    /// The given value.
    pub value: u64,
    /// The smallest valid value.
    pub least: u64,
    /// The largest value that the host can enforce.
    pub most: u64,
}

impl Limits {
    /// The time of one call.
    pub fn call_time(&self) -> Duration {
        Duration::from_millis(self.call_milliseconds)
    }

    /// Refuses values that the sandbox could not enforce.
    pub fn check(&self) -> Result<(), LimitError> {
        let Self {
            call_milliseconds,
            memory_bytes,
            table_elements,
            stack_bytes,
            transfer_bytes,
            log_bytes,
            output_bytes,
            output_objects,
            reads,
            read_bytes,
        } = *self;
        let ranges = [
            ("callMilliseconds", call_milliseconds, 10, 10_000),
            ("memoryBytes", memory_bytes, MEBIBYTE, 64 * MEBIBYTE),
            ("tableElements", table_elements, 100, 100_000),
            ("stackBytes", stack_bytes, 64 * 1024, MEBIBYTE),
            ("transferBytes", transfer_bytes, 64 * 1024, 32 * MEBIBYTE),
            ("logBytes", log_bytes, 0, MEBIBYTE),
            ("outputBytes", output_bytes, 1024, 16 * MEBIBYTE),
            ("outputObjects", output_objects, 1, 100_000),
            ("reads", reads, 0, 100_000),
            ("readBytes", read_bytes, 0, 32 * MEBIBYTE),
        ];
        match ranges
            .into_iter()
            .find(|(_, value, least, most)| !(least..=most).contains(&value))
        {
            None => Ok(()),
            Some((limit, value, least, most)) => Err(LimitError {
                limit,
                value,
                least,
                most,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_ranges() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn an_absurd_limit_is_refused_by_name() {
        let limits = Limits {
            memory_bytes: u64::MAX,
            ..Limits::default()
        };
        let error = limits.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "limit memoryBytes is 18446744073709551615; it must be between 1048576 and 67108864"
        );
    }

    #[test]
    fn the_schema_has_the_same_ranges() {
        let schema = schemars::schema_for!(Limits).to_value();
        let with = |field: &str, value: &serde_json::Value| {
            let mut limits = serde_json::to_value(Limits::default()).unwrap();
            limits[field] = value.clone();
            serde_json::from_value::<Limits>(limits).unwrap().check()
        };
        for (field, range) in schema["properties"].as_object().unwrap() {
            let [least, most] = ["minimum", "maximum"].map(|bound| range[bound].as_u64().unwrap());
            assert!(
                with(field, &least.into()).is_ok() && with(field, &most.into()).is_ok(),
                "{field}"
            );
            assert!(with(field, &(most + 1).into()).is_err(), "{field}");
            assert!(least == 0 || with(field, &(least - 1).into()).is_err(), "{field}");
        }
    }

    #[test]
    fn an_unknown_limit_is_refused() {
        let error = serde_json::from_str::<Limits>(r#"{"memroyBytes": 1}"#).unwrap_err();
        assert!(error.to_string().contains("memroyBytes"), "{error}");
    }
}
