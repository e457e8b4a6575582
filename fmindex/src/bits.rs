//! Bit strings in 64-bit words: writing, reading, select, Elias–Fano, packed fields.
//!
//! Readers take any position: what lies beyond the words reads as zero, so that a damaged file gives
//! wrong numbers and nothing worse.

/// Bits needed for numbers below `count`; 0 for one number or none.
#[inline(always)]
pub(crate) const fn width_for(count: u64) -> u32 {
    match count {
        0 | 1 => 0,
        _ => 64 - (count - 1).leading_zeros(),
    }
}

/// The lowest `width` bits, `width <= 64`.
#[inline(always)]
pub(crate) const fn low_mask(width: u32) -> u64 {
    if width >= 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    }
}

/// Appends bits.
#[derive(Default, Debug)]
pub(crate) struct BitWriter {
    words: Vec<u64>,
    length: usize,
}

impl BitWriter {
    /// Number of bits.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Appends the lowest `width <= 64` bits of `value`, whose other bits are zero.
    pub(crate) fn push(&mut self, value: u64, width: u32) {
        debug_assert!(value & !low_mask(width) == 0);
        if width == 0 {
            return;
        }
        let shift = self.length % 64;
        if shift == 0 {
            self.words.push(value);
        } else {
            *self.words.last_mut().expect("a started word") |= value << shift;
            if shift + width as usize > 64 {
                self.words.push(value >> (64 - shift));
            }
        }
        self.length += width as usize;
    }

    /// Appends `count` zero bits.
    pub(crate) fn zeros(&mut self, mut count: usize) {
        while count > 0 {
            let width = count.min(64);
            self.push(0, width as u32);
            count -= width;
        }
    }

    /// Pads with zeros to whole words.
    pub(crate) fn align(&mut self) {
        self.length = self.words.len() * 64;
    }

    pub(crate) fn into_words(self) -> Vec<u64> {
        self.words
    }
}

/// The word at an index; zero beyond the end.
#[inline(always)]
pub(crate) fn word(words: &[u64], at: usize) -> u64 {
    match words.get(at) {
        Some(&word) => u64::from_le(word),
        None => 0,
    }
}

/// `width <= 57` bits from bit `at` on: one load, wherever they start.
#[inline(always)]
pub(crate) fn read(words: &[u64], at: usize, width: u32) -> u64 {
    debug_assert!(width <= 57);
    let bytes: &[u8] = bytemuck::cast_slice(words);
    let from = at / 8;
    let value = match bytes.get(from..from + 8) {
        Some(eight) => u64::from_le_bytes(eight.try_into().expect("eight bytes")),
        None => read_last(bytes, from),
    };
    value >> (at % 8) & ((1 << width) - 1)
}

/// The bytes from `from` on where fewer than eight are left.
#[cold]
fn read_last(bytes: &[u8], from: usize) -> u64 {
    let mut eight = [0; 8];
    if let Some(last) = bytes.get(from..) {
        eight[..last.len()].copy_from_slice(last);
    }
    u64::from_le_bytes(eight)
}

/// 64 bits from bit `at` on.
#[inline(always)]
pub(crate) fn read_word(words: &[u64], at: usize) -> u64 {
    let (index, shift) = (at / 64, (at % 64) as u32);
    let low = word(words, index) >> shift;
    // Two shifts, because one by 64 is none.
    low | word(words, index + 1) << 1 << (63 - shift)
}

/// Runs `work` compiled for bit-counting instructions (x86-64 `popcnt`, `bmi1`, `bmi2`, `lzcnt`) where the
/// processor has them, and as it is elsewhere. What `work` calls must be inlined into it to gain.
///
/// Without them every count of ones is a dozen instructions. Measured on an EPYC, 72 M tokens: a step went
/// from 1.4–2.2 µs to 0.8–1.0 µs (median) when this, [`read`] by one load and [`prefetch`] came together.
#[inline(always)]
pub(crate) fn with_bit_instructions<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "popcnt,bmi1,bmi2,lzcnt")]
        fn run<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
        {
            // SAFETY: the processor was just found to have every feature that `run` is compiled for.
            return unsafe { run(work) };
        }
    }
    work()
}

/// Asks the processor to load the cache lines of `words`, the first 16 at most, which are read soon. A
/// hint: nothing is read.
#[inline(always)]
pub(crate) fn prefetch(words: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    for line in words.chunks(8).take(16) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address has no effect that a program can see; this one is valid.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}

