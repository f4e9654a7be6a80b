//! Owns what is generated from `wit/plugin.wit`: the types of the contract, the imports and the export macro.
//!
//! Only the two interfaces that every plugin exports are generated here. An optional interface, `finalizer` say, gets a
//! `generate!` of its own in a module beside this one: for an inline world that exports nothing else, with a macro of its
//! own, and `with` leading to the types here. With `pub_export_macro` the section that describes a world's exports is
//! written where its macro is used, and `wit-component` joins the sections of all worlds: so a component exports exactly
//! what its crate asked for, and plugins stay as they are when an interface is added.

wit_bindgen::generate!({
    path: "../../wit",
    world: "plugin",
    pub_export_macro: true,
    export_macro_name: "export_plugin_world",
    default_bindings_module: "pilothouse_plugin::bindings",
});
