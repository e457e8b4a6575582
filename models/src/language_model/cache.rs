//! What a model has read: keys and values in pages, shared between branches that have a common prefix.

use std::sync::Arc;

use candle_core::{DeviceLocation, Tensor};

use crate::kernels::attention::{Memory, PAGE};
use crate::kernels::lanes::LANES;

/// Dimensions of a cache; a cache fits every model of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Dimensions of a head.
    pub(crate) head: usize,
    /// Where its tensors lie; `None` for pages, which the kernels of this crate read.
    pub(crate) device: Option<DeviceLocation>,
}

impl Shape {
    /// Vectors in a page.
    fn page(self) -> usize {
        self.layers * self.heads * 2 * self.head
    }

    /// Where the keys of a layer's head begin; its values follow.
    fn slot(self, layer: usize, head: usize) -> usize {
        (layer * self.heads + head) * 2 * self.head
    }
}

type Page = Vec<[f32; LANES]>;

/// Runs of tensors that are shorter than this are joined with later ones; longer ones are never copied again.
const JOINED: usize = 256;

/// Keys and values of some tokens in a row on a device, which are never written to.
#[derive(Clone)]
struct Run {
    /// Keys and values by layer, each heads × tokens × dimensions.
    layers: Arc<Vec<[Tensor; 2]>>,
    /// Tokens that the tensors hold.
    held: usize,
    /// The first of them that still count.
    length: usize,
}

impl Run {
    /// Its tensors of a layer from token `from` on.
    fn tensors(&self, layer: usize, from: usize) -> candle_core::Result<[Tensor; 2]> {
        let [keys, values] = &self.layers[layer];
        let cut = |tensor: &Tensor| match (from, self.length) {
            (0, length) if length == self.held => Ok(tensor.clone()),
            (from, length) => tensor.narrow(1, from, length - from),
        };
        Ok([cut(keys)?, cut(values)?])
    }
}

/// Joins tensors along their tokens.
fn joined(parts: &[[Tensor; 2]]) -> candle_core::Result<[Tensor; 2]> {
    if let [only] = parts {
        return Ok(only.clone());
    }
    let all = |which: usize| {
        let parts: Vec<&Tensor> = parts.iter().map(|two| &two[which]).collect();
        Tensor::cat(&parts, 1)
    };
    Ok([all(0)?, all(1)?])
}

/// The tokens that a model has read, and what it keeps of them.
///
/// Memory is kept in pages of sixteen tokens. [`Cache::fork`] copies no page: branches share those of their common
/// prefix, and a page is copied only when a branch writes into one that another still holds. Beams are reordered by
/// forking those that go on. On a device it is kept in tensors that are never written to, and shared in the same way.
#[derive(Clone)]
pub struct Cache {
    shape: Shape,
    tokens: Vec<u32>,
    pages: Vec<Arc<Page>>,
    /// Instead of pages, on a device; the longest first as far as they are joined.
    runs: Vec<Run>,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("tokens", &self.tokens.len())
            .field("shape", &self.shape)
            .finish()
    }
}

