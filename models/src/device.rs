//! Where a model runs.

use std::str::FromStr;

use crate::error::{ModelError, Result};

/// A device by name: `cpu`, `cuda`, `cuda:1`, `metal`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor, with the instructions found at run time.
    #[default]
    Cpu,
    /// A CUDA device by number.
    Cuda(usize),
    /// A Metal device by number.
    Metal(usize),
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => write!(f, "cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Metal(number) => write!(f, "metal:{number}"),
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
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", Some(number)) => Ok(Self::Cuda(number)),
            ("metal", Some(number)) => Ok(Self::Metal(number)),
            _ => Err(ModelError::Device {
                device: text.to_owned(),
                problem: "unknown; expected cpu, cuda, cuda:N or metal".to_owned(),
            }),
        }
    }
}

impl Device {
    /// Refuses a device that language models cannot run on in this build.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda(_) | Self::Metal(_) => Err(ModelError::Device {
                device: self.to_string(),
                problem: "language models run on the processor in this build; use cpu".to_owned(),
            }),
        }
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
        ] {
            assert_eq!(text.parse::<Device>().unwrap(), device);
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        for text in ["", "gpu", "cuda:x", "cuda:-1"] {
            assert!(text.parse::<Device>().is_err());
        }
    }
}
