//! The plugin's configuration.

use schemars::JsonSchema;
use serde::Deserialize;

/// Image of resources that name none, unless the configuration has one.
const DEFAULT_IMAGE: &str = "nginx:1.27-alpine";

/// The longest image, in bytes.
const LONGEST_IMAGE: usize = 512;

/// The configuration of reverse-proxy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The nginx image of resources that name none.
    #[schemars(length(min = 1, max = LONGEST_IMAGE), regex(pattern = r"^[!-~]+$"))]
    pub default_image: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_image: DEFAULT_IMAGE.to_owned(),
        }
    }
}

impl Settings {
    /// Checks that a container can have this image.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { default_image: image } = self;
        if image.len() > LONGEST_IMAGE {
            return Err(format!(
                "defaultImage: it has {} bytes; give an image of at most {LONGEST_IMAGE}",
                image.len()
            ));
        }
        if image.is_empty() || !image.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "defaultImage: {image:?} is no name of an image; give one, or leave it out for {DEFAULT_IMAGE}"
            ));
        }
        Ok(())
    }
}
