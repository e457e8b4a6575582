//! Whether a sentence is uncertain, and what to look up for it.

use std::ops::Range;

/// Whether any token is less probable than θ. A sentence without tokens is certain.
pub fn is_uncertain(probabilities: &[f32], theta: f32) -> bool {
    // What is no number is not known to be probable.
    probabilities.iter().any(|p| p.is_nan() || *p < theta)
}

/// The sentence without the tokens less probable than β: the bytes of each token with its probability. Where
/// tokens were left out a space stands, so that the pieces of two words make no third; a character of which a
/// piece is left out goes as a whole.
pub fn implicit_query<'t>(tokens: impl IntoIterator<Item = (&'t [u8], f32)>, beta: f32) -> String {
    let mut bytes = Vec::new();
    for (token, probability) in tokens {
        if probability < beta || probability.is_nan() {
            bytes.push(b' ');
        } else {
            bytes.extend_from_slice(token);
        }
    }
    let text: String = String::from_utf8_lossy(&bytes)
        .chars()
        .map(|c| {
            if c == char::REPLACEMENT_CHARACTER {
                ' '
            } else {
                c
            }
        })
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The runs of tokens less probable than β, in order.
pub fn improbable_spans(probabilities: &[f32], beta: f32) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (at, p) in probabilities.iter().enumerate() {
        if *p >= beta {
            continue;
        }
        match spans.last_mut() {
            Some(span) if span.end == at => span.end = at + 1,
            _ => spans.push(at..at + 1),
        }
    }
    spans
}

/// θ at which that share of sentences is uncertain, given the least probability of each; the share is kept as
/// closely as ties permit, from below. `None` without sentences.
pub fn threshold_for(share: f64, least: &[f32]) -> Option<f32> {
    let mut least: Vec<f32> = least.iter().copied().filter(|p| !p.is_nan()).collect();
    least.sort_unstable_by(f32::total_cmp);
    let last = *least.last()?;
    let uncertain = (share.clamp(0.0, 1.0) * least.len() as f64).round() as usize;
    Some(match least.get(uncertain) {
        // The first that is to be kept: it is not below itself.
        Some(&kept) => kept,
        // All are uncertain: just above the largest.
        None => last.next_up(),
    })
}

/// The pieces of several rankings in turn, each once: the best of each, then the second of each, and so on.
pub fn interleave<T: PartialEq>(rankings: Vec<Vec<T>>, most: usize) -> Vec<T> {
    let mut merged: Vec<T> = Vec::new();
    let mut rankings: Vec<_> = rankings.into_iter().map(Vec::into_iter).collect();
    loop {
        let mut any = false;
        for ranking in &mut rankings {
            let Some(next) = ranking.next() else {
                continue;
            };
            any = true;
            if merged.len() < most && !merged.contains(&next) {
                merged.push(next);
            }
        }
        if !any {
            return merged;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_kept_where_every_token_reaches_theta() {
        assert!(!is_uncertain(&[0.8, 0.9, 1.0], 0.8));
        assert!(is_uncertain(&[0.9, 0.8f32.next_down()], 0.8));
        assert!(!is_uncertain(&[0.0], 0.0));
        assert!(is_uncertain(&[1.0], 1.01));
        assert!(!is_uncertain(&[], 1.01));
        assert!(is_uncertain(&[f32::NAN], 0.5));
    }

    fn query(beta: f32) -> String {
        let tokens: [(&[u8], f32); 5] = [
            (b" Joe", 0.9),
            (b" Bid", 0.4),
            (b"en", 0.95),
            (b" attended", 0.39),
            (b" Penn.", 0.4f32.next_down()),
        ];
        implicit_query(tokens, beta)
    }

    #[test]
    fn improbable_tokens_are_left_out() {
        assert_eq!(query(0.4), "Joe Biden");
        assert_eq!(query(0.0), "Joe Biden attended Penn.");
        assert_eq!(query(0.41), "Joe en");
        assert_eq!(query(1.0), "");
        // Half a character is none.
        let [a, b] = ["東".as_bytes().split_at(1).0, "東".as_bytes().split_at(1).1];
        assert_eq!(implicit_query([(a, 0.9), (b, 0.9)], 0.5), "東");
        assert_eq!(implicit_query([(a, 0.9), (b, 0.1)], 0.5), "");
        assert_eq!(implicit_query([], 0.5), "");
    }

    #[test]
    fn spans_are_runs() {
        let p = [0.1, 0.9, 0.2, 0.3, 0.4, 0.1];
        assert_eq!(improbable_spans(&p, 0.4), [0..1, 2..4, 5..6]);
        assert!(improbable_spans(&p, 0.0).is_empty() && improbable_spans(&[], 1.0).is_empty());
        assert_eq!(improbable_spans(&p, 1.0).first(), Some(&(0..6)));
    }

    #[test]
    fn theta_for_a_share() {
        let least = [0.5, 0.1, 0.3, 0.2, 0.4];
        for (share, uncertain) in [(0.0, 0), (0.2, 1), (0.6, 3), (1.0, 5), (7.0, 5), (-1.0, 0)] {
            let theta = threshold_for(share, &least).unwrap();
            let found = least.iter().filter(|&&p| is_uncertain(&[p], theta));
            assert_eq!(found.count(), uncertain, "{share}: {theta}");
        }
        // Ties: never more than the share.
        let theta = threshold_for(0.5, &[0.3; 4]).unwrap();
        assert!(!is_uncertain(&[0.3], theta));
        assert_eq!(threshold_for(0.5, &[]), None);
        assert_eq!(threshold_for(0.5, &[f32::NAN]), None);
    }

    #[test]
    fn rankings_take_turns() {
        assert_eq!(
            interleave(vec![vec![1, 2, 3], vec![4, 1], vec![]], 4),
            [1, 4, 2, 3]
        );
        assert_eq!(interleave(vec![vec![1, 1]], 2), [1]);
        assert!(interleave::<u8>(vec![], 2).is_empty());
        assert!(interleave(vec![vec![1]], 0).is_empty());
    }
}
