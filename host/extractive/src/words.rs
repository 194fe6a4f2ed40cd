//! Brings the words of texts and questions into the forms that are searched: folded, in lower case, and stemmed.

use std::{collections::HashSet, sync::LazyLock};

use guild_session::fold::fold;
use rust_stemmers::{Algorithm, Stemmer};
use serde::{Deserialize, Serialize};
use unicode_normalization::char::is_combining_mark;

/// Words of a question that are looked for.
const MAX_TERMS: usize = 32;
/// Longer words are not indexed.
const MAX_WORD_BYTES: usize = 128;

/// The languages whose words are stemmed, each with its function words, which no question is searched for.
const LANGUAGES: [(Algorithm, &str); 7] = [
    (
        Algorithm::English,
        "a d m s t about above after again against all also am an and any are aren as at be because been before being below between \
         both but by can cannot could couldn did didn do does doesn doing don done down during each either else etc ever every few \
         for from further get gets give given gives go goes got had has hasn have haven having he her here hers him his how \
         however i if in instead into is isn it its itself just know let like ll made make makes many may me mean means meant \
         might more most much must my need needed needs neither no nor not now of off often on once one only onto or other others \
         our out over own per please possible quite rather re really same say says shall she should shouldn so some someone \
         something soon still such take takes tell than that the their them then there these they thing things this those though \
         through thus to too under until up upon us use used uses using ve very via want wants was wasn way ways we well were \
         weren what when where whether which while who whom whose why will with within without won would wouldn yes yet you your",
    ),
    (
        Algorithm::German,
        "aber alle als am an auch auf aus bei beim bin bis da dann das dass dem den der des die diese diesem dieser dieses doch dort du \
         durch ein eine einem einen einer eines er es für gibt hat haben hier ich ihr im in ins ist ja kann können man mein \
         mit muss nach nicht noch nur ob oder ohne sein seine sich sie sind so soll über um und uns unter vom von vor wann war \
         warum was welche welchem welchen welcher welches wem wen wenn wer werden wie wieso wieviel wird wir wo wodurch wofür woher wohin \
         womit wurde zu zum zur zwischen",
    ),
    (
        Algorithm::French,
        "a ai à au aux avec c ce ces cela cet cette comment d dans de des dire dois doit donc dont du elle elles en entre es est et eu \
         eux faire fait faut il ils j je l la le les leur leurs lui ma mais me même mes moi mon n ne nos notre nous on ont ou où par pas peut peux \
         plus pour pourquoi qu quand que quel quelle quelles quels qui quoi s sa sans se sera ses si son sont sous sur ta te \
         tes toi ton tu un une votre vous y était combien lorsque",
    ),
    (
        Algorithm::Spanish,
        "a al algo como con cual cuál cuáles cuando cuándo cuánto cuántos de del desde donde dónde e el él ella en entre era es \
         esa ese eso esta está este esto fue ha hace hay la las le lo los más me mi muy no nos o para pero por porque qué que \
         quien quién se ser si sin sobre son su sus también te tiene un una unas unos y ya cómo",
    ),
    (
        Algorithm::Italian,
        "a ad al alla alle anche che chi ci come con cosa da dal dalla dei del della delle di dove e è era fra gli ha hanno i il \
         in io la le lo ma mi ne nel nella no non o per perché più quale quali quando quanti quanto questa questo se si sono \
         su sua sul sulla suo tra un una uno viene",
    ),
    (
        Algorithm::Portuguese,
        "a ao aos as até com como da das de do dos e é ela ele em entre era essa esse esta está este eu foi há isso isto já mais \
         mas me na nas não no nos o onde os ou para pela pelo por porque qual quais quando quanto quantos que quem se ser seu \
         sua são sobre também tem um uma uns",
    ),
    (
        Algorithm::Russian,
        "а без бы был была были было быть в вам вас весь во вот все вы где да для до его ее её если есть еще же за зачем и из \
         или им их к как какая какие каково каковы какого какое какой какую когда ко который кто куда ли мне можно мы на над надо не \
         него нет ни но нужно о об он она они оно от откуда по под почему при про с сколько со так такая такие такое такой там \
         то того тоже только тот ту ты у уже чего чей чем через что чтобы эта эти это этого этой этот я является",
    ),
];

