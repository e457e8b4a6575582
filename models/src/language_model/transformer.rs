//! The forward pass: tokens of one or several branches through all layers, to logits.

use rayon::prelude::*;

use crate::kernels::attention::{Query, TOGETHER, attend};
use crate::kernels::lanes::Instructions;
use crate::kernels::math::{gelu_times, rms_norm, rms_norm_in_place, rotate, silu_times};
use crate::kernels::matrix::Matrix;
use crate::kernels::product::{Rows, multiply};

use super::architecture::{Architecture, Family, Rotary};
use super::cache::{Cache, Shape};
use super::weights::{Kernels, Layer, Linear, Weights};

/// Tokens that pass through the layers together; memory for intermediate values grows with it.
pub(super) const BATCH: usize = 256;
/// Multiplications of attention below which a second thread is not worth its waking.
const WORTH_A_THREAD: usize = 200_000;

/// A model that can be run.
pub(crate) struct Transformer {
    pub(crate) architecture: Architecture,
    pub(crate) weights: Weights<Kernels>,
    pub(crate) instructions: Instructions,
}

/// One token to be read, and where it goes.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) token: u32,
    /// Index of the branch's cache.
    pub(crate) branch: usize,
    /// Position in the branch.
    pub(crate) position: usize,
    /// Whether logits are wanted; counted in the order of the steps.
    pub(crate) wanted: bool,
}

/// Cosines and sines of the rotary angles of a batch of steps.
pub(super) struct Angles {
    /// Angles of a step.
    pub(super) half: usize,
    pub(super) cos: Vec<f32>,
    pub(super) sin: Vec<f32>,
}

impl Angles {
    pub(super) fn of(rotary: &Rotary, steps: &[Step]) -> Self {
        let half = rotary.dimensions / 2;
        let (mut cos, mut sin) = (
            Vec::with_capacity(steps.len() * half),
            Vec::with_capacity(steps.len() * half),
        );
        let frequencies: Vec<f64> = (0..half)
            .map(|i| {
                let plain = f64::from(rotary.base).powf(-2.0 * i as f64 / rotary.dimensions as f64);
                plain
                    / f64::from(rotary.factors.get(i).copied().unwrap_or(1.0))
                    / f64::from(rotary.scale)
            })
            .collect();
        for step in steps {
            for frequency in &frequencies {
                let angle = step.position as f64 * frequency;
                cos.push(angle.cos() as f32);
                sin.push(angle.sin() as f32);
            }
        }
        Self { half, cos, sin }
    }