impl Cache {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            shape,
            tokens: Vec::new(),
            pages: Vec::new(),
            runs: Vec::new(),
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of tokens read.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether nothing has been read.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The tokens read, in order.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets all but the first `length` tokens; does nothing if there are no more than that.
    pub fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.pages.truncate(self.tokens.len().div_ceil(PAGE));
        let mut left = self.tokens.len();
        self.runs.retain_mut(|run| {
            run.length = run.length.min(left);
            left -= run.length;
            run.length > 0
        });
    }

    /// A second branch that begins with the same tokens. It takes next to no time or memory.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.clone()
    }

    /// Length of the longest common prefix with a sequence of tokens.
    pub fn common_prefix(&self, tokens: &[u32]) -> usize {
        self.tokens
            .iter()
            .zip(tokens)
            .take_while(|(a, b)| a == b)
            .count()
    }

    /// Bytes of memory its keys and values take, those shared with other branches included.
    pub fn size(&self) -> usize {
        let held: usize = self.runs.iter().map(|run| run.held).sum();
        (self.pages.len() * LANES + held) * self.shape.page() * 4
    }

    /// Makes room for further tokens, in pages that no other branch holds.
    pub(crate) fn extend(&mut self, tokens: &[u32]) {
        if self.shape.device.is_some() {
            // `append` brings the tensors.
            self.tokens.extend_from_slice(tokens);
            return;
        }
        let used = self.tokens.len();
        if !tokens.is_empty()
            && !used.is_multiple_of(PAGE)
            && let Some(last) = self.pages.last_mut()
        {
            Arc::make_mut(last);
        }
        self.tokens.extend_from_slice(tokens);
        while self.pages.len() < self.tokens.len().div_ceil(PAGE) {
            self.pages
                .push(Arc::new(vec![[0.0; LANES]; self.shape.page()]));
        }
    }

    /// Writes key and value of one token and layer, all heads one after another.
    pub(crate) fn write(&mut self, layer: usize, position: usize, key: &[f32], value: &[f32]) {
        let shape = self.shape;
        let token = position % PAGE;
        // `extend` has made this page ours; were it shared, it would be copied here.
        let page = Arc::make_mut(&mut self.pages[position / PAGE]);
        let heads = key
            .chunks_exact(shape.head)
            .zip(value.chunks_exact(shape.head));
        for (head, (key, value)) in heads.enumerate() {
            let at = shape.slot(layer, head);
            let (keys, values) = page[at..at + 2 * shape.head].split_at_mut(shape.head);
            for (to, k) in keys.iter_mut().zip(key) {
                to[token] = *k;
            }
            for (block, part) in values.chunks_exact_mut(PAGE).zip(value.chunks_exact(LANES)) {
                block[token].copy_from_slice(part);
            }
        }
    }

    /// Keys and values of a layer on a device from token `from` on, followed by `new` ones.
    pub(crate) fn tensors(
        &self,
        layer: usize,
        from: usize,
        new: &[Tensor; 2],
    ) -> candle_core::Result<[Tensor; 2]> {
        let mut parts = Vec::with_capacity(self.runs.len() + 1);
        let mut start = 0;
        for run in &self.runs {
            if start + run.length > from {
                parts.push(run.tensors(layer, from.saturating_sub(start))?);
            }
            start += run.length;
        }
        parts.push(match from.saturating_sub(start) {
            0 => new.clone(),
            skipped => {
                let cut = |t: &Tensor| t.narrow(1, skipped, t.dim(1)? - skipped);
                [cut(&new[0])?, cut(&new[1])?]
            }
        });
        joined(&parts)
    }

    /// Keys and values of the next `length` tokens by layer, on a device.
    ///
    /// Runs are joined with the one before as long as that is less than twice as long, so that there are few of them
    /// and each token is copied a few times only.
    pub(crate) fn append(
        &mut self,
        layers: Vec<[Tensor; 2]>,
        length: usize,
    ) -> candle_core::Result<()> {
        let mut run = Run {
            layers: Arc::new(layers),
            held: length,
            length,
        };
        let mut kept = self.runs.len();
        while let Some(before) = self.runs[..kept].last()
            && before.length < JOINED.min(2 * run.length)
        {
            let layers = (0..run.layers.len())
                .map(|layer| joined(&[before.tensors(layer, 0)?, run.tensors(layer, 0)?]))
                .collect::<candle_core::Result<_>>()?;
            let length = before.length + run.length;
            run = Run {
                layers: Arc::new(layers),
                held: length,
                length,
            };
            kept -= 1;
        }
        self.runs.truncate(kept);
        self.runs.push(run);
        Ok(())
    }

    /// Keys and values of one layer's head.
    pub(crate) fn memory(&self, layer: usize, head: usize) -> Memory<'_> {
        let (at, size) = (self.shape.slot(layer, head), self.shape.head);
        Memory {
            keys: self.pages.iter().map(|page| &page[at..at + size]).collect(),
            values: self
                .pages
                .iter()
                .map(|page| &page[at + size..at + 2 * size])
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        layers: 2,
        heads: 1,
        head: 16,
        device: None,
    };

    fn fill(cache: &mut Cache, tokens: &[u32]) {
        let first = cache.len();
        cache.extend(tokens);
        for (i, &t) in tokens.iter().enumerate() {
            for layer in 0..2 {
                let key: Vec<f32> = (0..16).map(|d| (t * 100 + layer * 50 + d) as f32).collect();
                cache.write(layer as usize, first + i, &key, &key);
            }
        }
    }

    fn check(cache: &Cache) {
        for layer in 0..2 {
            let memory = cache.memory(layer as usize, 0);
            for (i, &t) in cache.tokens().iter().enumerate() {
                for d in 0..16u32 {
                    let wanted = (t * 100 + layer * 50 + d) as f32;
                    assert_eq!(memory.keys[i / 16][d as usize][i % 16], wanted);
                    assert_eq!(memory.values[i / 16][i % 16][d as usize], wanted);
                }
            }
        }
    }

    #[test]
    fn branches_share_and_do_not_disturb() {
        let mut trunk = Cache::new(SHAPE);
        fill(&mut trunk, &(0..37).collect::<Vec<_>>());
        let mut branches: Vec<Cache> = (0..4).map(|_| trunk.fork()).collect();
        for (i, branch) in branches.iter_mut().enumerate() {
            branch.truncate(37 - 3 * i);
            fill(branch, &[90 + i as u32; 20]);
        }
        fill(&mut trunk, &[77]);
        check(&trunk);
        assert_eq!(trunk.len(), 38);
        for (i, branch) in branches.iter().enumerate() {
            check(branch);
            assert_eq!(branch.len(), 57 - 3 * i);
            assert!(Arc::ptr_eq(&branch.pages[0], &trunk.pages[0]));
            assert_eq!(branch.common_prefix(trunk.tokens()), 37 - 3 * i);
        }
        trunk.truncate(0);
        assert!(trunk.is_empty() && trunk.pages.is_empty());
        trunk.truncate(5);
        assert_eq!(trunk.len(), 0);
    }

    #[test]
    fn runs_on_a_device_are_joined_and_shared() {
        let shape = Shape {
            device: Some(DeviceLocation::Cpu),
            ..SHAPE
        };
        let tensor = |tokens: &[u32], layer: u32| {
            let values: Vec<f32> = tokens
                .iter()
                .flat_map(|t| (0..16).map(move |d| (t * 100 + layer * 50 + d) as f32))
                .collect();
            Tensor::from_vec(values, (1, tokens.len(), 16), &candle_core::Device::Cpu).unwrap()
        };
        let new = |tokens: &[u32], layer| [tensor(tokens, layer), tensor(tokens, layer)];
        let put = |cache: &mut Cache, tokens: &[u32]| {
            cache.extend(tokens);
            let layers = (0..2).map(|layer| new(tokens, layer)).collect();
            cache.append(layers, tokens.len()).unwrap();
        };
        let check = |cache: &Cache| {
            let next = [9_000, 9_001];
            let all = [cache.tokens(), &next].concat();
            for layer in 0..2 {
                for from in [0, 1, 17, cache.len().saturating_sub(1), cache.len() + 1] {
                    let from = from.min(cache.len() + 1);
                    let expected = tensor(&all[from..], layer as u32)
                        .flatten_all()
                        .unwrap()
                        .to_vec1::<f32>()
                        .unwrap();
                    let found = cache
                        .tensors(layer, from, &new(&next, layer as u32))
                        .unwrap();
                    for tensor in found {
                        let values = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                        assert!(values == expected, "layer {layer} from {from}");
                    }
                }
            }
        };
        let mut trunk = Cache::new(shape);
        check(&trunk);
        put(&mut trunk, &(0..300).collect::<Vec<_>>());
        let mut branches: Vec<Cache> = (0..3).map(|_| trunk.fork()).collect();
        for (i, branch) in branches.iter_mut().enumerate() {
            branch.truncate(300 - 7 * i);
            for token in 0..600 {
                put(branch, &[400 + token]);
            }
            check(branch);
            assert!(branch.runs.len() < 14, "{}", branch.runs.len());
            // What was read before the fork is not copied.
            assert!(Arc::ptr_eq(&branch.runs[0].layers, &trunk.runs[0].layers));
            branch.truncate(450);
            check(branch);
            put(branch, &[1, 2, 3]);
            check(branch);
        }
        check(&trunk);
        assert_eq!(trunk.size(), 300 * 2 * 2 * 16 * 4);
        trunk.truncate(0);
        assert!(trunk.runs.is_empty());
        check(&trunk);
    }
}
