//! Elementwise functions: exponential, activations, normalisation, rotary positions.
//!
//! They are written without branches, so that the compiler can use vectors, and without fused operations, so that
//! they give the same bits on every machine.

/// e to the power of `x`, within 2 units in the last place; 0 below −87.3, and clamped at 88.
///
/// Cody–Waite reduction and a Taylor polynomial of degree 6 on ±ln 2 / 2.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUNDER: f32 = 12_582_912.0;
    let clamped = x.clamp(-87.3, 88.0);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUNDER;
    let whole = shifted - ROUNDER;
    let rest = (clamped - whole * 0.693_359_4) + whole * 2.121_944_4e-4;
    let series = 1.0 / 720.0;
    let series = series * rest + 1.0 / 120.0;
    let series = series * rest + 1.0 / 24.0;
    let series = series * rest + 1.0 / 6.0;
    let series = series * rest + 0.5;
    let series = series * rest + 1.0;
    let series = series * rest + 1.0;
    // `whole` is an integer from −126 to 127, in the low bits of `shifted`.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    if x < -87.3 { 0.0 } else { series * power }
}

/// The gated linear unit's gate: `gate[i] = silu(gate[i]) * up[i]`.
pub(crate) fn silu_times(gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        *g = *g / (1.0 + exp(-*g)) * u;
    }
}

/// `gate[i] = gelu(gate[i]) * up[i]`, by the tanh approximation (Hendrycks and Gimpel 2016).
pub(crate) fn gelu_times(gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        let x = *g;
        // x · (1 + tanh z) / 2 = x / (1 + e^(−2z)).
        let z = 0.797_884_6 * (x + 0.044_715 * x * x * x);
        *g = x / (1.0 + exp(-2.0 * z)) * u;
    }
}

/// Root-mean-square normalisation of one row (Zhang and Sennrich 2019): `out = x / rms(x) * weight`.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let scale = 1.0 / (mean_square(x) + epsilon).sqrt();
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * scale * w;
    }
}

/// As [`rms_norm`], in place.
pub(crate) fn rms_norm_in_place(x: &mut [f32], weight: &[f32], epsilon: f32) {
    let scale = 1.0 / (mean_square(x) + epsilon).sqrt();
    for (v, w) in x.iter_mut().zip(weight) {
        *v = *v * scale * w;
    }
}

fn mean_square(x: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let chunks = x.chunks_exact(16);
    let rest: f32 = chunks.remainder().iter().map(|v| v * v).sum();
    for chunk in chunks {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *sum += v * v;
        }
    }
    let total: f64 = sums.iter().map(|&s| f64::from(s)).sum::<f64>() + f64::from(rest);
    (total / x.len().max(1) as f64) as f32
}

/// Turns scores into probabilities in place; entries of −∞ become 0.
pub(crate) fn softmax(scores: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for s in scores.iter_mut() {
        *s = exp(*s - largest);
    }
    let mut sums = [0.0f32; 16];
    for chunk in scores.chunks(16) {
        for (sum, s) in sums.iter_mut().zip(chunk) {
            *sum += s;
        }
    }
    let inverse = 1.0 / sums.iter().sum::<f32>();
    for s in scores.iter_mut() {
        *s *= inverse;
    }
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Neighbours: (0, 1), (2, 3), … (Llama in GGUF).
    Neighbours,
    /// Halves: (0, n/2), (1, n/2 + 1), … (all others).
    Halves,
}

/// Rotates the heads of one row by the angles of its position (Su et al. 2021); `cos` and `sin` have half as many
/// elements as rotate in a head, the rest of the head stays.
pub(crate) fn rotate(row: &mut [f32], head: usize, pairing: Pairing, cos: &[f32], sin: &[f32]) {
    for values in row.chunks_exact_mut(head) {
        let half = cos.len();
        match pairing {
            Pairing::Neighbours => {
                for (pair, (c, s)) in values.chunks_exact_mut(2).zip(cos.iter().zip(sin)) {
                    let (a, b) = (pair[0], pair[1]);
                    pair[0] = a * c - b * s;
                    pair[1] = a * s + b * c;
                }
            }
            Pairing::Halves => {
                let (first, second) = values[..2 * half].split_at_mut(half);
                for ((a, b), (c, s)) in first.iter_mut().zip(second).zip(cos.iter().zip(sin)) {
                    let (x, y) = (*a, *b);
                    *a = x * c - y * s;
                    *b = x * s + y * c;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_close() {
        for i in -9000..=8800 {
            let x = i as f32 / 100.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs();
            assert!(
                error <= expected * 3e-7 + 1.3e-38,
                "{x}: {} for {expected}",
                exp(x)
            );
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::INFINITY).is_finite());
    }

    #[test]
    fn activations_are_close() {
        for i in -80..=80 {
            let x = i as f32 / 8.0;
            let (mut silu, mut gelu) = ([x], [x]);
            silu_times(&mut silu, &[2.0]);
            gelu_times(&mut gelu, &[2.0]);
            let wide = f64::from(x);
            let expected = 2.0 * wide / (1.0 + (-wide).exp());
            assert!((f64::from(silu[0]) - expected).abs() < 2e-6 * (1.0 + expected.abs()));
            let z = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3));
            let expected = wide * (1.0 + z.tanh());
            assert!((f64::from(gelu[0]) - expected).abs() < 2e-6 * (1.0 + expected.abs()));
        }
    }

    #[test]
    fn probabilities_sum_to_one() {
        let mut scores = vec![1.0, 2.0, f32::NEG_INFINITY, 3.0];
        softmax(&mut scores);
        assert_eq!(scores[2], 0.0);
        assert!((scores.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((scores[3] / scores[1] - std::f32::consts::E).abs() < 1e-5);
        let mut single = vec![-5000.0];
        softmax(&mut single);
        assert_eq!(single, [1.0]);
    }

    #[test]
    fn rotation_keeps_lengths_and_differs_by_pairing() {
        let (cos, sin) = ([0.6f32, 0.8], [0.8f32, 0.6]);
        let mut neighbours = [1.0, 2.0, 3.0, 4.0, 9.0, 9.0];
        let mut halves = neighbours;
        rotate(&mut neighbours, 6, Pairing::Neighbours, &cos, &sin);
        rotate(&mut halves, 6, Pairing::Halves, &cos, &sin);
        assert_eq!(neighbours[4..], [9.0, 9.0]);
        for row in [neighbours, halves] {
            let length: f32 = row[..4].iter().map(|v| v * v).sum();
            assert!((length - 30.0).abs() < 1e-4);
        }
        assert!((neighbours[0] - (0.6 - 1.6)).abs() < 1e-6);
        assert!((halves[0] - (0.6 - 2.4)).abs() < 1e-6);
    }
}
