//! Rules of the CustomResourceDefinitions with constants. Only a test uses them, so they are not in the component.

#[test]
fn generated_crds_are_what_the_types_give() {
    let folder = env!("CARGO_MANIFEST_DIR");
    pilothouse_plugin::crd::keep::<crate::ReverseProxy>(folder);
    pilothouse_plugin::crd::keep::<crate::TcpReverseProxy>(folder);
}

#[test]
fn generated_configuration_schema_is_what_the_type_gives() {
    pilothouse_plugin::crd::keep_configuration::<crate::Settings>(env!("CARGO_MANIFEST_DIR"));
}
