//! What a wiki calls its namespaces: those of files and categories are no text, whatever their language.

use std::collections::HashMap;

/// What is known of the wiki a page comes from.
#[derive(Clone, Debug)]
pub struct Site {
    name: String,
    /// Names of namespaces in lower case, by number.
    namespaces: HashMap<String, i32>,
}

impl Default for Site {
    /// A wiki of which nothing is known but the names that Wikipedias have.
    fn default() -> Self {
        let mut namespaces = HashMap::new();
        for (names, number) in [(FILES, FILE), (CATEGORIES, CATEGORY)] {
            for name in names.split(',') {
                namespaces.insert(folded(name.trim()), number);
            }
        }
        for (number, name) in ENGLISH {
            namespaces.insert(folded(name), *number);
        }
        Self {
            name: "Wikipedia".to_owned(),
            namespaces,
        }
    }
}

/// Numbers of namespaces: of media, files and categories.
const MEDIA: i32 = -2;
const FILE: i32 = 6;
const CATEGORY: i32 = 14;

const ENGLISH: &[(i32, &str)] = &[
    (MEDIA, "Media"),
    (-1, "Special"),
    (1, "Talk"),
    (2, "User"),
    (3, "User talk"),
    (4, "Project"),
    (4, "Wikipedia"),
    (5, "Project talk"),
    (7, "File talk"),
    (8, "MediaWiki"),
    (10, "Template"),
    (11, "Template talk"),
    (12, "Help"),
    (15, "Category talk"),
    (100, "Portal"),
    (118, "Draft"),
    (828, "Module"),
];

/// The names of the namespace of files, old ones too, that Wikipedias use.
const FILES: &str = "File, Image, Datei, Bild, Fichier, Archivo, Imagen, Ficheiro, Arquivo, Imagem, Immagine, \
    Bestand, Afbeelding, Plik, Grafika, Файл, Изображение, Файл, Зображення, Картинка, Файль, Слика, Датотека, \
    Slika, Datoteka, Soubor, Obrázok, Súbor, Fil, Billede, Bilete, Tiedosto, Kuva, Fájl, Kép, Fișier, Imagine, \
    Fişier, Αρχείο, Εικόνα, Dosya, Resim, Fayl, Şəkil, ファイル, 画像, 文件, 圖像, 图像, 檔案, 파일, 그림, ملف, صورة, پرونده, \
    تصویر, קובץ, תמונה, चित्र, छवि, ছবি, চিত্র, படிமம், దస్త్రం, ബൊമ്മ, പ്രമാണം, ไฟล์, ภาพ, Tập tin, Hình, Berkas, Gambar, \
    Fail, Imatge, Fitxer, Fitxategi, Irudi, Ficheru, Imaxe, Dosiero, Pilt, Vaizdas, Attēls, Fails, Mynd, Skrá, \
    Lêer, Beeld, Выява, Սուրբ, Պատկեր, სურათი, ფაილი, Сүрәт, Сурет, Skedar, Figura, Fasciculus, Íomhá, Delwedd, Talaksan, \
    Larawan, Stuore, Dokumintu, Restr, Skeudenn, Ofbyld, Bilde, Файл, Рисунок, Šalts, Payl, Bestân, Ofbylding, Imàgine";

/// The names of the namespace of categories that Wikipedias use.
const CATEGORIES: &str = "Category, Kategorie, Catégorie, Categoría, Categoria, Categorie, Kategoria, Kategori, \
    Kategória, Kategorija, Категория, Категорія, Категорија, Катэгорыя, Luokka, Κατηγορία, Kateqoriya, カテゴリ, \
    分类, 分類, 분류, تصنيف, رده, زمرہ, קטגוריה, श्रेणी, वर्ग, বিষয়শ্রেণী, பகுப்பு, వర్గం, വർഗ്ഗം, หมวดหมู่, Thể loại, Kategorio, \
    Kategoorija, Kategooria, Kategoriija, Kategoreja, Flokkur, Bólkur, Կատեգորիա, კატეგორია, Төркем, Санат, \
    Kategoriya, Catigurìa, Catagóir, Categori, Kaarangay, Rummad, Flock, Rumadenn, Kategory, Kaategorie, Klasse, Turkum, Jamii";