/// Position of the `rank`-th (from 0) one of a word, which has more than `rank` ones.
#[inline(always)]
fn select_in_word(word: u64, rank: u32) -> u32 {
    // Halving by population counts: six steps, no table.
    let mut rank = rank;
    let mut at = 0;
    for width in [32, 16, 8, 4, 2, 1] {
        let ones = (word >> at & low_mask(width)).count_ones();
        if rank >= ones {
            rank -= ones;
            at += width;
        }
    }
    at
}

/// Position, counted from bit `from`, of the `rank`-th (from 0) one at or after `from` and before
/// `from + limit`; `limit` if there are not as many.
#[inline(always)]
pub(crate) fn select_one(words: &[u64], from: usize, limit: usize, rank: usize) -> usize {
    let mut rank = rank as u32;
    let mut done = 0;
    // A damaged limit does not make the search longer than the words.
    let readable = limit.min((words.len() * 64).saturating_sub(from));
    while done < readable {
        let chunk = read_word(words, from + done);
        let ones = chunk.count_ones();
        if ones > rank {
            return (done + select_in_word(chunk, rank) as usize).min(limit);
        }
        rank -= ones;
        done += 64;
    }
    limit
}

/// As [`select_one`], for zeros.
#[inline(always)]
pub(crate) fn select_zero(words: &[u64], from: usize, limit: usize, rank: usize) -> usize {
    let mut rank = rank as u32;
    let mut done = 0;
    // A damaged limit does not make the search longer than the words.
    let readable = limit.min((words.len() * 64).saturating_sub(from));
    while done < readable {
        let chunk = !read_word(words, from + done);
        let zeros = chunk.count_ones();
        if zeros > rank {
            return (done + select_in_word(chunk, rank) as usize).min(limit);
        }
        rank -= zeros;
        done += 64;
    }
    limit
}

/// An ascending list of distinct numbers below a universe (Elias 1974, Fano 1971), at a place in a bit
/// string: `count + (universe >> low)` unary bits for the high parts, then `low` bits a number;
/// `2 + log2(universe / count)` bits a number at most. Count and universe are known from elsewhere.
///
/// The high part of number `i` is the position of the `i`-th one of the unary bits, less `i`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EliasFano {
    at: usize,
    count: usize,
    low: u32,
    high_bits: usize,
}

impl EliasFano {
    /// The list of `count` numbers below `universe` that starts at bit `at`.
    #[inline(always)]
    pub(crate) fn new(at: usize, count: usize, universe: usize) -> Self {
        if count == 0 {
            return Self {
                at,
                count,
                low: 0,
                high_bits: 0,
            };
        }
        Self::with_low(at, count, (universe / count).max(1).ilog2(), universe)
    }

    /// As [`EliasFano::new`] with the low bits known, which spares a division.
    #[inline(always)]
    pub(crate) fn with_low(at: usize, count: usize, low: u32, universe: usize) -> Self {
        Self {
            at,
            count,
            low,
            high_bits: if count == 0 {
                0
            } else {
                count + (universe >> low) + 1
            },
        }
    }

    /// Number of numbers.
    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// Low bits a number.
    pub(crate) fn low_bits(self) -> u32 {
        self.low
    }

    /// Bits that the list takes.
    #[inline(always)]
    pub(crate) fn bits(self) -> usize {
        self.high_bits + self.count * self.low as usize
    }

    /// Bit after the list.
    #[inline(always)]
    pub(crate) fn end(self) -> usize {
        self.at + self.bits()
    }

    pub(crate) fn write(numbers: &[u32], universe: usize, into: &mut BitWriter) {
        let list = Self::new(into.len(), numbers.len(), universe);
        let mut written = 0;
        for (at, &number) in numbers.iter().enumerate() {
            let one = (number as usize >> list.low) + at;
            into.zeros(one - written);
            into.push(1, 1);
            written = one + 1;
        }
        if !numbers.is_empty() {
            into.zeros(list.high_bits - written);
        }
        for &number in numbers {
            into.push(u64::from(number) & low_mask(list.low), list.low);
        }
        debug_assert_eq!(into.len(), list.end());
    }

    #[inline(always)]
    fn low_part(self, words: &[u64], index: usize) -> usize {
        let at = self.at + self.high_bits + index * self.low as usize;
        read(words, at, self.low) as usize
    }

    /// The number at an index below the count.
    #[inline(always)]
    pub(crate) fn get(self, words: &[u64], index: usize) -> usize {
        let one = select_one(words, self.at, self.high_bits, index);
        (one.saturating_sub(index)) << self.low | self.low_part(words, index)
    }

