//! Optional interfaces that a component exports.

/// Which of the optional interfaces a plugin exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each interface is there or not, whatever the others are"
)]
pub struct Optional {
    /// It has something to do before an object goes.
    pub finalizer: bool,
    /// It fills in defaults.
    pub defaulter: bool,
    /// It validates.
    pub validator: bool,
    /// It converts between versions.
    pub converter: bool,
}
