//! Settings from a TOML file and from `--set KEY=VALUE`, on top of the defaults.

use std::path::Path;

use decoder::Settings;
use serde_json::Value;

/// A file larger than this holds no settings.
const MOST_BYTES: u64 = 1 << 20;

/// Some settings that differ from the defaults, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes(Value);

impl Changes {
    /// Reads a TOML file whose tables are those of the settings: `[evidence]`, `[windows]`, …
    ///
    /// # Errors
    /// It cannot be read, is no TOML, or has a key or value that no setting takes.
    pub fn from_file(path: &str) -> Result<Self, String> {
        let path = Path::new(path);
        let size = std::fs::metadata(path).map_err(|error| error.to_string())?;
        if !size.is_file() || size.len() > MOST_BYTES {
            return Err("not a settings file of at most 1 MiB".into());
        }
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        Self::from_toml(&text)
    }

    /// One setting as `KEY=VALUE`, the key with its table and the value as TOML has it; a bare word and a bare
    /// control token are taken for strings.
    ///
    /// # Errors
    /// There is no such setting, or it does not take the value.
    pub fn from_pair(pair: &str) -> Result<Self, String> {
        let (key, value) = pair
            .split_once('=')
            .ok_or("expected KEY=VALUE, such as evidence.lambda=2")?;
        Self::from_toml(&format!("{} = {}", key.trim(), value.trim())).or_else(|error| match value
            .trim()
            .starts_with(|c: char| c.is_alphabetic() || c == '<')
        {
            true => Self::from_toml(&format!("{} = {:?}", key.trim(), value.trim())),
            false => Err(error),
        })
    }

    fn from_toml(text: &str) -> Result<Self, String> {
        let table: Value = toml::from_str(text).map_err(|error| error.to_string())?;
        let changes = Self(table);
        changes.apply(Settings::default())?;
        Ok(changes)
    }

    /// The settings with these changes.
    ///
    /// # Errors
    /// A key or value that no setting takes.
    pub fn apply(&self, settings: Settings) -> Result<Settings, String> {
        let mut value = serde_json::to_value(settings).map_err(|error| error.to_string())?;
        merge(&mut value, &self.0);
        let settings: Settings =
            serde_json::from_value(value).map_err(|error| error.to_string())?;
        settings.check()?;
        Ok(settings)
    }
}

fn merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, changes) => *into = changes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use decoder::format::Format;
    use decoder::settings::Scope;

    use super::*;

    #[test]
    fn files_and_pairs_change_what_they_name() {
        let text = "[evidence]\nmost = 7\nscope = \"candidates\"\n[candidates]\nmost = 50\n";
        let settings = Changes::from_toml(text)
            .unwrap()
            .apply(Settings::default())
            .unwrap();
        assert_eq!((settings.evidence.most, settings.candidates.most), (7, 50));
        assert_eq!(settings.evidence.scope, Scope::Candidates);
        assert_eq!(settings.windows, Settings::default().windows);
        let pair = |text: &str| Changes::from_pair(text)?.apply(Settings::default());
        assert_eq!(pair("evidence.lambda=2.5").unwrap().evidence.lambda, 2.5);
        assert_eq!(
            pair("evidence.scope=document").unwrap().evidence.scope,
            Scope::Document
        );
        assert_eq!(
            pair("evidence.close_from = 30")
                .unwrap()
                .evidence
                .close_from,
            Some(30)
        );
        let text = "[format.control]\nclue = \"<a>\"\nseparator = \"\"\n";
        let control = Changes::from_toml(text).unwrap();
        let control = control.apply(Settings::default()).unwrap();
        let more = Changes::from_pair("format.control.clue_end=<|/a|>").unwrap();
        let Format::Control(names) = more.apply(control).unwrap().format else {
            panic!("not control tokens");
        };
        assert_eq!((&*names.clue, &*names.clue_end), ("<a>", "<|/a|>"));
        assert_eq!((&*names.separator, &*names.evidence), ("", "<|evidence|>"));
        let lines = Changes::from_pair("format=lines").unwrap();
        assert_eq!(
            lines.apply(Settings::default()).unwrap().format,
            Format::Lines
        );
    }

    #[test]
    fn what_no_setting_takes_is_refused() {
        for pair in [
            "evidence.lambda",
            "evidence.lamda=1",
            "evidence.most=-1",
            "evidence.scope=room",
            "format=tokens",
            "format.control.request=Why?",
            "=",
            "a=b",
        ] {
            assert!(Changes::from_pair(pair).is_err(), "{pair}");
        }
        let error = Changes::from_toml("[evidence]\nlamda = 1").unwrap_err();
        assert!(error.contains("lamda"), "{error}");
    }
}
