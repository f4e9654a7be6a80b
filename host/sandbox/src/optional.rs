//! Optional interfaces that a component exports.

/// Optional interfaces that a plugin exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each interface is there or not, whatever the others are"
)]
pub struct Optional {
    /// Set if it runs code before an object is deleted.
    pub finalizer: bool,
    /// Set if it fills in defaults.
    pub defaulter: bool,
    /// Set if it validates.
    pub validator: bool,
    /// Set if it converts between versions.
    pub converter: bool,
}