/// Question words of Chinese and Japanese, which no question is searched for.
const ASKING: &str = "为什么 為什麼 什么时候 什麼時候 什么 什麼 怎么样 怎麼樣 怎么 怎麼 怎样 怎樣 如何 哪些 \
     哪个 哪個 哪里 哪裡 多少 请问 請問 是 谁 誰 吗 嗎 呢 的 何";

static FUNCTION_WORDS: LazyLock<[HashSet<&'static str>; LANGUAGES.len()]> =
    LazyLock::new(|| LANGUAGES.map(|(_, words)| words.split_ascii_whitespace().collect()));

/// A language whose words are stemmed; an index of [`LANGUAGES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Language(usize);

impl Language {
    /// The language whose function words a text has most of; English where no other has more.
    pub(crate) fn of(text: &str) -> Self {
        let mut counts = [0_usize; LANGUAGES.len()];
        runs(text, |word, _| {
            for (count, list) in counts.iter_mut().zip(&*FUNCTION_WORDS) {
                *count += usize::from(list.contains(word));
            }
        });
        let most = counts.iter().copied().max().unwrap_or_default();
        Self(counts.iter().position(|count| *count == most).unwrap_or_default())
    }

    /// The stem of a word in lower case.
    pub(crate) fn stem(self, word: &str) -> String {
        let algorithm = LANGUAGES.get(self.0).map_or(Algorithm::English, |(algorithm, _)| *algorithm);
        Stemmer::create(algorithm).stem(word).into_owned()
    }

    fn has_function_word(self, word: &str) -> bool {
        FUNCTION_WORDS.get(self.0).is_some_and(|list| list.contains(word))
    }
}

/// A content word of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    /// The word as reports show it.
    pub(crate) word: String,
    /// Its forms in an index: its stems in the languages of the sources.
    pub(crate) forms: Vec<String>,
    /// Its inverse document frequency.
    pub(crate) weight: f32,
}

/// The scripts that are indexed in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    /// A run is a word.
    Letters,
    /// Hiragana, which Japanese writes its particles and endings in.
    Hiragana,
    /// Chinese characters, katakana and Korean syllables: blanks do not separate all words.
    Unspaced,
}

impl Script {
    fn of(c: char) -> Self {
        match c {
            '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' => Self::Hiragana,
            '\u{3005}'
            | '\u{30a1}'..='\u{30fa}'
            | '\u{30fc}'..='\u{30ff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{ac00}'..='\u{d7af}'
            | '\u{20000}'..='\u{3134f}' => Self::Unspaced,
            _ => Self::Letters,
        }
    }
}

/// Calls `each` with every run of letters and digits of one script, folded and in lower case.
fn runs(text: &str, mut each: impl FnMut(&str, Script)) {
    let (mut run, mut script) = (String::new(), Script::Letters);
    for c in fold(text).chars().chain([' ']) {
        let of = Script::of(c);
        let is_letter = c.is_alphanumeric();
        // A combining accent, as dictionaries put it on Russian words, does not end a word.
        if !run.is_empty() && (!is_letter || of != script) && !is_combining_mark(c) {
            if run.len() <= MAX_WORD_BYTES || script != Script::Letters {
                each(&run, script);
            }
            run.clear();
        }
        if is_letter {
            script = of;
            run.extend(c.to_lowercase());
        }
    }
}

/// Calls `each` with every form of a text: the stem of each word and, in scripts without blanks between words, each
/// character and each pair of neighbouring characters.
pub(crate) fn forms(text: &str, language: Language, mut each: impl FnMut(String)) {
    runs(text, |run, script| match script {
        Script::Letters => each(language.stem(run)),
        Script::Hiragana | Script::Unspaced => {
            run.chars().for_each(|c| each(c.to_string()));
            pairs(run).for_each(&mut each);
        }
    });
}

/// The pairs of neighbouring characters.
fn pairs(run: &str) -> impl Iterator<Item = String> {
    run.chars().zip(run.chars().skip(1)).map(|(one, next)| [one, next].iter().collect())
}

