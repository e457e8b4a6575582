//! The block formats of GGUF, taken apart without loss: small integers, with a scale and an offset per group.
//!
//! Every format here is of the form `value = scale · integer + offset`; layouts are those of ggml's quants.

use candle_core::quantized::GgmlDType;

use super::lanes::half_to_single;

/// How a format's integers are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grouping {
    /// Integers that share a scale.
    pub(crate) group: usize,
    /// Whether all integers lie between 0 and 15.
    pub(crate) nibbles: bool,
    /// Whether groups have an offset.
    pub(crate) offsets: bool,
}

/// The grouping of a format, or `None` for one that is not of this form.
pub(crate) fn grouping(dtype: GgmlDType) -> Option<Grouping> {
    let (group, nibbles, offsets) = match dtype {
        GgmlDType::Q4_0 | GgmlDType::Q4_1 | GgmlDType::Q4K => (32, true, true),
        GgmlDType::Q2K => (16, true, true),
        GgmlDType::Q5_0 | GgmlDType::Q8_0 => (32, false, false),
        GgmlDType::Q5_1 | GgmlDType::Q5K => (32, false, true),
        GgmlDType::Q3K | GgmlDType::Q6K => (16, false, false),
        _ => return None,
    };
    Some(Grouping {
        group,
        nibbles,
        offsets,
    })
}

/// One row taken apart.
#[derive(Default)]
pub(crate) struct Row {
    /// The integers, in the order of the columns.
    pub(crate) integers: Vec<i8>,
    /// A scale per group.
    pub(crate) scales: Vec<f32>,
    /// An offset per group; empty for formats without.
    pub(crate) offsets: Vec<f32>,
}