    /// How many numbers are below `number`, and whether `number` is in the list.
    #[inline(always)]
    pub(crate) fn rank(self, words: &[u64], number: usize) -> (usize, bool) {
        if self.count == 0 {
            return (0, false);
        }
        let high = number >> self.low;
        // Numbers of smaller high parts are the ones before the zero that ends the part before.
        let mut at = match high {
            0 => 0,
            _ => select_zero(words, self.at, self.high_bits, high - 1) + 1,
        };
        let mut index = at.saturating_sub(high).min(self.count);
        let low = number & low_mask(self.low) as usize;
        while index < self.count && read(words, self.at + at, 1) == 1 {
            let other = self.low_part(words, index);
            if other >= low {
                return (index, other == low);
            }
            index += 1;
            at += 1;
        }
        (index, false)
    }

    /// Calls `each` with every index and number, in order.
    #[inline(always)]
    pub(crate) fn each(self, words: &[u64], mut each: impl FnMut(usize, usize)) {
        let mut index = 0;
        let mut done = 0;
        let mut low_at = self.at + self.high_bits;
        while done < self.high_bits && index < self.count {
            let mut chunk = read_word(words, self.at + done);
            while chunk != 0 && index < self.count {
                let one = done + chunk.trailing_zeros() as usize;
                chunk &= chunk - 1;
                let low = read(words, low_at, self.low) as usize;
                low_at += self.low as usize;
                each(index, one.saturating_sub(index) << self.low | low);
                index += 1;
            }
            done += 64;
        }
    }
}

/// Numbers of a fixed width, as many whole ones a word as fit; words start at a word boundary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    /// First word.
    pub(crate) start: usize,
    width: u32,
    per_word: u32,
}

impl Fields {
    /// Numbers of `width <= 16` bits from word `start` on.
    #[inline(always)]
    pub(crate) fn new(start: usize, width: u32) -> Self {
        // A table beside a division: widths are few, and a division is slow.
        const PER_WORD: [u8; 17] = [64, 64, 32, 21, 16, 12, 10, 9, 8, 7, 6, 5, 5, 4, 4, 4, 4];
        Self {
            start,
            width,
            per_word: u32::from(PER_WORD[width as usize & 15]),
        }
    }

    /// Words that `count` numbers take.
    #[inline(always)]
    pub(crate) fn words(self, count: usize) -> usize {
        if self.width == 0 {
            0
        } else {
            count.div_ceil(self.per_word as usize)
        }
    }

    pub(crate) fn write(numbers: impl Iterator<Item = u32>, width: u32, into: &mut BitWriter) {
        if width == 0 {
            return;
        }
        let fields = Self::new(0, width);
        let mut in_word = 0;
        for number in numbers {
            if in_word == fields.per_word {
                into.align();
                in_word = 0;
            }
            into.push(u64::from(number), width);
            in_word += 1;
        }
        into.align();
    }

    #[inline(always)]
    pub(crate) fn get(self, words: &[u64], index: usize) -> usize {
        if self.width == 0 {
            return 0;
        }
        let index = index as u32;
        let (at, field) = (index / self.per_word, index % self.per_word);
        (word(words, self.start + at as usize) >> (field * self.width) & low_mask(self.width))
            as usize
    }

    /// How many of the first `count` numbers equal `number`. All fields of a word are compared at once
    /// (Lamport 1975: multiple byte processing).
    #[inline(always)]
    pub(crate) fn count_equal(self, words: &[u64], count: usize, number: usize) -> usize {
        if self.width == 0 {
            return if number == 0 { count } else { 0 };
        }
        // One bit at the bottom of each field, by width.
        let bottoms = BOTTOMS[self.width as usize & 15];
        let tops = bottoms << (self.width - 1);
        let rest = bottoms.wrapping_mul(low_mask(self.width)) & !tops;
        let pattern = bottoms.wrapping_mul(number as u64);
        let differing = |word: u64| {
            let x = word ^ pattern;
            ((x & rest).wrapping_add(rest) | x) & tops
        };
        let count = count as u32;
        let (whole, part) = (count / self.per_word, count % self.per_word);
        let mut different = 0;
        for at in 0..whole as usize {
            different += differing(word(words, self.start + at)).count_ones();
        }
        if part > 0 {
            let last = differing(word(words, self.start + whole as usize));
            different += (last & low_mask(part * self.width)).count_ones();
        }
        (count - different.min(count)) as usize
    }

