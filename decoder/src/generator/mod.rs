//! Generators: what writes a text for a conversation, whether a model of this machine or a server.

mod local;
mod remembering;
mod remote;

use models::ModelError;
use models::chat::Message;
use models::remote::RemoteError;
use models::sampling::Sampling;

use crate::session::Cost;

pub use local::LocalGenerator;
pub use remembering::RememberingGenerator;
pub use remote::RemoteGenerator;

/// Why a generator wrote nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GeneratorError {
    /// The model of this machine failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The server refused or could not be reached.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The prompt and what is to be written do not fit into the model's window.
    #[error(
        "the prompt of {prompt} tokens and {output} to be written do not fit into the {limit} tokens of {model}; give it less (a smaller budget, fewer chunks) or cut it with --truncate middle"
    )]
    WindowFull {
        /// The model.
        model: String,
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that were to be written.
        output: usize,
        /// Tokens the model can hold.
        limit: usize,
    },
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl GeneratorError {
    /// Whether this request is to blame, since it does not fit into the window, and the next may well be answered.
    pub fn is_of_question(&self) -> bool {
        let full = matches!(self, Self::Model(ModelError::ContextFull { .. }));
        full || matches!(self, Self::WindowFull { .. })
    }
}

/// What is asked of a generator.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The conversation so far; the generator writes the next turn.
    pub messages: &'a [Message],
    /// Most tokens of a text.
    pub most_tokens: usize,
    /// How tokens are chosen; texts of one request are sequences of one seed.
    pub sampling: Sampling,
    /// How many texts are wanted.
    pub samples: usize,
}

/// One text that was written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Written {
    /// The text, white space at both ends removed.
    pub text: String,
    /// Its tokens; what the server says, for a remote one.
    pub tokens: usize,
    /// Whether the model ended it; else the limit did.
    pub ended: bool,
}

/// What a generator did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Output {
    /// The texts, as many as were asked for.
    pub written: Vec<Written>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Passes and positions; a server counts as one pass a request.
    pub cost: Cost,
}

/// Writes texts for conversations.
pub trait Generator: Send + Sync {
    /// The model's name.
    fn name(&self) -> &str;

    /// Tokens that prompt and text may have together, where known.
    fn context_length(&self) -> Option<usize>;

    /// Tokens of a text; an estimate where the tokenizer is elsewhere.
    fn count_tokens(&self, text: &str) -> usize;

    /// Writes `request.samples` texts. With one sample `on_text` is given every piece as it comes.
    ///
    /// # Errors
    /// See [`GeneratorError`].
    fn generate(
        &self,
        request: &Request<'_>,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Output, GeneratorError>;

    /// Which of `labels` the generator would begin its turn with, as an index; `None` where it names none.
    ///
    /// # Errors
    /// See [`GeneratorError`].
    fn choose(
        &self,
        messages: &[Message],
        labels: &[&str],
    ) -> Result<(Option<usize>, Output), GeneratorError>;

    /// Forgets what it keeps to be faster the next time; texts do not depend on it. For whoever measures time.
    fn forget(&self) {}
}

impl<G: Generator + ?Sized> Generator for &G {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn context_length(&self) -> Option<usize> {
        (**self).context_length()
    }

    fn count_tokens(&self, text: &str) -> usize {
        (**self).count_tokens(text)
    }

    fn generate(
        &self,
        request: &Request<'_>,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Output, GeneratorError> {
        (**self).generate(request, on_text)
    }

    fn choose(
        &self,
        messages: &[Message],
        labels: &[&str],
    ) -> Result<(Option<usize>, Output), GeneratorError> {
        (**self).choose(messages, labels)
    }

    fn forget(&self) {
        (**self).forget();
    }
}

/// The first label that stands in `text` as a word of its own.
fn first_label(text: &str, labels: &[&str]) -> Option<usize> {
    text.split(|c: char| !c.is_alphanumeric())
        .find_map(|word| labels.iter().position(|label| *label == word))
}

#[cfg(test)]
mod tests {
    use super::first_label;

    #[test]
    fn labels_are_words() {
        let labels = ["A", "B", "C"];
        assert_eq!(first_label("B", &labels), Some(1));
        assert_eq!(first_label("The answer is (C).", &labels), Some(2));
        assert_eq!(first_label("Because", &labels), None);
        assert_eq!(first_label("", &labels), None);
    }
}
