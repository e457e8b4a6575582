//! A citation: a quote and where in the corpus it stands, word for word.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A quote from a document of the corpus. Offsets are into the document's text as the corpus gave
/// it, ends exclusive; `quote` is that slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Citation {
    /// External id of the document.
    pub id: String,
    /// Title of the document.
    pub title: String,
    /// The slice of the original text.
    pub quote: String,
    /// First byte (UTF-8).
    pub start_byte: u64,
    /// Byte after the last.
    pub end_byte: u64,
    /// First character (Unicode scalar value).
    pub start_char: u64,
    /// Character after the last.
    pub end_char: u64,
    /// Number of the paragraph in the document; the title is 0, so quotes stand in 1 and up.
    pub paragraph: u32,
    /// External id of the passage the paragraph came from, where the passages of a page were grouped
    /// into one document; what gold labels speak of. Absent where nothing was grouped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passage_id: Option<String>,
    /// In how many other places of the corpus the same tokens stand. 0 until the caller counts them.
    pub other_occurrences: u64,
    /// Score the quote was chosen with. 0 until the caller sets it.
    pub score: f32,
    /// The document's fields in the corpus beside id, title and text. Left out where there are none.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Whether the index keeps no texts: `quote` is then what the tokens spell (the canonical form), and
    /// the offsets are into the document's paragraphs in that form, joined as lines. Left out where false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub decoded: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Citation {
    /// The id that gold labels speak of: the passage's where passages were grouped, else the document's.
    pub fn external_id(&self) -> &str {
        self.passage_id.as_deref().unwrap_or(&self.id)
    }
}
