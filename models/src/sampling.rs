//! Choosing a token from masked logits, reproducibly.
//!
//! Noise is keyed by seed, sequence, position and token (Gumbel-max), so that batching, forced runs, the number of
//! threads and tokens masked elsewhere do not change what is drawn.

use serde::{Deserialize, Serialize};

use crate::language_model::log_normaliser;

/// How tokens are chosen. The default is greedy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// What logits are divided by; 0 takes the largest logit.
    pub temperature: f32,
    /// Only that many of the most probable tokens; 0 for all.
    pub top_k: usize,
    /// Only the most probable tokens that together reach this probability; 1 for all.
    pub top_p: f32,
    /// Only tokens of at least this share of the most probable one's probability; 0 for all.
    pub min_p: f32,
    /// Positive logits of tokens seen before are divided by it, negative ones multiplied (Keskar et al. 2019); 1 for
    /// none.
    pub repetition_penalty: f32,
    /// Seed of the noise.
    pub seed: u64,
    /// Which of several sequences drawn with one seed this is.
    pub sequence: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
            sequence: 0,
        }
    }
}

/// A token that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// The token.
    pub token: u32,
    /// Its natural log-probability under the softmax of the logits as they were given, before the penalty and the
    /// temperature.
    pub log_probability: f32,
}

impl Sampling {
    /// Greedy choice.
    pub fn greedy() -> Self {
        Self::default()
    }

    /// The same settings for another sequence.
    #[must_use]
    pub fn for_sequence(self, sequence: u64) -> Self {
        Self { sequence, ..self }
    }

    /// Chooses a token. `logits` are masked already: what is not allowed is −∞; they are changed. `history` holds
    /// the tokens that the repetition penalty applies to. `position` is the position the token will have.
    ///
    /// Of equal logits the lower id is taken. `None` if everything is masked; NaN counts as masked.
    pub fn choose(&self, logits: &mut [f32], history: &[u32], position: usize) -> Option<Chosen> {
        let normaliser = log_normaliser(logits);
        let mut given = Vec::new();
        if self.repetition_penalty != 1.0 {
            let mut seen: Vec<u32> = history
                .iter()
                .copied()
                .filter(|&t| (t as usize) < logits.len())
                .collect();
            seen.sort_unstable();
            seen.dedup();
            for token in seen {
                let logit = &mut logits[token as usize];
                given.push((token, *logit));
                *logit = if *logit > 0.0 {
                    *logit / self.repetition_penalty
                } else {
                    *logit * self.repetition_penalty
                };
            }
        }
        let token = if self.temperature > 0.0 {
            let entries = (0u32..).zip(logits.iter().copied());
            self.draw(entries.collect(), position)?
        } else {
            largest(logits)?
        };
        let logit = given
            .iter()
            .find(|&&(t, _)| t == token)
            .map_or(logits[token as usize], |&(_, logit)| logit);
        Some(Chosen {
            token,
            log_probability: logit - normaliser,
        })
    }

    /// Chooses among some tokens with their logits, all others being masked; each stands once. Without the
    /// repetition penalty, the same as [`Sampling::choose`] over the whole vocabulary with −∞ elsewhere.
    ///
    /// `position` is the position the token will have. `None` if nothing is open; NaN counts as masked.
    pub fn choose_among(&self, tokens: &[(u32, f32)], position: usize) -> Option<u32> {
        if self.temperature > 0.0 {
            return self.draw(tokens.to_vec(), position);
        }
        let open = tokens
            .iter()
            .filter(|(_, logit)| *logit > f32::NEG_INFINITY);
        let best = open.reduce(|best, next| {
            match next.1 > best.1 || (next.1 == best.1 && next.0 < best.0) {
                true => next,
                false => best,
            }
        });
        best.map(|&(token, _)| token)
    }

