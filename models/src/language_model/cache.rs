//! What a model has read: keys and values in pages, shared between branches that have a common prefix.

use std::sync::Arc;

use crate::kernels::attention::{Memory, PAGE};
use crate::kernels::lanes::LANES;

/// Dimensions of a cache; a cache fits every model of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Dimensions of a head.
    pub(crate) head: usize,
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

/// The tokens that a model has read, and what it keeps of them.
///
/// Memory is kept in pages of sixteen tokens. [`Cache::fork`] copies no page: branches share those of their common
/// prefix, and a page is copied only when a branch writes into one that another still holds. Beams are reordered by
/// forking those that go on.
#[derive(Clone)]
pub struct Cache {
    shape: Shape,
    tokens: Vec<u32>,
    pages: Vec<Arc<Page>>,
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

    /// Bytes of memory its pages take, those shared with other branches included.
    pub fn size(&self) -> usize {
        self.pages.len() * self.shape.page() * LANES * 4
    }

    /// Makes room for further tokens, in pages that no other branch holds.
    pub(crate) fn extend(&mut self, tokens: &[u32]) {
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
}
