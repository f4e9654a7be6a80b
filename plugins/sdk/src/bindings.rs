//! Code generated from `wit/plugin.wit`: the types of the contract, the imports and the export macros.
//!
//! Only the two interfaces that every plugin exports are generated here. Each optional interface has a `generate!` of
//! its own in a module below, for an inline world that exports nothing else, and `with` refers to the types here. With
//! `pub_export_macro` the section that describes a world's exports is written where its macro is used, and
//! `wit-component` joins the sections of all worlds: so a component has exactly the exports that its crate declares,
//! and plugins stay unchanged when an interface is added.

wit_bindgen::generate!({
    path: "wit",
    world: "plugin",
    pub_export_macro: true,
    export_macro_name: "export_plugin_world",
    default_bindings_module: "pilothouse_plugin::bindings",
});

pub mod admission {
    //! The types that `defaulter` and `validator` share.

    wit_bindgen::generate!({
        inline: "
            package pilothouse:shared-admission;
            world admission-types {
                import pilothouse:plugin/admission@0.1.0;
            }
        ",
        path: "wit",
        generate_unused_types: true,
        with: {
            "pilothouse:plugin/types@0.1.0": crate::bindings::pilothouse::plugin::types,
            "pilothouse:plugin/admission@0.1.0": generate,
        },
    });
}

pub mod finalizer {
    //! The optional interface `finalizer`.

    wit_bindgen::generate!({
        inline: "
            package pilothouse:optional-finalizer;
            world finalizer-only {
                export pilothouse:plugin/finalizer@0.1.0;
            }
        ",
        path: "wit",
        pub_export_macro: true,
        export_macro_name: "export_finalizer_world",
        default_bindings_module: "pilothouse_plugin::bindings::finalizer",
        with: { "pilothouse:plugin/types@0.1.0": crate::bindings::pilothouse::plugin::types },
    });
}

pub mod defaulter {
    //! The optional interface `defaulter`.

    wit_bindgen::generate!({
        inline: "
            package pilothouse:optional-defaulter;
            world defaulter-only {
                export pilothouse:plugin/defaulter@0.1.0;
            }
        ",
        path: "wit",
        pub_export_macro: true,
        export_macro_name: "export_defaulter_world",
        default_bindings_module: "pilothouse_plugin::bindings::defaulter",
        with: {
            "pilothouse:plugin/types@0.1.0": crate::bindings::pilothouse::plugin::types,
            "pilothouse:plugin/admission@0.1.0": crate::bindings::admission::pilothouse::plugin::admission,
        },
    });
}

pub mod validator {
    //! The optional interface `validator`.

    wit_bindgen::generate!({
        inline: "
            package pilothouse:optional-validator;
            world validator-only {
                export pilothouse:plugin/validator@0.1.0;
            }
        ",
        path: "wit",
        pub_export_macro: true,
        export_macro_name: "export_validator_world",
        default_bindings_module: "pilothouse_plugin::bindings::validator",
        with: {
            "pilothouse:plugin/types@0.1.0": crate::bindings::pilothouse::plugin::types,
            "pilothouse:plugin/admission@0.1.0": crate::bindings::admission::pilothouse::plugin::admission,
        },
    });
}

pub mod converter {
    //! The optional interface `converter`.

    wit_bindgen::generate!({
        inline: "
            package pilothouse:optional-converter;
            world converter-only {
                export pilothouse:plugin/converter@0.1.0;
            }
        ",
        path: "wit",
        pub_export_macro: true,
        export_macro_name: "export_converter_world",
        default_bindings_module: "pilothouse_plugin::bindings::converter",
        with: { "pilothouse:plugin/types@0.1.0": crate::bindings::pilothouse::plugin::types },
    });
}
