//! Sixteen floating-point numbers side by side: the one vector type the kernels are written in.
//!
//! Each lane always belongs to one output, and every output is summed up in one fixed order. So a product has the
//! same bits whether a token is computed alone or in a batch, and on every machine that fuses multiply and add.

/// Lanes in a vector, and rows in a panel of a matrix.
pub(crate) const LANES: usize = 16;

/// A vector of [`LANES`] numbers.
///
/// # Safety
/// All functions are unsafe because an implementation may use instructions that not every processor has: they may
/// only be called where the processor has been found to have them.
pub(crate) trait Lanes: Copy {
    unsafe fn zero() -> Self;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(values: &[f32; LANES]) -> Self;
    unsafe fn store(self, to: &mut [f32; LANES]);
    /// `self * factor + addend`, fused where the processor can.
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// Signed bytes as numbers.
    unsafe fn from_bytes(bytes: &[i8; LANES]) -> Self;
    /// The low and the high halves of bytes as numbers from 0 to 15.
    unsafe fn from_nibbles(bytes: &[u8; LANES]) -> (Self, Self);
    /// Upper halves of 32-bit floats (bfloat16).
    unsafe fn from_brain(bits: &[u16; LANES]) -> Self;
    /// IEEE half precision; infinities and NaN are not kept.
    unsafe fn from_half(bits: &[u16; LANES]) -> Self;
}

/// A half-precision number as a 32-bit float, by shifting the exponent; subnormals are exact.
#[inline(always)]
pub(crate) fn half_to_single(bits: u16) -> f32 {
    let magnitude = f32::from_bits((u32::from(bits) & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    f32::from_bits(magnitude.to_bits() | ((u32::from(bits) & 0x8000) << 16))
}

/// Plain Rust for any processor.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; LANES]);

impl Lanes for Plain {
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; LANES])
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; LANES])
    }
    #[inline(always)]
    unsafe fn load(values: &[f32; LANES]) -> Self {
        Self(*values)
    }
    #[inline(always)]
    unsafe fn store(self, to: &mut [f32; LANES]) {
        *to = self.0;
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        let mut out = addend.0;
        for (sum, (a, b)) in out.iter_mut().zip(self.0.iter().zip(&factor.0)) {
            // A fused multiply-add in software would be a hundred times slower than the rounding it saves.
            *sum = if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                a.mul_add(*b, *sum)
            } else {
                a * b + *sum
            };
        }
        Self(out)
    }
    #[inline(always)]
    unsafe fn from_bytes(bytes: &[i8; LANES]) -> Self {
        Self(bytes.map(f32::from))
    }
    #[inline(always)]
    unsafe fn from_nibbles(bytes: &[u8; LANES]) -> (Self, Self) {
        (
            Self(bytes.map(|b| f32::from(b & 15))),
            Self(bytes.map(|b| f32::from(b >> 4))),
        )
    }
    #[inline(always)]
    unsafe fn from_brain(bits: &[u16; LANES]) -> Self {
        Self(bits.map(|b| f32::from_bits(u32::from(b) << 16)))
    }
    #[inline(always)]
    unsafe fn from_half(bits: &[u16; LANES]) -> Self {
        Self(bits.map(half_to_single))
    }
}

/// AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Avx2(core::arch::x86_64::__m256, core::arch::x86_64::__m256);

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Avx2, LANES, Lanes};
    use core::arch::x86_64::*;

    // SAFETY, for all blocks here: the caller vouches for AVX2, FMA and F16C (the trait's contract); loads and
    // stores are unaligned ones and stay inside the arrays they are given, which hold sixteen elements.
    impl Lanes for Avx2 {
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: as above.
            unsafe { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: as above.
            unsafe {
                let both = _mm256_set1_ps(value);
                Self(both, both)
            }
        }
        #[inline(always)]
        unsafe fn load(values: &[f32; LANES]) -> Self {
            let at = values.as_ptr();
            // SAFETY: as above.
            unsafe { Self(_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))) }
        }
        #[inline(always)]
        unsafe fn store(self, to: &mut [f32; LANES]) {
            let at = to.as_mut_ptr();
            // SAFETY: as above.
            unsafe {
                _mm256_storeu_ps(at, self.0);
                _mm256_storeu_ps(at.add(8), self.1);
            }
        }
        #[inline(always)]
        unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
            // SAFETY: as above.
            unsafe {
                Self(
                    _mm256_fmadd_ps(self.0, factor.0, addend.0),
                    _mm256_fmadd_ps(self.1, factor.1, addend.1),
                )
            }
        }
        #[inline(always)]
        unsafe fn from_bytes(bytes: &[i8; LANES]) -> Self {
            let at = bytes.as_ptr();
            // SAFETY: as above.
            unsafe {
                let low = _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()));
                let high = _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.add(8).cast()));
                Self(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
            }
        }
        #[inline(always)]
        unsafe fn from_nibbles(bytes: &[u8; LANES]) -> (Self, Self) {
            let at = bytes.as_ptr();
            // SAFETY: as above.
            unsafe {
                let mask = _mm256_set1_epi32(15);
                let left = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast()));
                let right = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.add(8).cast()));
                let low = Self(
                    _mm256_cvtepi32_ps(_mm256_and_si256(left, mask)),
                    _mm256_cvtepi32_ps(_mm256_and_si256(right, mask)),
                );
                let high = Self(
                    _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(left)),
                    _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(right)),
                );
                (low, high)
            }
        }
        #[inline(always)]
        unsafe fn from_brain(bits: &[u16; LANES]) -> Self {
            let at = bits.as_ptr();
            // SAFETY: as above.
            unsafe {
                let left = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
                let right = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.add(8).cast()));
                Self(
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(left)),
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(right)),
                )
            }
        }
        #[inline(always)]
        unsafe fn from_half(bits: &[u16; LANES]) -> Self {
            let at = bits.as_ptr();
            // SAFETY: as above.
            unsafe {
                Self(
                    _mm256_cvtph_ps(_mm_loadu_si128(at.cast())),
                    _mm256_cvtph_ps(_mm_loadu_si128(at.add(8).cast())),
                )
            }
        }
    }
}

