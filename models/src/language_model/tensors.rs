//! The forward pass as tensors of candle, on the devices that it knows: CUDA and Metal.
//!
//! The same steps as in `transformer`, with the device's own arithmetic: logits are those of the processor to a few
//! last digits, not to the bit, and may differ in them with the chunk in which a token is read.
//!
//! Weights are widened to 32-bit floats when they are read, four bytes of the device's memory for each. candle could
//! multiply with the quantised blocks, but it rounds activations to bytes then: with SmolLM2 in Q4_1, log-probabilities
//! moved by up to 1.2 on the processor, where llama.cpp's, which rounds too, move by 0.012. Sixteen bits would overflow
//! in Gemma 3.
//!
//! It is tested on the processor (`Device::Tensors`), where candle runs the same operations. No graphics processor was
//! at hand: how fast it is on one, and whether each kernel there does what its namesake on the processor does, has not
//! been tried.

use candle_core::quantized::{QStorage, QTensor};
use candle_core::{D, Device, IndexOp, Tensor};

use crate::error::Result;
use crate::kernels::math::Pairing;

use super::architecture::{Architecture, Family};
use super::cache::{Cache, Shape};
use super::transformer::{Angles, BATCH, Step};
use super::weights::{Layer, Linear, Storage, TensorBytes, Weights};

type Tensors = candle_core::Result<Tensor>;

/// Puts weights onto a device of candle.
pub(crate) struct OnDevice(pub(crate) Device);

impl Storage for OnDevice {
    /// Rows by columns, in 32-bit floats.
    type Matrix = Tensor;
    type Vector = Tensor;
    // Rows of the embedding are looked up on the processor.
    const OUTPUT_APART: bool = true;

    fn matrix(&self, tensor: &TensorBytes) -> Result<Tensor, String> {
        let shape = (tensor.rows, tensor.columns);
        QStorage::from_data((&tensor.bytes).into(), &Device::Cpu, tensor.dtype)
            .and_then(|blocks| QTensor::new(blocks, shape)?.dequantize(&Device::Cpu))
            .and_then(|floats| floats.to_device(&self.0))
            .map_err(not_there)
    }

    fn vector(&self, values: Vec<f32>) -> Result<Tensor, String> {
        let length = values.len();
        Tensor::from_vec(values, length, &self.0).map_err(not_there)
    }

    fn size(matrix: &Tensor) -> usize {
        matrix.elem_count() * matrix.dtype().size_in_bytes()
    }
}

fn not_there(error: candle_core::Error) -> String {
    format!("cannot be put onto the device: {error}")
}

/// A model whose layers lie on a device.
pub(crate) struct TensorTransformer {
    pub(crate) architecture: Architecture,
    pub(crate) weights: Weights<OnDevice>,
    pub(crate) device: Device,
}

/// The steps of one branch in a batch.
struct Group {
    branch: usize,
    /// The first of its steps in the batch, and their number.
    first: usize,
    count: usize,
    /// What its steps see in layers that see everything, and in those that see a window.
    all: Sight,
    windowed: Sight,
}

/// Which tokens of a branch are seen by its steps.
struct Sight {
    /// The first one that any of them sees.
    from: usize,
    /// 0 where a step sees a token and −∞ where it does not, steps by tokens; `None` if all see all.
    mask: Option<Tensor>,
}

impl Sight {
    fn of(steps: &[Step], window: Option<usize>, device: &Device) -> candle_core::Result<Self> {
        let seen = |step: &Step| {
            let to = step.position + 1;
            (window.map_or(0, |window| to.saturating_sub(window)), to)
        };
        let (from, _) = steps.first().map_or((0, 0), seen);
        let (_, to) = steps.last().map_or((0, 0), seen);
        if steps.len() < 2 {
            return Ok(Self { from, mask: None });
        }
        let mut mask = vec![f32::NEG_INFINITY; steps.len() * (to - from)];
        for (row, step) in mask.chunks_exact_mut(to - from).zip(steps) {
            let (first, end) = seen(step);
            row[first - from..end - from].fill(0.0);
        }
        let mask = Tensor::from_vec(mask, (steps.len(), to - from), device)?;
        Ok(Self {
            from,
            mask: Some(mask),
        })
    }
}

/// Cosines and sines by step, as tensors that are multiplied with all heads.
struct Turns {
    cos: Tensor,
    sin: Tensor,
}

impl Turns {
    fn of(angles: Angles, steps: usize, device: &Device) -> candle_core::Result<Self> {
        let shape = (steps, 1, angles.half);
        Ok(Self {
            cos: Tensor::from_vec(angles.cos, shape, device)?,
            sin: Tensor::from_vec(angles.sin, shape, device)?,
        })
    }
}