    fn draw(&self, mut tokens: Vec<(u32, f32)>, position: usize) -> Option<u32> {
        type Entry = (u32, f32);
        tokens.retain(|&(_, logit)| logit > f32::NEG_INFINITY);
        let scaled = |entry: Entry| entry.1 / self.temperature;
        // Most probable first; of equals the lower id.
        let order = |a: &Entry, b: &Entry| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if self.top_k > 0 && self.top_k < tokens.len() {
            tokens.select_nth_unstable_by(self.top_k - 1, order);
            tokens.truncate(self.top_k);
        }
        let best = tokens.iter().copied().min_by(order)?;
        if self.min_p > 0.0 {
            let least = scaled(best) + self.min_p.min(1.0).ln();
            tokens.retain(|&entry| scaled(entry) >= least);
        }
        if self.top_p < 1.0 {
            tokens.sort_unstable_by(order);
            let weights: Vec<f64> = tokens
                .iter()
                .map(|&entry| f64::from(scaled(entry) - scaled(best)).exp())
                .collect();
            let enough = weights.iter().sum::<f64>() * f64::from(self.top_p);
            let mut reached = 0.0;
            let kept = weights.iter().take_while(|&&w| {
                let more = reached < enough;
                reached += w;
                more
            });
            let kept = kept.count().max(1);
            tokens.truncate(kept);
        }
        let noisy = |entry: Entry| f64::from(scaled(entry)) + self.noise(position, entry.0);
        tokens
            .into_iter()
            .map(|entry| (noisy(entry), entry.0))
            .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
            .map(|(_, t)| t)
    }

