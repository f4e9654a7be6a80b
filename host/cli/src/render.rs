//! `pilothouse webhooks`: prints the webhook configurations, for an installer to apply. Needs no cluster.

use anyhow::Context as _;
use clap::Args;
use pilothouse_core::Limits;
use pilothouse_core::admission::configuration::WebhookContext;
use pilothouse_core::admission::render::{WebhookInterfaces, rendered};
use pilothouse_core::plugin::manifest;
use pilothouse_core::plugin::wasi::Wasi;
use serde_json::Value;

use crate::WrongCommandLine;
use crate::compiling;
use crate::options::webhooks::{EndpointArguments, WebhookNames};
use crate::plugins::{CacheArguments, NamedFile, read_document};

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse webhooks app-service.wasm --webhook-service pilothouse-system/pilothouse | kubectl apply -f -
  pilothouse webhooks shop=app-service.wasm --config shop.yaml --webhook-url https://operators.example.com:9443

Name the Service or the URL as the host has it. The host, run with --webhook-configurations installer, adds the certificates.

Exit code: 0, 1 if the component cannot be read or its webhooks cannot be printed, 2 if the command line is wrong.";

/// `pilothouse webhooks`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct WebhooksCommand {
    /// The plugin's component. NAME=FILE overrides the name in its manifest
    #[arg(value_name = "[NAME=]FILE")]
    plugin: NamedFile,

    /// The plugin's configuration, YAML or JSON
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,

    #[command(flatten)]
    endpoint: EndpointArguments,

    #[command(flatten)]
    cache: CacheArguments,
}

impl WebhooksCommand {
    /// Prints the configurations.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            plugin: NamedFile { name, file, .. },
            config,
            endpoint,
            cache,
        } = self;
        let Some(places) = endpoint.places().map_err(WrongCommandLine::of)? else {
            return Err(WrongCommandLine(
                "say how API servers reach the host, as you say it to `pilothouse run`: --webhook-service or --webhook-url".to_owned(),
            )
            .into());
        };
        let config = config.map(|path| read_document(&path)).transpose()?;
        let component = compiling::load(&cache.sandbox()?.granting(Wasi::Inert), &file)?;
        let described = component
            .describe(config.as_ref().map(ToString::to_string).as_deref(), &Limits::default())
            .with_context(|| format!("{} cannot be described", file.display()))?;
        let checked = manifest::parse_configured(&described, config.as_ref())
            .with_context(|| format!("{} cannot be used", file.display()))?;
        let WebhookNames {
            endpoint,
            secret,
            own_namespace,
        } = places;
        let common = WebhookContext {
            plugin: name.as_deref().unwrap_or(&checked.manifest.name),
            endpoint: &endpoint,
            bundle: "",
            own_namespace: &own_namespace,
            host: &secret.label(),
        };
        let optional = component.optional();
        let exports = WebhookInterfaces {
            defaulter: optional.defaulter,
            validator: optional.validator,
            converter: optional.converter,
        };
        let documents = rendered(&common, exports, &checked)
            .with_context(|| format!("the webhooks of {} cannot be printed", file.display()))?;
        if documents.is_empty() {
            eprintln!(
                "note: {} has no webhooks: it exports neither a defaulter nor a validator nor a converter, so API servers have nothing to \
                 call",
                file.display()
            );
        }
        print!("{}", yaml(&documents)?);
        Ok(())
    }
}

/// Concatenates documents.
fn yaml(documents: &[Value]) -> anyhow::Result<String> {
    let mut yaml = String::new();
    for document in documents {
        let text = serde_saphyr::to_string(document).context("cannot write YAML")?;
        yaml.extend(["---\n", text.trim_end(), "\n"]);
    }
    Ok(yaml)
}
