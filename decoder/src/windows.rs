//! Windows: the surroundings of clue occurrences in the candidates, opened, merged, and ranked.

use std::ops::Range;

use corpus_tools::store::Paragraph;
use serde::{Deserialize, Serialize};

use crate::settings::WindowSettings;

/// A stretch of a candidate's tokens, with its relevance to the question once it was scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Number of the candidate, in the order of the candidate set.
    pub member: u32,
    /// First token, an offset in the document.
    pub start: u32,
    /// One past the last token.
    pub end: u32,
    /// The scorer's own number; `None` for a window that the prefilter left out.
    pub score: Option<f32>,
    /// What BM25, titles and further hops add to the scaled score.
    pub bonus: f32,
    /// Scaled score and bonus, scaled to [0, 1] over the windows that were scored.
    pub relevance: f32,
}

/// Where a clue occurs in a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClueOccurrence {
    /// Number of the clue, auxiliary clues included.
    pub clue: usize,
    /// Number of the candidate.
    pub member: u32,
    /// First token, an offset in the document.
    pub start: u32,
    /// Tokens of the clue.
    pub length: u32,
}

/// What windows are opened in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ground {
    /// Tokens of the candidate.
    pub length: u32,
    /// Its paragraphs that can be quoted, in tokens, ascending.
    pub paragraphs: Vec<Range<u32>>,
}

/// Opens a window at the start of every candidate (where its first paragraph starts) and around every
/// occurrence of a clue. Windows on short paragraphs are widened to the whole of them. Those of a document
/// that overlap are merged while the merged one stays within the limit, and the limits a document and in all
/// are kept to. Candidates come first to last, so the limit in all cuts the weakest.
///
/// The result is ordered by member, then start.
pub fn open(
    candidates: &[Ground],
    occurrences: &[ClueOccurrence],
    settings: &WindowSettings,
) -> Vec<Window> {
    let mut spans: Vec<Vec<(u32, u32)>> = vec![Vec::new(); candidates.len()];
    for (spans, ground) in spans.iter_mut().zip(candidates) {
        if ground.length > 0 {
            let start = ground.paragraphs.first().map_or(0, |first| first.start);
            let end = start.saturating_add(2 * settings.radius);
            spans.extend(ground.widened(start..end.min(ground.length), settings));
        }
    }
    let mut opened = std::collections::HashMap::<usize, usize>::new();
    for occurrence in occurrences {
        let count = opened.entry(occurrence.clue).or_default();
        let Some(ground) = candidates.get(occurrence.member as usize) else {
            continue;
        };
        if *count == settings.occurrences_per_clue || occurrence.start >= ground.length {
            continue;
        }
        *count += 1;
        let window = ground.around(occurrence, settings.radius);
        spans[occurrence.member as usize].extend(ground.widened(window, settings));
    }
    let mut windows = Vec::new();
    for (member, mut spans) in spans.into_iter().enumerate() {
        spans.sort_unstable();
        spans.dedup();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (start, end) in spans {
            match merged.last_mut() {
                Some(last)
                    if start < last.1 && end.max(last.1) - last.0 <= settings.most_tokens =>
                {
                    last.1 = last.1.max(end);
                }
                // What lies inside a window that cannot grow adds nothing.
                Some(last) if end <= last.1 => {}
                _ => merged.push((start, end)),
            }
        }
        merged.truncate(settings.most_per_document);
        windows.extend(merged.into_iter().map(|(start, end)| Window {
            member: member as u32,
            start,
            end,
            score: None,
            bonus: 0.0,
            relevance: 0.0,
        }));
        if windows.len() >= settings.most {
            windows.truncate(settings.most);
            break;
        }
    }
    windows
}

impl Ground {
    /// `radius` tokens on each side of an occurrence. Where the paragraph (or, if it is shorter than the
    /// window, the document) ends sooner on one side, the other side gets more.
    fn around(&self, occurrence: &ClueOccurrence, radius: u32) -> Range<u32> {
        let width = (2 * radius).saturating_add(occurrence.length);
        let at = self
            .paragraphs
            .partition_point(|paragraph| paragraph.end <= occurrence.start);
        let holding = self.paragraphs.get(at).filter(|paragraph| {
            paragraph.contains(&occurrence.start) && paragraph.len() as u32 >= width
        });
        let room = holding.cloned().unwrap_or(0..self.length);
        let start = occurrence.start.saturating_sub(radius).max(room.start);
        let end = start.saturating_add(width).min(room.end);
        end.saturating_sub(width).max(room.start)..end
    }