fn half(bytes: &[u8], at: usize) -> f32 {
    half_to_single(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// The 6-bit scale and minimum of sub-block `i` of a Q4_K or Q5_K block.
fn scale_and_minimum(packed: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        (packed[i] & 63, packed[i + 4] & 63)
    } else {
        (
            (packed[i + 4] & 15) | ((packed[i - 4] >> 6) << 4),
            (packed[i + 4] >> 4) | ((packed[i] >> 6) << 4),
        )
    }
}

impl Row {
    /// Takes the blocks of one row apart; `bytes` holds whole blocks of `dtype`, which has a [`grouping`].
    pub(crate) fn decode(&mut self, dtype: GgmlDType, bytes: &[u8]) {
        self.integers.clear();
        self.scales.clear();
        self.offsets.clear();
        for block in bytes.chunks_exact(dtype.type_size()) {
            match dtype {
                GgmlDType::Q4_0 => {
                    let scale = half(block, 0);
                    self.group(scale, Some(-8.0 * scale));
                    self.halves(&block[2..18]);
                }
                GgmlDType::Q4_1 => {
                    self.group(half(block, 0), Some(half(block, 2)));
                    self.halves(&block[4..20]);
                }
                GgmlDType::Q5_0 => {
                    self.group(half(block, 0), None);
                    self.five_bits(&block[2..6], &block[6..22], 16);
                }
                GgmlDType::Q5_1 => {
                    self.group(half(block, 0), Some(half(block, 2)));
                    self.five_bits(&block[4..8], &block[8..24], 0);
                }
                GgmlDType::Q8_0 => {
                    self.group(half(block, 0), None);
                    self.integers.extend(block[2..34].iter().map(|&b| b as i8));
                }
                GgmlDType::Q2K => self.q2k(block),
                GgmlDType::Q3K => self.q3k(block),
                GgmlDType::Q4K => self.q4k(block),
                GgmlDType::Q5K => self.q5k(block),
                GgmlDType::Q6K => self.q6k(block),
                // Formats without a grouping are handled where matrices are made.
                _ => {}
            }
        }
    }

    fn group(&mut self, scale: f32, offset: Option<f32>) {
        self.scales.push(scale);
        self.offsets.extend(offset);
    }

    /// Sixteen bytes: the low halves first, then the high ones.
    fn halves(&mut self, bytes: &[u8]) {
        self.integers.extend(bytes.iter().map(|b| (b & 15) as i8));
        self.integers.extend(bytes.iter().map(|b| (b >> 4) as i8));
    }

    fn five_bits(&mut self, high: &[u8], low: &[u8], centre: i8) {
        let high = u32::from_le_bytes([high[0], high[1], high[2], high[3]]);
        for i in 0..32 {
            let four = if i < 16 {
                low[i] & 15
            } else {
                low[i - 16] >> 4
            };
            let fifth = ((high >> i) & 1) as u8;
            self.integers.push((four | (fifth << 4)) as i8 - centre);
        }
    }

    fn q2k(&mut self, block: &[u8]) {
        let (scales, quants) = (&block[..16], &block[16..80]);
        let (scale, minimum) = (half(block, 80), half(block, 82));
        for &both in scales {
            let offset = -(minimum * f32::from(both >> 4));
            self.group(scale * f32::from(both & 15), Some(offset));
        }
        for part in quants.chunks_exact(32) {
            for shift in [0, 2, 4, 6] {
                self.integers
                    .extend(part.iter().map(|q| ((q >> shift) & 3) as i8));
            }
        }
    }

    fn q3k(&mut self, block: &[u8]) {
        let (high, quants, packed) = (&block[..32], &block[32..96], &block[96..108]);
        let scale = half(block, 108);
        for i in 0..16 {
            let low = if i < 8 {
                packed[i] & 15
            } else {
                packed[i - 8] >> 4
            };
            let upper = (packed[8 + i % 4] >> (2 * (i / 4))) & 3;
            let six = (low | (upper << 4)) as i8 - 32;
            self.group(scale * f32::from(six), None);
        }
        for (n, part) in quants.chunks_exact(32).enumerate() {
            for step in 0..4 {
                let bit = 1u8 << (n * 4 + step);
                for (q, h) in part.iter().zip(high) {
                    let low = ((q >> (2 * step)) & 3) as i8;
                    self.integers.push(if h & bit == 0 { low - 4 } else { low });
                }
            }
        }
    }

    fn q4k(&mut self, block: &[u8]) {
        let (scale, minimum) = (half(block, 0), half(block, 2));
        for i in 0..8 {
            let (s, m) = scale_and_minimum(&block[4..16], i);
            self.group(scale * f32::from(s), Some(-(minimum * f32::from(m))));
        }
        for part in block[16..144].chunks_exact(32) {
            self.integers.extend(part.iter().map(|b| (b & 15) as i8));
            self.integers.extend(part.iter().map(|b| (b >> 4) as i8));
        }
    }

    fn q5k(&mut self, block: &[u8]) {
        let (scale, minimum) = (half(block, 0), half(block, 2));
        for i in 0..8 {
            let (s, m) = scale_and_minimum(&block[4..16], i);
            self.group(scale * f32::from(s), Some(-(minimum * f32::from(m))));
        }
        let high = &block[16..48];
        for (n, part) in block[48..176].chunks_exact(32).enumerate() {
            for upper in [0, 1] {
                let bit = 2 * n + upper;
                for (q, h) in part.iter().zip(high) {
                    let four = if upper == 0 { q & 15 } else { q >> 4 };
                    self.integers.push((four | (((h >> bit) & 1) << 4)) as i8);
                }
            }
        }
    }

    fn q6k(&mut self, block: &[u8]) {
        let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
        let scale = half(block, 208);
        for &s in scales {
            self.group(scale * f32::from(s as i8), None);
        }
        for n in 0..2 {
            let (low, high) = (&low[64 * n..64 * n + 64], &high[32 * n..32 * n + 32]);
            for part in 0..4 {
                for i in 0..32 {
                    let byte = low[i + 32 * (part % 2)];
                    let four = if part < 2 { byte & 15 } else { byte >> 4 };
                    let two = (high[i] >> (2 * part)) & 3;
                    self.integers.push((four | (two << 4)) as i8 - 32);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::QTensor;
    use candle_core::{Device, Tensor};

    #[test]
    fn every_format_equals_candles_dequantisation() {
        let values: Vec<f32> = (0..1024)
            .map(|i| ((i * 7919 % 1009) as f32 / 300.0 - 1.6).powi(3))
            .collect();
        let tensor = Tensor::from_vec(values, (2, 512), &Device::Cpu).unwrap();
        for dtype in [
            GgmlDType::Q4_0,
            GgmlDType::Q4_1,
            GgmlDType::Q5_0,
            GgmlDType::Q5_1,
            GgmlDType::Q8_0,
            GgmlDType::Q2K,
            GgmlDType::Q3K,
            GgmlDType::Q4K,
            GgmlDType::Q5K,
            GgmlDType::Q6K,
        ] {
            let quantised = QTensor::quantize(&tensor, dtype).unwrap();
            let expected: Vec<f32> = quantised
                .dequantize(&Device::Cpu)
                .unwrap()
                .flatten_all()
                .unwrap()
                .to_vec1()
                .unwrap();
            let layout = grouping(dtype).unwrap();
            let mut row = Row::default();
            row.decode(dtype, &quantised.data().unwrap());
            assert_eq!(row.integers.len(), 1024, "{dtype:?}");
            assert_eq!(row.scales.len(), 1024 / layout.group);
            assert_eq!(row.offsets.is_empty(), !layout.offsets);
            for (i, (&integer, &wanted)) in row.integers.iter().zip(&expected).enumerate() {
                assert!(!layout.nibbles || (0..16).contains(&integer));
                let group = i / layout.group;
                let offset = row.offsets.get(group).copied().unwrap_or(0.0);
                let value = row.scales[group] * f32::from(integer) + offset;
                assert!(
                    (value - wanted).abs() <= 2e-6 * (1.0 + wanted.abs()),
                    "{dtype:?} {i}: {value} for {wanted}"
                );
            }
        }
    }
}
