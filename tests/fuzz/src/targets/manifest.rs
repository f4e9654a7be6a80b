//! Target `manifest`: the text that a plugin's `describe` returns.

use pilothouse_core::plugin::manifest;

use crate::refused;

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match manifest::parse(text) {
        Ok(checked) => {
            for controller in &checked.manifest.controllers {
                assert!(
                    manifest::is_label(&controller.name),
                    "{:?} is no label",
                    controller.name
                );
                let _ = checked.brings(&controller.kind);
            }
        }
        Err(error) => refused(&error, "manifest"),
    }
}