    /// Calls `each` with the numbers at `from..to`, in order.
    #[inline(always)]
    pub(crate) fn each(self, words: &[u64], from: usize, to: usize, mut each: impl FnMut(usize)) {
        if self.width == 0 {
            for _ in from..to {
                each(0);
            }
            return;
        }
        let (mut index, to) = (from as u32, to as u32);
        let mut at = (index / self.per_word) as usize;
        let mut skipped = index % self.per_word;
        while index < to {
            let mut fields = word(words, self.start + at) >> (skipped * self.width);
            let here = (self.per_word - skipped).min(to - index);
            for _ in 0..here {
                each((fields & low_mask(self.width)) as usize);
                fields >>= self.width;
            }
            index += here;
            skipped = 0;
            at += 1;
        }
    }
}

/// For each width, a word with the bottom bit of every field set.
const BOTTOMS: [u64; 16] = {
    let mut table = [0; 16];
    let mut width = 1;
    while width < 16 {
        let mut at = 0;
        while at + width <= 64 {
            table[width] |= 1 << at;
            at += width;
        }
        width += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn elias_fano_is_the_list(
            mut numbers in prop::collection::vec(0u32..5000, 0..400),
            universe in 5000usize..9000,
            offset in 0usize..130,
        ) {
            numbers.sort_unstable();
            numbers.dedup();
            let mut bits = BitWriter::default();
            bits.zeros(offset);
            EliasFano::write(&numbers, universe, &mut bits);
            bits.push(low_mask(64), 64);
            let list = EliasFano::new(offset, numbers.len(), universe);
            let words = &bits.into_words()[..];
            let mut listed = Vec::new();
            list.each(words, |index, number| {
                assert_eq!(index, listed.len());
                listed.push(number as u32);
            });
            prop_assert_eq!(&listed, &numbers);
            for (index, &number) in numbers.iter().enumerate() {
                prop_assert_eq!(list.get(words, index), number as usize);
            }
            for number in (0..universe).step_by(7).chain(numbers.iter().map(|&n| n as usize)) {
                let below = numbers.partition_point(|&n| (n as usize) < number);
                let present = numbers.get(below).is_some_and(|&n| n as usize == number);
                prop_assert_eq!(list.rank(words, number), (below, present));
            }
        }

        #[test]
        fn fields_are_the_numbers(
            width in 0u32..10,
            numbers in prop::collection::vec(0u32..1024, 0..300),
            from in 0usize..300,
        ) {
            let numbers: Vec<u32> = numbers.iter().map(|n| n & low_mask(width) as u32).collect();
            let mut bits = BitWriter::default();
            bits.zeros(128);
            Fields::write(numbers.iter().copied(), width, &mut bits);
            let fields = Fields::new(2, width);
            let words = &bits.into_words()[..];
            prop_assert_eq!(words.len(), 2 + fields.words(numbers.len()));
            let from = from.min(numbers.len());
            let mut listed = Vec::new();
            fields.each(words, from, numbers.len(), |n| listed.push(n as u32));
            prop_assert_eq!(&listed, &numbers[from..]);
            for (at, &number) in numbers.iter().enumerate() {
                prop_assert_eq!(fields.get(words, at), number as usize);
                let before = numbers[..at].iter().filter(|&&n| n == number).count();
                prop_assert_eq!(fields.count_equal(words, at, number as usize), before);
            }
        }

        #[test]
        fn select_finds_ones_and_zeros(bits in prop::collection::vec(any::<bool>(), 1..300), from in 0usize..70) {
            let mut writer = BitWriter::default();
            writer.zeros(from);
            for &bit in &bits {
                writer.push(u64::from(bit), 1);
            }
            let words = &writer.into_words()[..];
            for wanted in [true, false] {
                let select = if wanted { select_one } else { select_zero };
                let places: Vec<usize> = (0..bits.len()).filter(|&at| bits[at] == wanted).collect();
                for (rank, &place) in places.iter().enumerate() {
                    prop_assert_eq!(select(words, from, bits.len(), rank), place);
                }
                prop_assert_eq!(select(words, from, bits.len(), places.len()), bits.len());
            }
        }
    }

    #[test]
    fn nothing_beyond_the_words_is_read() {
        let list = EliasFano::new(1 << 40, 300, 100_000);
        let _ = (list.get(&[], 299), list.rank(&[1], 99_999));
        list.each(&[u64::MAX], |_, _| {});
        assert_eq!(read(&[], usize::MAX / 2, 57), 0);
        assert_eq!(read_word(&[], usize::MAX / 2), 0);
        assert_eq!(read(&[u64::MAX], 60, 57), 15);
        assert_eq!(read_word(&[u64::MAX, 1], 60), 31);
        assert_eq!(width_for(0) + width_for(1), 0);
        assert_eq!((width_for(2), width_for(256), width_for(257)), (1, 8, 9));
    }
}