    /// A window, in pieces: the part in each paragraph that is neither long nor shorter than a window becomes
    /// the whole paragraph, the rest stays as it is.
    fn widened(&self, window: Range<u32>, settings: &WindowSettings) -> Vec<(u32, u32)> {
        let mut pieces = Vec::new();
        let mut rest = window.start;
        let first = self
            .paragraphs
            .partition_point(|paragraph| paragraph.end <= window.start);
        for paragraph in &self.paragraphs[first..] {
            if paragraph.start >= window.end {
                break;
            }
            // One that no window would fill is left to windows over several.
            let length = paragraph.len() as u32;
            if (2 * settings.radius..=settings.whole_paragraph).contains(&length) {
                if rest < paragraph.start {
                    pieces.push((rest, paragraph.start));
                }
                pieces.push((paragraph.start, paragraph.end));
                rest = paragraph.end;
            }
        }
        if rest < window.end {
            pieces.push((rest, window.end));
        }
        pieces
    }
}

/// Windows of at most `most` tokens that cover what of every paragraph but the title lies `within` a span of tokens: all
/// of it where it is no longer, else half overlapping, the last one ending with it.
pub fn covering(paragraphs: &[Paragraph], within: &Range<u32>, most: u32) -> Vec<Range<u32>> {
    let most = most.max(1);
    let step = (most / 2).max(1);
    let mut spans = Vec::new();
    for paragraph in paragraphs.iter().filter(|paragraph| !paragraph.is_title()) {
        let start = paragraph.tokens.start.max(within.start);
        let end = paragraph.tokens.end.min(within.end);
        let mut at = start;
        while end.saturating_sub(at) > most {
            spans.push(at..at + most);
            at += step;
        }
        if start < end {
            spans.push(end.saturating_sub(most).max(start)..end);
        }
    }
    spans
}

/// Sets the relevance of all scored windows: their scores min–max scaled to [0, 1] (all equal: 1), the
/// bonus added, and the sum scaled in the same way. Windows without a score have none.
pub fn scale(windows: &mut [Window]) {
    let scaled = unit(windows.iter().map(|window| window.score));
    let sums = windows
        .iter()
        .zip(scaled)
        .map(|(window, scaled)| scaled.map(|scaled| scaled + window.bonus));
    let relevances = unit(sums);
    for (window, relevance) in windows.iter_mut().zip(relevances) {
        window.relevance = relevance.unwrap_or(0.0);
    }
}

/// Min–max scaled to [0, 1]; all equal: 1.
fn unit(values: impl Iterator<Item = Option<f32>> + Clone) -> Vec<Option<f32>> {
    let (low, high) = values
        .clone()
        .flatten()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    let scale = |value: f32| match high > low {
        true => (value - low) / (high - low),
        false => 1.0,
    };
    values.map(|value| value.map(scale)).collect()
}

