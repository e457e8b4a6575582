//! Where a model runs.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::error::{ModelError, Result};

/// A device by name: `cpu`, `cuda`, `cuda:1`, `metal`, `cpu-tensors`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// The processor, with this crate's kernels and the instructions found at run time.
    #[default]
    Cpu,
    /// A CUDA device by number, in builds with the feature `cuda`.
    Cuda(usize),
    /// A Metal device by number, in builds with the feature `metal`.
    Metal(usize),
    /// The processor, by the tensor operations that run on the other devices: slower than [`Device::Cpu`], and there to
    /// compare with.
    Tensors,
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => write!(f, "cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Metal(number) => write!(f, "metal:{number}"),
            Self::Tensors => write!(f, "cpu-tensors"),
        }
    }
}

impl FromStr for Device {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, number) = text
            .split_once(':')
            .map_or((text, Some(0)), |(kind, n)| (kind, n.parse().ok()));
        match (kind, number) {
            ("cpu", Some(0)) => Ok(Self::Cpu),
            ("cpu-tensors", Some(0)) => Ok(Self::Tensors),
            ("cuda", Some(number)) => Ok(Self::Cuda(number)),
            ("metal", Some(number)) => Ok(Self::Metal(number)),
            _ => Err(ModelError::Device {
                device: text.to_owned(),
                problem: "unknown; expected cpu, cuda, cuda:N, metal or cpu-tensors".to_owned(),
            }),
        }
    }
}

/// Devices that were opened: tensors of two openings of one device could not meet.
static OPENED: LazyLock<Mutex<HashMap<Device, candle_core::Device>>> =
    LazyLock::new(Mutex::default);

impl Device {
    /// Refuses a device on which nothing could run, before a model is looked for.
    ///
    /// # Errors
    /// This build has no support for it, or there is no such device.
    pub fn check(self) -> Result<()> {
        self.open().map(drop)
    }

    /// Opens what language models run on through candle; `None` for the processor, which this crate's own kernels use.
    ///
    /// # Errors
    /// This build has no support for it, or there is no such device.
    pub(crate) fn open(self) -> Result<Option<candle_core::Device>> {
        let error = |problem: String| ModelError::Device {
            device: self.to_string(),
            problem,
        };
        let missing = |feature: &str| {
            error(format!(
                "this build has no support for it; build with `cargo build --release --features {feature}`, or use cpu"
            ))
        };
        match self {
            Self::Cpu => return Ok(None),
            Self::Tensors => return Ok(Some(candle_core::Device::Cpu)),
            Self::Cuda(_) if !cfg!(feature = "cuda") => return Err(missing("cuda")),
            Self::Metal(_) if !cfg!(feature = "metal") => return Err(missing("metal")),
            Self::Cuda(_) | Self::Metal(_) => {}
        }
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get(&self) {
            return Ok(Some(device.clone()));
        }
        let device = match self {
            Self::Metal(number) => candle_core::Device::new_metal(number),
            Self::Cuda(number) => candle_core::Device::new_cuda(number),
            Self::Cpu | Self::Tensors => Ok(candle_core::Device::Cpu),
        }
        .map_err(|e| error(format!("cannot be opened: {e}; name another, or use cpu")))?;
        opened.insert(self, device.clone());
        Ok(Some(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (text, device) in [
            ("cpu", Device::Cpu),
            ("cuda", Device::Cuda(0)),
            ("cuda:2", Device::Cuda(2)),
            ("metal", Device::Metal(0)),
            ("cpu-tensors", Device::Tensors),
        ] {
            assert_eq!(text.parse::<Device>().unwrap(), device);
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        for text in ["", "gpu", "cuda:x", "cuda:-1", "cpu:x", "cpu:1", "CPU"] {
            assert!(text.parse::<Device>().is_err());
        }
    }

    #[test]
    fn a_device_that_was_not_compiled_in_is_refused_with_the_feature_that_brings_it() {
        assert!(Device::Cpu.open().unwrap().is_none());
        assert!(Device::Tensors.open().unwrap().is_some());
        for (device, feature, built) in [
            (Device::Cuda(0), "cuda", cfg!(feature = "cuda")),
            (Device::Metal(0), "metal", cfg!(feature = "metal")),
        ] {
            if !built {
                let message = device.open().unwrap_err().to_string();
                assert!(
                    message.contains(&format!("--features {feature}")),
                    "{message}"
                );
            }
        }
    }
}