/// The terms of a question over sources in these languages, not weighed yet: its words without the function words of its
/// language. Hiragana, mostly particles and endings, counts only where the question has nothing else.
pub(crate) fn terms(question: &str, languages: &[Language]) -> Vec<Term> {
    let asked_in = Language::of(question);
    let mut terms: Vec<Term> = Vec::new();
    let mut hiragana: Vec<Term> = Vec::new();
    let add = |terms: &mut Vec<Term>, word: &str, forms: Vec<String>| {
        if terms.len() < MAX_TERMS && !terms.iter().any(|known| known.forms == forms) {
            terms.push(Term { word: word.to_owned(), forms, weight: 0.0 });
        }
    };
    runs(question, |run, script| match script {
        Script::Letters => {
            if !asked_in.has_function_word(run) {
                let mut forms: Vec<String> = languages.iter().map(|language| language.stem(run)).collect();
                forms.sort_unstable();
                forms.dedup();
                add(&mut terms, run, forms);
            }
        }
        Script::Hiragana => pairs(run).for_each(|pair| add(&mut hiragana, run, vec![pair])),
        Script::Unspaced => {
            let mut rest = run;
            while !rest.is_empty() {
                let asking = ASKING.split(' ').filter_map(|asking| Some((rest.find(asking)?, asking.len())));
                let (at, len) = asking.min_by_key(|(at, len)| (*at, usize::MAX - len)).unwrap_or((rest.len(), 0));
                let part = rest.get(..at).unwrap_or_default();
                if part.chars().nth(1).is_none() && !part.is_empty() {
                    add(&mut terms, part, vec![part.to_owned()]);
                }
                pairs(part).for_each(|pair| add(&mut terms, part, vec![pair]));
                rest = rest.get(at + len..).unwrap_or_default();
            }
        }
    });
    if terms.is_empty() { hiragana } else { terms }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms_of(text: &str, language: usize) -> Vec<String> {
        let mut found = Vec::new();
        forms(text, Language(language), |form| found.push(form));
        found
    }

    fn asked(question: &str) -> Vec<String> {
        let terms = terms(question, &[Language::of(question)]);
        terms.into_iter().map(|term| format!("{} of {}", term.forms.join("|"), term.word)).collect()
    }

    #[test]
    fn a_word_is_the_same_in_all_its_forms() {
        for (text, plain) in [
            ("Gefa\u{308}ß", "Gefäß"),
            ("Ros\u{ad}ters", "roster"),
            ("O\u{fb03}ces", "office"),
            ("за\u{301}мок", "замок"),
            ("Ｇｕｉｌｄ ﾒﾝﾊﾞｰ", "guild メンバー"),
        ] {
            assert_eq!(forms_of(text, 0), forms_of(plain, 0), "{text}");
        }
        assert_eq!(forms_of("Rc<T>'s read_to_string in x²", 0), ["rc", "t", "s", "read", "to", "string", "in", "x²"]);
        assert_eq!(forms_of("名簿の集", 0), ["名", "簿", "名簿", "の", "集"]);
    }

    #[test]
    fn the_language_of_a_text_is_that_of_its_function_words() {
        for (text, language) in [
            ("The keys rotate.", 0),
            ("Die Schlüssel werden gewechselt.", 1),
            ("Les clés sont changées.", 2),
            ("Ключи меняются на новые.", 6),
            ("fn main() {}", 0),
        ] {
            assert_eq!(Language::of(text), Language(language), "{text}");
        }
    }

    #[test]
    fn a_question_is_its_words_without_the_function_words_of_its_language() {
        assert_eq!(asked("How do the signing keys rotate?"), ["sign of signing", "key of keys", "rotat of rotate"]);
        assert_eq!(asked("Wie lange gilt ein alter Schlüssel?").last().unwrap(), "schlussel of schlüssel");
        assert_eq!(asked("Что такое реестр?"), ["реестр of реестр"]);
        assert_eq!(asked("什么是名册？"), ["名册 of 名册"]);
        assert_eq!(asked("名簿とは何ですか？"), ["名簿 of 名簿"]);
        assert_eq!(asked("插件的目录"), ["插件 of 插件", "目录 of 目录"]);
        assert!(asked("What is the?").is_empty());
    }
}