    /// Gumbel noise of one token at one position.
    fn noise(&self, position: usize, token: u32) -> f64 {
        let mut key = mix(self.seed ^ 0x9e37_79b9_7f4a_7c15);
        for part in [self.sequence, position as u64, u64::from(token)] {
            key = mix(key ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        }
        // 53 bits, in the open interval from 0 to 1.
        let uniform = ((key >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        -(-uniform.ln()).ln()
    }
}

/// The finaliser of SplitMix64 (Steele et al. 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn largest(logits: &[f32]) -> Option<u32> {
    let mut best: Option<usize> = None;
    for (token, &logit) in logits.iter().enumerate() {
        if logit > best.map_or(f32::NEG_INFINITY, |b| logits[b]) {
            best = Some(token);
        }
    }
    best.map(|b| b as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: f32 = f32::NEG_INFINITY;

    fn counts(sampling: Sampling, logits: &[f32], draws: usize) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        for position in 0..draws {
            let chosen = sampling
                .choose(&mut logits.to_vec(), &[], position)
                .unwrap();
            counts[chosen.token as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        let chosen = Sampling::greedy().choose(&mut [OUT, 1.0, 2.0, 2.0, f32::NAN], &[], 0);
        assert_eq!(chosen.unwrap().token, 2);
        let chosen = Sampling::greedy()
            .choose(&mut [OUT, 0.0, 0.0], &[], 0)
            .unwrap();
        assert!((chosen.log_probability - 0.5f32.ln()).abs() < 1e-6);
        for temperature in [0.0, 1.0] {
            let sampling = Sampling {
                temperature,
                ..Sampling::default()
            };
            assert_eq!(sampling.choose(&mut [OUT, OUT], &[], 0), None);
            assert_eq!(sampling.choose(&mut [], &[], 0), None);
            assert_eq!(
                sampling.choose(&mut [OUT, -50.0], &[1], 0).unwrap().token,
                1
            );
        }
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        let logits = [0.6f32.ln(), OUT, 0.3f32.ln(), 0.1f32.ln()];
        let sampling = Sampling {
            temperature: 1.0,
            seed: 3,
            ..Sampling::default()
        };
        let found = counts(sampling, &logits, 20_000);
        assert_eq!(found[1], 0);
        for (count, p) in [(found[0], 0.6), (found[2], 0.3), (found[3], 0.1)] {
            assert!((count as f64 / 20_000.0 - p).abs() < 0.015, "{found:?}");
        }
        let cold = counts(
            Sampling {
                temperature: 0.5,
                ..sampling
            },
            &logits,
            20_000,
        );
        assert!(
            (cold[0] as f64 / 20_000.0 - 0.36 / 0.46).abs() < 0.015,
            "{cold:?}"
        );
    }

    #[test]
    fn limits_leave_out_the_tail() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.15f32.ln(), 0.05f32.ln()];
        let warm = Sampling {
            temperature: 1.0,
            ..Sampling::default()
        };
        let open = |sampling| {
            counts(sampling, &logits, 500)
                .iter()
                .filter(|&&c| c > 0)
                .count()
        };
        assert_eq!(open(warm), 4);
        assert_eq!(open(Sampling { top_k: 2, ..warm }), 2);
        assert_eq!(
            open(Sampling {
                top_p: 0.79,
                ..warm
            }),
            2
        );
        assert_eq!(
            open(Sampling {
                top_p: 0.81,
                ..warm
            }),
            3
        );
        assert_eq!(open(Sampling { top_p: 0.0, ..warm }), 1);
        assert_eq!(
            open(Sampling {
                min_p: 0.25,
                ..warm
            }),
            3
        );
        assert_eq!(
            open(Sampling {
                min_p: 1.0,
                top_k: 9,
                ..warm
            }),
            1
        );
    }

    #[test]
    fn noise_depends_on_its_key_alone() {
        let warm = Sampling {
            temperature: 1.0,
            seed: 7,
            ..Sampling::default()
        };
        let draw = |sampling: Sampling, logits: &[f32]| -> Vec<u32> {
            (0..200)
                .map(|p| sampling.choose(&mut logits.to_vec(), &[], p).unwrap().token)
                .collect()
        };
        let logits = [0.3, 0.1, 0.2, 0.0];
        assert_eq!(draw(warm, &logits), draw(warm, &logits));
        assert_ne!(
            draw(warm, &logits),
            draw(Sampling { seed: 8, ..warm }, &logits)
        );
        assert_ne!(draw(warm, &logits), draw(warm.for_sequence(1), &logits));
        // Masking a token that was not drawn changes nothing.
        let masked = draw(warm, &[0.3, OUT, 0.2, 0.0]);
        for (all, some) in draw(warm, &logits).into_iter().zip(masked) {
            assert!(all == 1 || all == some);
        }
    }

    #[test]
    fn a_list_and_a_masked_row_are_the_same() {
        let options = [(1, 0.3), (4, 1.5), (6, 1.5), (7, -2.0), (9, f32::NAN)];
        let mut row = [OUT; 12];
        for (token, logit) in options {
            row[token as usize] = logit;
        }
        for sampling in [
            Sampling::greedy(),
            Sampling {
                temperature: 1.3,
                seed: 5,
                ..Sampling::default()
            },
            Sampling {
                temperature: 0.8,
                top_k: 3,
                top_p: 0.9,
                min_p: 0.05,
                ..Sampling::default()
            },
        ] {
            for position in 0..100 {
                let dense = sampling.choose(&mut row.clone(), &[], position).unwrap();
                assert_eq!(sampling.choose_among(&options, position), Some(dense.token));
            }
            assert_eq!(sampling.choose_among(&[], 0), None);
            assert_eq!(sampling.choose_among(&[(3, OUT), (4, f32::NAN)], 0), None);
        }
    }

    #[test]
    fn repetition_is_penalised_and_probabilities_are_those_given() {
        let sampling = Sampling {
            repetition_penalty: 2.0,
            ..Sampling::default()
        };
        let chosen = sampling
            .choose(&mut [2.0, 1.5, -1.0], &[0, 0, 99], 0)
            .unwrap();
        assert_eq!(chosen.token, 1);
        let chosen = sampling.choose(&mut [2.0, OUT, -1.0], &[0, 2], 0).unwrap();
        assert_eq!(chosen.token, 0);
        let normaliser = (2f32.exp() + (-1f32).exp()).ln();
        assert!((chosen.log_probability - (2.0 - normaliser)).abs() < 1e-5);
    }
}