/// Which implementation of [`Lanes`] runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instructions {
    /// Plain Rust.
    Plain,
    /// AVX2, FMA and F16C, found at run time.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Instructions {
    /// The best this processor has.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            return Self::Avx2;
        }
        Self::Plain
    }
}

/// Defines a function that runs `$generic::<Lanes>` with the instructions its first argument names.
macro_rules! by_instructions {
    ($(#[$meta:meta])* $visible:vis fn $name:ident($($argument:ident: $kind:ty),* $(,)?) = $generic:ident) => {
        $(#[$meta])*
        $visible fn $name(instructions: $crate::kernels::lanes::Instructions, $($argument: $kind),*) {
            use $crate::kernels::lanes::{Instructions, Plain};
            match instructions {
                // SAFETY: plain Rust asks nothing of the processor.
                Instructions::Plain => unsafe { $generic::<Plain>($($argument),*) },
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx2 => {
                    use $crate::kernels::lanes::Avx2;
                    #[target_feature(enable = "avx2,fma,f16c")]
                    fn with_avx2($($argument: $kind),*) {
                        // SAFETY: this function is only entered with the features it enables.
                        unsafe { $generic::<Avx2>($($argument),*) }
                    }
                    // SAFETY: `Instructions::Avx2` only comes from `detect`, which has found these features.
                    unsafe { with_avx2($($argument),*) }
                }
            }
        }
    };
}
pub(crate) use by_instructions;

#[cfg(test)]
mod tests {
    use super::*;

    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn all_operations<V: Lanes>(out: &mut Vec<[f32; LANES]>) {
        let bytes: [i8; LANES] =
            std::array::from_fn(|i| (i as i8).wrapping_mul(17).wrapping_sub(127).wrapping_sub(1));
        let nibbles: [u8; LANES] = std::array::from_fn(|i| (i as u8).wrapping_mul(37));
        let halves: [u16; LANES] = std::array::from_fn(|i| (i as u16).wrapping_mul(4099) & 0xbbff);
        let floats: [f32; LANES] = std::array::from_fn(|i| i as f32 * 0.5 - 3.0);
        let mut push = |v: V| {
            let mut to = [0.0; LANES];
            // SAFETY: the caller's.
            unsafe { v.store(&mut to) };
            out.push(to);
        };
        // SAFETY: the caller's.
        unsafe {
            push(V::zero());
            push(V::splat(2.5));
            push(V::load(&floats));
            push(V::load(&floats).mul_add(V::splat(2.0), V::splat(1.0)));
            push(V::from_bytes(&bytes));
            let (low, high) = V::from_nibbles(&nibbles);
            push(low);
            push(high);
            push(V::from_brain(&halves));
            push(V::from_half(&halves));
        }
    }

    by_instructions!(fn run_all(out: &mut Vec<[f32; LANES]>) = all_operations);

    #[test]
    fn every_implementation_gives_the_same() {
        let (mut plain, mut best) = (Vec::new(), Vec::new());
        run_all(Instructions::Plain, &mut plain);
        run_all(Instructions::detect(), &mut best);
        assert_eq!(plain, best);
        assert_eq!(plain[3][2], -3.0);
        assert_eq!(plain[4][0], -128.0);
    }

    #[test]
    fn half_precision_is_exact() {
        for bits in (0..=u16::MAX).filter(|b| b & 0x7c00 != 0x7c00) {
            let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let magnitude = match exponent {
                0 => mantissa * 2f64.powi(-24),
                _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
            };
            let expected = if bits >> 15 == 1 {
                -magnitude
            } else {
                magnitude
            } as f32;
            assert_eq!(
                half_to_single(bits).to_bits(),
                expected.to_bits(),
                "{bits:#06x}"
            );
        }
    }
}