impl TensorTransformer {
    /// The dimensions of this model's caches.
    pub(crate) fn shape(&self) -> Shape {
        self.architecture.cache_shape(Some(self.device.location()))
    }

    /// As `Transformer::forward`.
    pub(crate) fn forward(&self, caches: &mut [&mut Cache], steps: &[Step]) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        for batch in steps.chunks(BATCH) {
            self.batch(caches, batch, &mut logits)?;
        }
        Ok(logits)
    }

    fn batch(
        &self,
        caches: &mut [&mut Cache],
        steps: &[Step],
        logits: &mut Vec<f32>,
    ) -> candle_core::Result<()> {
        let (a, device) = (&self.architecture, &self.device);
        let mut x = vec![0.0; steps.len() * a.width];
        for (row, step) in x.chunks_exact_mut(a.width).zip(steps) {
            self.weights.embedding.row(step.token as usize, row);
            row.iter_mut().for_each(|v| *v *= a.embedding_scale);
        }
        let mut x = Tensor::from_vec(x, (steps.len(), a.width), device)?;
        let turns = Turns::of(Angles::of(&a.rotary, steps), steps.len(), device)?;
        let local_turns = match &a.local {
            Some(local) => Some(Turns::of(
                Angles::of(&local.rotary, steps),
                steps.len(),
                device,
            )?),
            None => None,
        };
        let window = a.local.as_ref().map(|local| local.window);
        let mut groups = Vec::new();
        let mut first = 0;
        for same in steps.chunk_by(|x, y| x.branch == y.branch) {
            groups.push(Group {
                branch: same[0].branch,
                first,
                count: same.len(),
                all: Sight::of(same, None, device)?,
                windowed: Sight::of(same, window, device)?,
            });
            first += same.len();
        }
        let mut read: Vec<Vec<[Tensor; 2]>> = groups.iter().map(|_| Vec::new()).collect();
        for (i, layer) in self.weights.layers.iter().enumerate() {
            let local = a.local(i).is_some();
            let turns = match &local_turns {
                Some(turns) if local => turns,
                _ => &turns,
            };
            let found = self.attention(caches, &groups, &mut read, turns, i, layer, &x)?;
            x = (x + self.normed_if(found, layer.after_attention_norm.as_ref())?)?;
            let fed = self.feed_forward(layer, &x)?;
            x = (x + self.normed_if(fed, layer.after_feed_norm.as_ref())?)?;
        }
        for (group, read) in groups.iter().zip(read) {
            caches[group.branch].append(read, group.count)?;
        }
        let wanted: Vec<u32> = (0..steps.len() as u32)
            .filter(|&i| steps[i as usize].wanted)
            .collect();
        if !wanted.is_empty() {
            let rows = wanted.len();
            let rows = x.index_select(&Tensor::from_vec(wanted, rows, device)?, 0)?;
            let normed = self.normed(&rows, &self.weights.output_norm)?;
            if let Some(output) = &self.weights.output {
                logits.extend(
                    normed
                        .matmul(&output.t()?)?
                        .flatten_all()?
                        .to_vec1::<f32>()?,
                );
            }
        }
        Ok(())
    }

    /// Root-mean-square normalisation of the last dimension.
    fn normed(&self, x: &Tensor, weight: &Tensor) -> Tensors {
        let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
        let root = (mean + f64::from(self.architecture.epsilon))?.sqrt()?;
        x.broadcast_div(&root)?.broadcast_mul(weight)
    }

    fn normed_if(&self, x: Tensor, weight: Option<&Tensor>) -> Tensors {
        match weight {
            Some(weight) => self.normed(&x, weight),
            None => Ok(x),
        }
    }

    fn linear(&self, part: &Linear<OnDevice>, x: &Tensor) -> Tensors {
        let product = x.matmul(&part.matrix.t()?)?;
        match &part.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }

    fn feed_forward(&self, layer: &Layer<OnDevice>, x: &Tensor) -> Tensors {
        let normed = self.normed(x, &layer.feed_norm)?;
        let (gate, up) = (
            self.linear(&layer.gate, &normed)?,
            self.linear(&layer.up, &normed)?,
        );
        let gate = match self.architecture.family {
            // candle's `gelu` is the approximation by tanh.
            Family::Gemma3 => gate.gelu()?,
            Family::Llama | Family::Qwen2 | Family::Qwen3 => gate.silu()?,
        };
        self.linear(&layer.down, &(gate * up)?)
    }

    /// Turns the heads of each step, `[steps, heads, head]`, by the angles of its position.
    fn turned(&self, x: &Tensor, turns: &Turns) -> Tensors {
        let (steps, heads, head) = x.dims3()?;
        let half = turns.cos.dim(2)?;
        let rotary = x.narrow(2, 0, 2 * half)?;
        let pairs = |a: Tensor, b: Tensor| -> candle_core::Result<[Tensor; 2]> {
            let (cos, sin) = (&turns.cos, &turns.sin);
            Ok([
                (a.broadcast_mul(cos)? - b.broadcast_mul(sin)?)?,
                (a.broadcast_mul(sin)? + b.broadcast_mul(cos)?)?,
            ])
        };
        let turned = match self.architecture.rotary.pairing {
            Pairing::Halves => {
                let [a, b] = pairs(rotary.narrow(2, 0, half)?, rotary.narrow(2, half, half)?)?;
                Tensor::cat(&[a, b], 2)?
            }
            Pairing::Neighbours => {
                let two = rotary.contiguous()?.reshape((steps, heads, half, 2))?;
                let [a, b] = pairs(two.i((.., .., .., 0))?, two.i((.., .., .., 1))?)?;
                Tensor::stack(&[a, b], 3)?.reshape((steps, heads, 2 * half))?
            }
        };
        if 2 * half == head {
            return Ok(turned);
        }
        Tensor::cat(&[turned, x.narrow(2, 2 * half, head - 2 * half)?], 2)
    }

    #[expect(clippy::too_many_arguments, reason = "all of them are the batch's")]
    fn attention(
        &self,
        caches: &[&mut Cache],
        groups: &[Group],
        read: &mut [Vec<[Tensor; 2]>],
        turns: &Turns,
        index: usize,
        layer: &Layer<OnDevice>,
        x: &Tensor,
    ) -> Tensors {
        let a = &self.architecture;
        let steps = x.dim(0)?;
        let normed = self.normed(x, &layer.attention_norm)?;
        let part = |linear: &Linear<OnDevice>, heads: usize| {
            self.linear(linear, &normed)?
                .reshape((steps, heads, a.head))
        };
        let mut queries = part(&layer.query, a.heads)?;
        let mut keys = part(&layer.key, a.key_heads)?;
        let values = part(&layer.value, a.key_heads)?;
        if let Some((query_norm, key_norm)) = &layer.head_norms {
            queries = self.normed(&queries, query_norm)?;
            keys = self.normed(&keys, key_norm)?;
        }
        let queries = (self.turned(&queries, turns)? * f64::from(a.attention_scale))?;
        let keys = self.turned(&keys, turns)?;
        let mut found = Vec::with_capacity(groups.len());
        for (group, read) in groups.iter().zip(read) {
            let by_head = |x: &Tensor| {
                x.narrow(0, group.first, group.count)?
                    .transpose(0, 1)?
                    .contiguous()
            };
            let new = [by_head(&keys)?, by_head(&values)?];
            let sight = match a.local(index) {
                Some(_) => &group.windowed,
                None => &group.all,
            };
            let [keys, values] = caches[group.branch].tensors(index, sight.from, &new)?;
            read.push(new);
            found.push(self.attend(&by_head(&queries)?, &keys, &values, sight)?);
        }
        let found = match found.as_slice() {
            [only] => only.clone(),
            several => Tensor::cat(several, 0)?,
        };
        self.linear(&layer.attention_output, &found)
    }

    /// What the queries of one branch read, steps by all heads; heads come first in what is given.
    fn attend(&self, queries: &Tensor, keys: &Tensor, values: &Tensor, sight: &Sight) -> Tensors {
        let a = &self.architecture;
        let (steps, seen) = (queries.dim(1)?, keys.dim(1)?);
        let group = a.heads / a.key_heads;
        // Query heads that share a key head lie beside each other.
        let queries = queries.reshape((a.key_heads, group * steps, a.head))?;
        let mut scores = queries.matmul(&keys.t()?)?;
        if let Some(mask) = &sight.mask {
            scores = scores
                .reshape((a.heads, steps, seen))?
                .broadcast_add(mask)?
                .reshape((a.key_heads, group * steps, seen))?;
        }
        let largest = scores.max_keepdim(D::Minus1)?;
        let weights = scores.broadcast_sub(&largest)?.exp()?;
        let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        weights
            .matmul(values)?
            .reshape((a.heads, steps, a.head))?
            .transpose(0, 1)?
            .contiguous()?
            .reshape((steps, a.heads * a.head))
    }
}
