//! The generators that a command names: the same model, another of this machine, or one on a server.

use std::sync::Arc;
use std::time::Duration;

use decoder::generator::{Generator, LocalGenerator, RemoteGenerator};
use models::language_model::{LanguageModel, ModelOptions};
use models::remote::{KEY_VARIABLE, RemoteModel, RemoteOptions, is_address};

use crate::models_at::{self, ModelArguments};
use crate::{interrupt, terminal};

/// Flags that choose who writes the answer and who samples for the reranker.
#[derive(Debug, Clone, clap::Args)]
pub struct GeneratorArguments {
    /// Who writes the answer, if not --model: a model, or a server http(s)://HOST/v1#MODEL
    #[arg(long, value_name = "MODEL|URL")]
    pub generator: Option<String>,
    /// Who samples what the answer might be, if not --model: a model, or a server
    #[arg(long, value_name = "MODEL|URL")]
    pub light_model: Option<String>,
    /// Tokens that prompt and answer may have together on a server, where it does not say so itself
    #[arg(long, value_name = "TOKENS")]
    pub remote_window: Option<usize>,
    /// Environment variable that holds the key for a server
    #[arg(long, value_name = "NAME", default_value = KEY_VARIABLE)]
    pub remote_key: String,
    /// Seconds that a server may take for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub remote_timeout: u64,
}

/// A generator's model, opened; a copy shares it.
#[derive(Clone)]
pub enum Opened<'m> {
    /// The command's own model.
    Own(&'m LanguageModel),
    /// Another model of this machine.
    Local(Arc<LanguageModel>),
    /// A model on a server.
    Remote(Arc<RemoteGenerator<'static>>),
}

impl GeneratorArguments {
    /// Opens the generator that `spec` names, as `--model` would, or a server.
    ///
    /// # Errors
    /// It is not to be had, or the server cannot be reached.
    pub fn open<'m>(&self, spec: &str, arguments: &ModelArguments) -> anyhow::Result<Opened<'m>> {
        if is_address(spec) {
            let options = RemoteOptions {
                key_variable: self.remote_key.clone(),
                timeout: Duration::from_secs(self.remote_timeout),
                interrupted: &interrupt::interrupted,
                ..RemoteOptions::default()
            };
            let model = RemoteModel::connect(spec, options)?;
            // Said once, since texts leave the machine.
            terminal::say(&format!(
                "texts go to the model {} on {}",
                model.name(),
                model.address()
            ));
            let remote = RemoteGenerator::new(model, self.remote_window);
            return Ok(Opened::Remote(Arc::new(remote)));
        }
        arguments.device.check()?;
        let path = models_at::locate(spec, arguments.offline)?;
        let options = ModelOptions {
            device: arguments.device,
            threads: (arguments.jobs > 0).then_some(arguments.jobs),
            ..Default::default()
        };
        Ok(Opened::Local(Arc::new(LanguageModel::open(
            &path, &options,
        )?)))
    }

    /// Opens who writes the answer and who samples, where the flags name them. What is named as the command's own
    /// model, or twice, is not opened again.
    ///
    /// # Errors
    /// As [`GeneratorArguments::open`].
    pub fn open_both<'m>(
        &self,
        arguments: &ModelArguments,
        own: Option<&'m LanguageModel>,
    ) -> anyhow::Result<[Option<Opened<'m>>; 2]> {
        let open = |spec: &String| match own {
            Some(own) if *spec == arguments.model => Ok(Opened::Own(own)),
            _ => self.open(spec, arguments),
        };
        let writer = self.generator.as_ref().map(open).transpose()?;
        let light = if self.light_model == self.generator {
            writer.clone()
        } else {
            self.light_model.as_ref().map(open).transpose()?
        };
        Ok([writer, light])
    }
}

/// What was opened as a generator.
pub fn generator<'a>(opened: &'a Opened<'_>) -> Box<dyn Generator + 'a> {
    let local = |model| Box::new(LocalGenerator::new(model, &interrupt::interrupted));
    match opened {
        Opened::Own(model) => local(model),
        Opened::Local(model) => local(model),
        Opened::Remote(remote) => Box::new(remote.as_ref()),
    }
}
