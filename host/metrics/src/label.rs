//! Values of labels: text that cannot break out of its quotes, and enums with a name for each value.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// A label's value, escaped for its quotes when it is made, because prometheus-client 0.25 does not escape, and
/// manifests and API servers choose names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelText(Arc<str>);

impl From<&str> for LabelText {
    fn from(text: &str) -> Self {
        if !text.contains(['\\', '"', '\n']) {
            return Self(text.into());
        }
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        Self(escaped.into())
    }
}

impl EncodeLabelValue for LabelText {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(&self.0)
    }
}

/// An enum with a label's value for each variant.
macro_rules! closed_set {
    ($(#[$about:meta])* $name:ident { $($(#[$meaning:meta])* $variant:ident = $value:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$meaning])* $variant,)+
        }

        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the value of the label.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $value,)+
                }
            }
        }

        impl prometheus_client::encoding::EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>) -> std::fmt::Result {
                std::fmt::Write::write_str(encoder, self.as_str())
            }
        }
    };
}

pub(crate) use closed_set;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_between_its_quotes() {
        let text = |text: &str| LabelText::from(text).0.to_string();
        assert_eq!(text("apps"), "apps");
        assert_eq!(text("a\"} 1\nb\\"), "a\\\"} 1\\nb\\\\");
    }
}