/// The codes of languages by which links lead to Wikipedias in other languages.
const LANGUAGES: &str = "aa ab ace ady af ak als alt am ami an ang anp ar arc ary arz as ast atj av avk awa ay az azb ba \
    ban bar bat-smg bbc bcl be be-tarask be-x-old bg bh bi bjn blk bm bn bo bpy br bs bug bxr ca cbk-zam cdo ce ceb ch \
    cho chr chy ckb co cr crh cs csb cu cv cy da dag de dga din diq dsb dty dv dz ee el eml en eo es et eu ext fa fat ff \
    fi fiu-vro fj fo fon fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gu guc gur guw gv ha hak haw he hi \
    hif ho hr hsb ht hu hy hyw hz ia id ie ig ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd kbp kcg kg ki kj kk \
    kl km kn ko koi kr krc ks ksh ku kv kw ky la lad lb lbe lez lfn lg li lij lld lmo ln lo lrc lt ltg lv mad mai \
    map-bms mdf mg mh mhr mi min mk ml mn mni mnw mo mr mrj ms mt mus mwl my myv mzn na nah nap nds nds-nl ne new ng nia \
    nl nn no nov nqo nrm nso nv ny oc olo om or os pa pag pam pap pcd pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm \
    rmy rn ro roa-rup roa-tara ru rue rw sa sah sat sc scn sco sd se sg sh shi shn si simple sk skr sl sm smn sn so sq sr \
    srn ss st stq su sv sw szl szy ta tay tcy te tet tg th ti tk tl tly tn to tpi tr trv ts tt tum tw ty tyv udm ug uk ur \
    uz ve vec vep vi vls vo wa war wo wuu xal xh xmf yi yo za zea zh zh-classical zh-cn zh-min-nan zh-tw zh-yue zu";

/// What the part in front of a link's colon says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    File,
    Category,
    Language,
    /// Another namespace of this wiki.
    Namespace,
    /// Nothing: the colon belongs to the title.
    None,
}

impl Site {
    /// A wiki of this name that calls its namespaces so, by number, as the head of a dump says.
    pub fn new<'n>(name: &str, namespaces: impl IntoIterator<Item = (i32, &'n str)>) -> Self {
        let own = namespaces
            .into_iter()
            .filter(|(_, name)| !name.trim().is_empty());
        let own: Vec<(String, i32)> = own.map(|(number, name)| (folded(name), number)).collect();
        let mut site = Self {
            name: name.to_owned(),
            ..Self::default()
        };
        // The words of other wikis are ordinary words in this one: `[[Imagine: John Lennon]]`.
        if own.iter().any(|(_, number)| *number == FILE) {
            let english = ENGLISH.iter().map(|(number, name)| (folded(name), *number));
            site.namespaces = english.collect();
        }
        site.namespaces.extend(own);
        site
    }

    /// The wiki's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the namespace in which a page with this title lies; 0 for an article.
    pub fn namespace(&self, title: &str) -> i32 {
        let prefix = title.split_once(':').map(|(prefix, _)| prefix);
        prefix
            .and_then(|prefix| self.namespaces.get(&folded(prefix)).copied())
            .unwrap_or(0)
    }

    /// What the prefix of a link says, and the rest of the link.
    pub(super) fn prefix<'t>(&self, target: &'t str) -> (Prefix, &'t str) {
        let near = target.as_bytes().iter().take(100).position(|&b| b == b':');
        let Some((prefix, rest)) = near.and_then(|colon| {
            target[..=colon]
                .strip_suffix(':')
                .zip(target.get(colon + 1..))
        }) else {
            return (Prefix::None, target);
        };
        let name = folded(prefix);
        match self.namespaces.get(&name) {
            Some(&(FILE | MEDIA)) => (Prefix::File, rest),
            Some(&CATEGORY) => (Prefix::Category, rest),
            Some(_) => (Prefix::Namespace, rest),
            // `fr:Chat`, written as codes are; a title such as `It: Chapter Two` is not.
            None if prefix == name && !rest.starts_with(' ') && is_language(prefix) => {
                (Prefix::Language, rest)
            }
            None if has_media_ending(rest) => (Prefix::File, rest),
            None => (Prefix::None, target),
        }
    }
}

fn folded(name: &str) -> String {
    name.trim().replace('_', " ").to_lowercase()
}

fn is_language(code: &str) -> bool {
    LANGUAGES
        .split_ascii_whitespace()
        .any(|known| known == code)
}

/// Whether a file is named, in a namespace that is not known.
fn has_media_ending(name: &str) -> bool {
    let name = name.split('|').next().unwrap_or_default().trim_end();
    name.rsplit_once('.').is_some_and(|(_, ending)| {
        [
            "jpg", "jpeg", "png", "gif", "svg", "tif", "tiff", "webp", "ogg", "oga", "ogv", "webm",
            "mid", "djvu",
        ]
        .iter()
        .any(|known| ending.eq_ignore_ascii_case(known))
    })
}
