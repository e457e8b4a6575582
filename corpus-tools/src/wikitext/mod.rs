//! Wikitext to plain text: what a reader of the page sees, one paragraph a line.
//!
//! Kept: prose, headings (as lines, where something stands under them), lists, the cells of tables (a row a
//! line), captions, quotations, formulas as a line of signs, and the text of the common templates that
//! stand within sentences. Left out: boxes and all other templates, references, hatnotes, categories,
//! links to other languages, pictures, and what the wiki's programs would compute (templates are not
//! expanded: their definitions are programs).
//!
//! The way of a page, each step linear in its length whatever it holds:
//! `structure` finds what encloses what, `expand` leaves out or writes templates and tags,
//! `inline` resolves links and HTML, `blocks` makes paragraphs of lines, `finish` cleans each.
//! [`residue`] measures the markup that is left.

mod blocks;
mod expand;
mod finish;
mod inline;
mod marks;
mod math;
pub mod residue;
mod site;
mod structure;
mod templates;

pub use site::Site;

/// The text of a page with this title, one paragraph a line; empty if it has none.
///
/// Never fails: what is not well-formed is text without its brackets.
///
/// ```
/// use corpus_tools::wikitext::{Site, plain_text};
/// let source = "'''Foxes''' are [[Canidae|canids]]<ref>A book.</ref> of {{convert|10|kg|lb}}.\n\n[[Category:Foxes]]";
/// assert_eq!(plain_text(source, "Fox", &Site::default()), "Foxes are canids of 10 kg.");
/// ```
pub fn plain_text(source: &str, title: &str, site: &Site) -> String {
    let source = marks::clean(source);
    let source = match still_escaped(&source) {
        true => unescape_xml(&source).into(),
        false => source,
    };
    let expanded = expand::expand(&source, site, title);
    blocks::paragraphs(&inline::inline(&expanded, site))
}

/// Whether a page is escaped as it stands in a dump's XML: all of its references are.
fn still_escaped(source: &str) -> bool {
    source.contains("&lt;ref") && source.contains("&lt;/ref&gt;") && !source.contains("<ref")
}

fn unescape_xml(source: &str) -> String {
    let source = source.replace("&lt;", "<").replace("&gt;", ">");
    source.replace("&quot;", "\"").replace("&amp;", "&")
}

/// The page to which a page leads whose source is a redirect, in any language: `#REDIRECT [[Target]]`.
pub fn redirect_target(source: &str) -> Option<String> {
    let line = source.trim_start().strip_prefix('#')?.lines().next()?;
    let (word, rest) = line.split_once("[[")?;
    let word = word.trim_end().trim_end_matches(':').trim_end();
    let target = rest.split_once("]]")?.0;
    let target = target.split(['|', '#']).next()?.trim().replace('_', " ");
    let is_word =
        (3..=40).contains(&word.len()) && word.chars().all(|c| c.is_alphabetic() || c == ' ');
    // A page that goes on is a list.
    let short = source.trim().len() < line.len() + 300;
    (is_word && short && !target.is_empty()).then_some(target)
}
