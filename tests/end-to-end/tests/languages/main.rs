//! The operator of plugins/examples in each language: its own tests, the scenario that all of them share, and what becomes of
//! an exception. `cargo xtask test --only external` builds the components, and leaves out the languages whose tools are missing.

mod support;

mod external {
    /// The tests of one language.
    macro_rules! language {
        ($module:ident, $folder:literal, $tests:expr $(, $with_wasi:ident)? $(; $fatal:ident)?) => {
            mod $module {
                use pilothouse_core::plugin::wasi::Wasi;

                use crate::support;

                #[test]
                fn its_own_tests_pass() {
                    for command in $tests {
                        support::run_tests($folder, command);
                    }
                }

                #[tokio::test(start_paused = true)]
                async fn the_scenario_of_all_languages_holds() {
                    support::play($folder, "website.wasm", Wasi::None, "website.yaml").await;
                }

                #[test]
                fn what_it_prints_goes_to_the_log() {
                    let lines = support::log_of_throwing($folder);
                    assert!(lines.iter().any(|line| line.starts_with("Info: printed")), "{lines:?}");
                }

                #[tokio::test(start_paused = true)]
                async fn what_it_throws_reaches_the_condition() {
                    support::play($folder, "throwing.wasm", Wasi::None, "throwing.yaml").await;
                }
                $(
                /// Built without stubs.
                #[tokio::test(start_paused = true)]
                async fn $with_wasi() {
                    support::is_refused_without_a_grant($folder, "wasi.wasm");
                    support::play($folder, "wasi.wasm", Wasi::Inert, "website.yaml").await;
                }
                )?
                $(
                /// Its runtime gives up, from which nothing recovers.
                #[tokio::test(start_paused = true)]
                async fn $fatal() {
                    support::play($folder, "fatal.wasm", Wasi::None, "fatal.yaml").await;
                }
                )?
            }
        };
    }

    language!(
        javascript,
        "website-js",
        [&["npm", "test"][..], &["npm", "run", "check"]],
        the_scenario_holds_with_the_inert_set_of_wasi
    );
    language!(
        python,
        "website-python",
        [&["make", "test"]],
        the_scenario_holds_with_the_inert_set_of_wasi
    );
    language!(
        golang,
        "website-go",
        [&["go", "test", "./..."]];
        why_the_runtime_gives_up_reaches_the_condition
    );
    language!(c, "website-c", [&["make", "test"]]);
}
