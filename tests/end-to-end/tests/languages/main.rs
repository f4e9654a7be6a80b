//! The operator of plugins/examples in each language: its own tests, the scenario that all of them share, and what becomes of
//! an exception. `cargo xtask test --only external` builds the components, and leaves out the languages whose tools are missing.

mod support;

mod external {
    /// The tests of one language.
    macro_rules! language {
        ($module:ident, $folder:literal, $wasi:ident, $tests:expr) => {
            mod $module {
                use pilothouse_core::wasi::Wasi;

                use crate::support;

                #[test]
                fn its_own_tests_pass() {
                    support::run_tests($folder, &$tests);
                }

                #[tokio::test(start_paused = true)]
                async fn the_scenario_of_all_languages_holds() {
                    support::play($folder, "website.wasm", Wasi::$wasi, "website.yaml").await;
                }

                #[tokio::test(start_paused = true)]
                async fn what_it_throws_reaches_the_condition() {
                    support::play($folder, "throwing.wasm", Wasi::$wasi, "throwing.yaml").await;
                }

                #[test]
                fn its_component_imports_of_wasi_what_its_readme_says() {
                    support::check_grant($folder, Wasi::$wasi);
                }
            }
        };
    }

    language!(javascript, "website-js", None, ["npm", "test"]);
    language!(python, "website-python", None, ["make", "test"]);
    language!(golang, "website-go", Inert, ["go", "test", "./..."]);
    language!(c, "website-c", None, ["make", "test"]);
}