    fn row(&self, i: usize) -> (&[f32], &[f32]) {
        let range = i * self.half..(i + 1) * self.half;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

impl Transformer {
    /// The dimensions of this model's caches.
    pub(crate) fn shape(&self) -> Shape {
        self.architecture.cache_shape(None)
    }

    /// Reads the steps, in which each branch's positions come in order; the caches already have room for them.
    /// Returns the logits of the wanted steps, row after row.
    pub(crate) fn forward(&self, caches: &mut [&mut Cache], steps: &[Step]) -> Vec<f32> {
        let mut logits = Vec::new();
        for batch in steps.chunks(BATCH) {
            self.batch(caches, batch, &mut logits);
        }
        logits
    }

    fn multiply(&self, matrices: &[&Matrix], x: &[f32]) -> Vec<Vec<f32>> {
        let width = matrices.first().map_or(1, |m| m.columns());
        multiply(self.instructions, matrices, Rows { values: x, width })
    }

    fn multiply_by(&self, matrix: &Matrix, x: &[f32]) -> Vec<f32> {
        self.multiply(&[matrix], x).pop().unwrap_or_default()
    }

    /// Products with matrices of one width, with their biases.
    fn linear<const N: usize>(&self, parts: [&Linear<Kernels>; N], x: &[f32]) -> [Vec<f32>; N] {
        let mut products = self
            .multiply(&parts.map(|part| &part.matrix), x)
            .into_iter();
        parts.map(|part| {
            let mut rows = products.next().unwrap_or_default();
            if let Some(bias) = &part.bias {
                rows.chunks_exact_mut(bias.len())
                    .for_each(|row| add(row, bias));
            }
            rows
        })
    }

    fn normed(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let a = &self.architecture;
        let mut out = vec![0.0; x.len()];
        for (to, from) in out.chunks_exact_mut(a.width).zip(x.chunks_exact(a.width)) {
            rms_norm(from, weight, a.epsilon, to);
        }
        out
    }

    /// Normalises rows, each of as many values as there are weights.
    fn norm_in_place(&self, rows: &mut [f32], weights: Option<&[f32]>) {
        if let Some(weights) = weights {
            for row in rows.chunks_exact_mut(weights.len()) {
                rms_norm_in_place(row, weights, self.architecture.epsilon);
            }
        }
    }

    fn batch(&self, caches: &mut [&mut Cache], steps: &[Step], logits: &mut Vec<f32>) {
        let a = &self.architecture;
        let mut x = vec![0.0; steps.len() * a.width];
        for (row, step) in x.chunks_exact_mut(a.width).zip(steps) {
            self.weights.embedding.row(step.token as usize, row);
            if a.embedding_scale != 1.0 {
                row.iter_mut().for_each(|v| *v *= a.embedding_scale);
            }
        }
        let angles = Angles::of(&a.rotary, steps);
        let local = a.local.as_ref().filter(|local| local.rotary != a.rotary);
        let local_angles = local.map(|local| Angles::of(&local.rotary, steps));
        for (i, layer) in self.weights.layers.iter().enumerate() {
            let angles = match (a.local(i), &local_angles) {
                (Some(_), Some(angles)) => angles,
                _ => &angles,
            };
            let mut read = self.attention(caches, steps, angles, i, layer, &x);
            self.norm_in_place(&mut read, layer.after_attention_norm.as_deref());
            add(&mut x, &read);
            let mut fed = self.feed_forward(layer, &x);
            self.norm_in_place(&mut fed, layer.after_feed_norm.as_deref());
            add(&mut x, &fed);
        }
        let wanted: Vec<f32> = steps
            .iter()
            .zip(x.chunks_exact(a.width))
            .filter(|(step, _)| step.wanted)
            .flat_map(|(_, row)| row.iter().copied())
            .collect();
        if !wanted.is_empty() {
            let normed = self.normed(&wanted, &self.weights.output_norm);
            let rows = self.multiply_by(self.weights.output(), &normed);
            if logits.is_empty() {
                *logits = rows;
            } else {
                logits.extend_from_slice(&rows);
            }
        }
    }

    fn feed_forward(&self, layer: &Layer<Kernels>, x: &[f32]) -> Vec<f32> {
        let normed = self.normed(x, &layer.feed_norm);
        let [mut gate, up] = self.linear([&layer.gate, &layer.up], &normed);
        match self.architecture.family {
            Family::Gemma3 => gelu_times(&mut gate, &up),
            Family::Llama | Family::Qwen2 | Family::Qwen3 => silu_times(&mut gate, &up),
        }
        let [fed] = self.linear([&layer.down], &gate);
        fed
    }

    fn attention(
        &self,
        caches: &mut [&mut Cache],
        steps: &[Step],
        angles: &Angles,
        index: usize,
        layer: &Layer<Kernels>,
        x: &[f32],
    ) -> Vec<f32> {
        let a = &self.architecture;
        let normed = self.normed(x, &layer.attention_norm);
        let [mut queries, mut keys, values] =
            self.linear([&layer.query, &layer.key, &layer.value], &normed);
        let (wide, narrow) = (a.heads * a.head, a.key_heads * a.head);
        if let Some((query_norm, key_norm)) = &layer.head_norms {
            self.norm_in_place(&mut queries, Some(query_norm));
            self.norm_in_place(&mut keys, Some(key_norm));
        }
        for (i, step) in steps.iter().enumerate() {
            let (cos, sin) = angles.row(i);
            let query = &mut queries[i * wide..(i + 1) * wide];
            rotate(query, a.head, a.rotary.pairing, cos, sin);
            query.iter_mut().for_each(|q| *q *= a.attention_scale);
            let key = &mut keys[i * narrow..(i + 1) * narrow];
            rotate(key, a.head, a.rotary.pairing, cos, sin);
            caches[step.branch].write(
                index,
                step.position,
                key,
                &values[i * narrow..(i + 1) * narrow],
            );
        }
        let read = self.read(caches, steps, index, &queries);
        let [read] = self.linear([&layer.attention_output], &read);
        read
    }

    /// What the queries of all steps read from their branches.
    fn read(
        &self,
        caches: &[&mut Cache],
        steps: &[Step],
        index: usize,
        queries: &[f32],
    ) -> Vec<f32> {
        let a = &self.architecture;
        let group = a.heads / a.key_heads;
        let window = a.local(index).map(|local| local.window);
        // By key head, then step, then query head of the group: what shares keys lies together.
        let mut found = vec![0.0; queries.len()];
        let mut memories = Vec::new();
        let mut tasks = Vec::new();
        let mut rest = &mut found[..];
        let mut work = 0;
        for head in 0..a.key_heads {
            let mut next = 0;
            for same in steps.chunk_by(|x, y| x.branch == y.branch) {
                memories.push(caches[same[0].branch].memory(index, head));
                let first = next;
                next += same.len();
                let (mine, after) =
                    std::mem::take(&mut rest).split_at_mut(same.len() * group * a.head);
                rest = after;
                for (n, out) in mine.chunks_mut(TOGETHER * a.head).enumerate() {
                    let queries: Vec<Query<'_>> = (n * TOGETHER..n * TOGETHER + out.len() / a.head)
                        .map(|pair| {
                            let (step, within) = (first + pair / group, pair % group);
                            let at = (step * a.heads + head * group + within) * a.head;
                            let to = steps[step].position + 1;
                            let from = window.map_or(0, |window| to.saturating_sub(window));
                            Query {
                                values: &queries[at..at + a.head],
                                from,
                                to,
                            }
                        })
                        .collect();
                    work += queries
                        .iter()
                        .map(|q| 2 * (q.to - q.from) * a.head)
                        .sum::<usize>();
                    tasks.push((memories.len() - 1, queries, out));
                }
            }
        }
        let run = |scores: &mut Vec<f32>,
                   (memory, queries, out): (usize, Vec<Query<'_>>, &mut [f32])| {
            attend(self.instructions, &memories[memory], &queries, scores, out);
        };
        if work < WORTH_A_THREAD {
            let mut scores = Vec::new();
            tasks.into_iter().for_each(|task| run(&mut scores, task));
        } else {
            tasks.into_par_iter().for_each_init(Vec::new, run);
        }
        if steps.len() == 1 {
            return found;
        }
        let mut out = vec![0.0; found.len()];
        let part = group * a.head;
        for (n, values) in found.chunks_exact(part).enumerate() {
            let (head, step) = (n / steps.len(), n % steps.len());
            let at = (step * a.key_heads + head) * part;
            out[at..at + part].copy_from_slice(values);
        }
        out
    }
}

fn add(x: &mut [f32], y: &[f32]) {
    for (a, b) in x.iter_mut().zip(y) {
        *a += b;
    }
}