/// [`scale`]s, and orders the windows best first, those without a score last; equal ones keep their order.
pub fn rank(windows: &mut [Window]) {
    scale(windows);
    let key = |window: &Window| match window.score {
        Some(_) => window.relevance,
        None => f32::NEG_INFINITY,
    };
    windows.sort_by(|a, b| key(b).total_cmp(&key(a)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrence(clue: usize, member: u32, start: u32) -> ClueOccurrence {
        ClueOccurrence {
            clue,
            member,
            start,
            length: 2,
        }
    }

    /// Candidates without paragraphs that could be quoted.
    fn grounds(lengths: &[u32]) -> Vec<Ground> {
        let ground = |&length: &u32| Ground {
            length,
            paragraphs: Vec::new(),
        };
        lengths.iter().map(ground).collect()
    }

    fn spans(windows: &[Window]) -> Vec<(u32, u32, u32)> {
        windows
            .iter()
            .map(|window| (window.member, window.start, window.end))
            .collect()
    }

    #[test]
    fn opens_around_occurrences_and_at_the_start() {
        let settings = WindowSettings {
            radius: 10,
            most_tokens: 40,
            ..Default::default()
        };
        let windows = open(
            &grounds(&[300, 0, 15]),
            &[occurrence(0, 0, 100), occurrence(0, 0, 200)],
            &settings,
        );
        assert_eq!(
            spans(&windows),
            [(0, 0, 20), (0, 90, 112), (0, 190, 212), (2, 0, 15)]
        );
        // Near an end, the window keeps its width.
        let windows = open(
            &grounds(&[300]),
            &[occurrence(0, 0, 40), occurrence(0, 0, 297)],
            &settings,
        );
        assert_eq!(spans(&windows), [(0, 0, 20), (0, 30, 52), (0, 278, 300)]);
    }

    #[test]
    fn merges_within_the_limit_only() {
        let settings = WindowSettings {
            radius: 10,
            most_tokens: 40,
            ..Default::default()
        };
        let windows = open(
            &grounds(&[300]),
            &[
                occurrence(0, 0, 100),
                occurrence(1, 0, 110),
                occurrence(1, 0, 125),
            ],
            &settings,
        );
        // 90..112 and 100..122 merge to 32 tokens; 115..137 would make 47 and stays apart.
        assert_eq!(spans(&windows), [(0, 0, 20), (0, 90, 122), (0, 115, 137)]);
        for window in &windows {
            assert!(window.end - window.start <= 40);
        }
    }

    #[test]
    fn keeps_to_its_limits_and_survives_nonsense() {
        let settings = WindowSettings {
            radius: 2,
            occurrences_per_clue: 3,
            most_per_document: 2,
            most: 3,
            ..Default::default()
        };
        let many: Vec<_> = (0..50).map(|i| occurrence(0, 0, 10 + 10 * i)).collect();
        assert_eq!(open(&grounds(&[1000, 50, 60]), &many, &settings).len(), 3);
        assert_eq!(open(&grounds(&[1000]), &many, &settings).len(), 2);
        assert!(open(&[], &[occurrence(0, 7, 3)], &settings).is_empty());
        assert_eq!(
            spans(&open(&grounds(&[5]), &[occurrence(0, 0, 9)], &settings)),
            [(0, 0, 4)]
        );
    }

    #[test]
    fn short_paragraphs_are_one_window() {
        let settings = WindowSettings {
            radius: 10,
            most_tokens: 40,
            whole_paragraph: 60,
            ..Default::default()
        };
        // A title, two short paragraphs and a long one; separators between them.
        let ground = Ground {
            length: 300,
            paragraphs: vec![4..44, 45..85, 86..299],
        };
        let at = |start| occurrence(0, 0, start);
        let windows = open(std::slice::from_ref(&ground), &[at(60), at(200)], &settings);
        assert_eq!(spans(&windows), [(0, 4, 44), (0, 45, 85), (0, 190, 212)]);
        // A window near a border stays in the paragraph that holds its clue.
        let windows = open(&[ground], &[at(80)], &settings);
        assert_eq!(spans(&windows), [(0, 4, 44), (0, 45, 85)]);
    }

    #[test]
    fn ranks_with_scaled_relevance() {
        let settings = WindowSettings {
            radius: 2,
            ..Default::default()
        };
        let mut windows = open(&grounds(&[50, 50, 50, 50]), &[], &settings);
        for (window, score) in windows
            .iter_mut()
            .zip([Some(0.2), None, Some(0.6), Some(0.4)])
        {
            window.score = score;
        }
        rank(&mut windows);
        let order: Vec<u32> = windows.iter().map(|window| window.member).collect();
        assert_eq!(order, [2, 3, 0, 1]);
        assert_eq!(windows[0].relevance, 1.0);
        assert!((windows[1].relevance - 0.5).abs() < 1e-6);
        assert_eq!((windows[2].relevance, windows[3].relevance), (0.0, 0.0));
    }

    #[test]
    fn a_bonus_counts_beside_the_scaled_score() {
        let settings = WindowSettings::default();
        let mut windows = open(&grounds(&[50, 50, 50]), &[], &settings);
        for (window, (score, bonus)) in
            windows
                .iter_mut()
                .zip([(-7.0, 1.5), (3.0, 0.0), (-2.0, 0.25)])
        {
            window.score = Some(score);
            window.bonus = bonus;
        }
        rank(&mut windows);
        // Sums 1.5, 1.0 and 0.75, over a range of 0.75.
        let order: Vec<u32> = windows.iter().map(|window| window.member).collect();
        assert_eq!(order, [0, 1, 2]);
        assert!((windows[1].relevance - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!((windows[0].relevance, windows[2].relevance), (1.0, 0.0));
    }

    #[test]
    fn windows_cover_every_paragraph() {
        let paragraph = |number, tokens| Paragraph {
            number,
            tokens,
            bytes: 0..0,
        };
        let paragraphs = [
            paragraph(0, 0..5),
            paragraph(1, 6..16),
            paragraph(2, 17..17),
            paragraph(3, 18..42),
        ];
        assert_eq!(
            covering(&paragraphs, &(0..42), 10),
            [6..16, 18..28, 23..33, 28..38, 32..42]
        );
        assert_eq!(covering(&paragraphs, &(8..30), 10), [8..16, 18..28, 20..30]);
        for most in 1..30 {
            let spans = covering(&paragraphs, &(0..u32::MAX), most);
            for at in (6..16).chain(18..42) {
                assert!(spans.iter().any(|span| span.contains(&at)));
            }
            assert!(spans.iter().all(|span| span.end - span.start <= most));
        }
        assert!(covering(&paragraphs[..1], &(0..42), 10).is_empty());
    }
}
