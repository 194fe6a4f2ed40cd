//! The words, symbols, lines and sentences of texts, and the stems of words.

use std::{borrow::Cow, collections::HashSet, ops::Range, sync::LazyLock};

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::char::is_combining_mark;

use crate::{
    fold::fold,
    text::{cut, trimmed},
};

use super::index::QueryTerm;

/// English words that carry no subject.
const STOP_WORDS: &str = "a about above after again against all also am an and any are aren as at be because been before being \
    below between both but by can cannot could couldn did didn do does doesn doing don down during each either else etc ever every \
    few for from further get gets give given gives go goes got had has hasn have haven having he her here hers him his how however \
    i if in instead into is isn it its itself just know let like ll made make makes many may me mean means meant might more most \
    much must my need needed needs neither no nor not now of off often on once one only onto or other others our out over own per \
    please possible quite rather re really same say says shall she should shouldn so some someone something soon still such take \
    takes tell than that the their them then there these they thing things this those though through thus to too under until up upon \
    us use used uses using ve very via want wants was wasn way ways we well were weren what when where whether which while who whom \
    whose why will with within without won would wouldn yes yet you your";
/// Words of a request for research. They are the subject of a question that has no other words.
const ASKING_WORDS: &str = "according answer answers article articles book books cite cited describe described describes discuss doc docs document \
    documentation documents exactly explain explained explains file files find finding guide manual mention mentioned mentions page \
    pages passage passages question questions quote quotes read report reports research source sources summarise summarize summary \
    task text texts topic tutorial understand write";
/// Words that say how something is asked for rather than what: they count for little.
const WEAK_WORDS: &str = "avoid best better choose common compare comparison concept correct differ differs difference differences different \
    example examples good happen happens handle handles help helps important introduce kind main happened overview reason role \
    support supports type types work working works people first last new simple prefer recommend recommended provide provides \
    purpose define defined relate related cause causes allow allows concern";

/// Words of other languages that carry no subject in a question.
const FOREIGN: &[&str] = &[
    "als am an auf aus bei bin bis da dann das dass dem den der des die diese diesem dieser dieses doch dort du \
     durch ein eine einem einen einer eines er es für gibt hat haben hier ich ihr im in ins ist ja kann können \
     man mein mit muss nach nicht noch nur ob oder ohne sein seine sich sie sind so soll über um und uns unter \
     vom von vor wann war warum was welche welcher welches wem wen wenn wer werden wie wieso wieviel wird wir wo \
     wodurch wofür woher wohin womit wurde zu zum zur zwischen",
    "a al algo como con cual cuál cuáles cuando cuándo cuánto cuántos de del desde donde dónde e el él ella en \
     entre era es esa ese eso esta está este esto fue ha hace hay la las le lo los más me mi muy no nos o para \
     pero por porque qué que quien quién se ser si sin sobre son su sus también te tiene un una unas unos y ya \
     cómo",
    "à au aux avec c ce ces cela cet cette comment d dans de des dire donc dont du elle elles en entre es est et \
     eu eux faire fait il ils j je l la le les leur leurs lui ma mais me même mes moi mon n ne nos notre nous on \
     ont ou où par pas peut plus pour pourquoi qu quand que quel quelle quelles quels qui quoi s sa sans se sera \
     ses si son sont sous sur ta te tes toi ton tu un une votre vous y était combien lorsque",
    "a ad al alla alle anche che chi ci come con cosa da dal dalla dei del della delle di dove e è era fra gli ha \
     hanno i il in io la le lo ma mi ne nel nella no non o per perché più quale quali quando quanti quanto questa \
     questo se si sono su sua sul sulla suo tra un una uno viene",
    "a ao aos as até com como da das de do dos e é ela ele em entre era essa esse esta está este eu foi há isso \
     isto já mais mas me na nas não no nos o onde os ou para pela pelo por porque qual quais quando quanto \
     quantos que quem se ser seu sua são sobre também tem um uma uns",
    "а без бы был была были было быть в вам вас весь во вот все вы где да для до его ее её если есть еще же за \
     зачем и из или им их к как какая какие какова каково каковы какого какое какой когда ко который кто куда ли \
     мне можно мы на над надо не него нет ни но нужно о об он она они оно от откуда по под почему при про с \
     сколько со так такая такие такое такой там то того тоже только тот ту ты у уже чего чей чем через что чтобы \
     эта эти это этого этой этот я является",
];

static STOP: LazyLock<HashSet<&'static str>> = LazyLock::new(|| STOP_WORDS.split_whitespace().collect());
static ASKING: LazyLock<HashSet<&'static str>> = LazyLock::new(|| ASKING_WORDS.split_whitespace().collect());
static FOREIGN_STOP: LazyLock<Vec<HashSet<&'static str>>> =
    LazyLock::new(|| FOREIGN.iter().map(|list| list.split_whitespace().collect()).collect());
static WEAK: LazyLock<HashSet<&'static str>> = LazyLock::new(|| WEAK_WORDS.split_whitespace().collect());

/// Whether a list, with white space between its words, has this word.
pub(crate) fn among(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|listed| listed == word)
}

/// Whether a word (lower case, not stemmed) carries no subject.
pub(crate) fn is_stop(word: &str) -> bool {
    STOP.contains(word) || is_asking(word)
}

/// The words that carry no subject in the language of a question, by its words in lower case. There are none where it is
/// English, has as many English ones, or has but one: a word of one language is a noun of another.
pub(crate) fn foreign_stop(question: &[String]) -> Option<&'static HashSet<&'static str>> {
    let among = |list: &HashSet<&str>| question.iter().filter(|word| list.contains(word.as_str())).count();
    let foreign = FOREIGN_STOP.iter().max_by_key(|list| among(list))?;
    (among(foreign) > among(&STOP).max(1)).then_some(foreign)
}

/// Whether a word (lower case, not stemmed) belongs to a request for research.
pub(crate) fn is_asking(word: &str) -> bool {
    ASKING.contains(word)
}

/// Whether a word (lower case, not stemmed) says little about the subject.
pub(crate) fn is_weak(word: &str) -> bool {
    WEAK.contains(word)
}

/// The script of a character, where its texts have no blanks between words, or words are not told apart by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    Han,
    Hiragana,
    Katakana,
    Hangul,
}

impl Script {
    fn of(c: char) -> Option<Self> {
        match c {
            '\u{3005}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{20000}'..='\u{3134f}' => {
                Some(Self::Han)
            }
            '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' => Some(Self::Hiragana),
            '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' => Some(Self::Katakana),
            '\u{ac00}'..='\u{d7af}' => Some(Self::Hangul),
            _ => None,
        }
    }
}

/// Whether a word is of a script in which Japanese writes what has no subject of its own, as endings and particles.
pub(crate) fn is_hiragana(word: &str) -> bool {
    word.chars().all(|c| Script::of(c) == Some(Script::Hiragana))
}

/// Whether a character is of a script that does not set its words apart.
pub(crate) fn is_wide(c: char) -> bool {
    Script::of(c).is_some()
}

/// Calls `each` with every word of a text, folded and in lower case, and with every run of characters of one script
/// whose words are not set apart. Single Latin letters are no words.
fn runs(text: &str, mut each: impl FnMut(&str, Option<Script>)) {
    let (mut word, mut script) = (String::new(), None);
    let mut flush = |word: &mut String, script: Option<Script>| {
        if script.is_some() || word.len() > 1 || word.starts_with(|c: char| c.is_ascii_digit()) {
            each(word, script);
        }
        word.clear();
    };
    for c in fold(text).chars() {
        if c.is_ascii() {
            if !c.is_ascii_alphanumeric() || script.is_some() {
                flush(&mut word, script.take());
            }
            if c.is_ascii_alphanumeric() {
                word.push(c.to_ascii_lowercase());
            }
        } else if c.is_alphanumeric() {
            let of = Script::of(c);
            if of != script {
                flush(&mut word, script);
            }
            script = of;
            word.extend(c.to_lowercase());
        } else if !is_combining_mark(c) {
            // An accent of its own, as dictionaries put it on Russian words, is no end of a word.
            flush(&mut word, script.take());
        }
    }
    flush(&mut word, script);
}

/// Calls `each` with each character of a run, and with each two beside each other, which are a word more often than one
/// is. It is also told how many characters there are.
fn grams(run: &str, mut each: impl FnMut(&str, usize)) {
    for (at, _) in run.char_indices() {
        let rest = run.get(at..).unwrap_or_default();
        let (one, last) = cut(rest, 1);
        each(one, 1);
        if !last {
            each(cut(rest, 2).0, 2);
        }
    }
}

/// Calls `each` with every word of a text, in lower case. Single Latin letters are no words. Where words are not set
/// apart, each character counts as one, and of Chinese and Japanese each two beside each other do, too.
pub(crate) fn words(text: &str, mut each: impl FnMut(&str)) {
    runs(text, |run, script| match script {
        None => each(run),
        Some(script) => grams(run, |gram, length| {
            if length == 1 || script != Script::Hangul {
                each(gram);
            }
        }),
    });
}

/// Calls `each` with every word of a question as [`words`] has them, and with the word that a reader sees it in. Where
/// words are not set apart, pairs of characters stand for single ones, and what only asks is left out.
pub(crate) fn asked_words(text: &str, mut each: impl FnMut(&str, &str)) {
    runs(text, |run, script| {
        let Some(script) = script else { return each(run, run) };
        let mut rest = run;
        while let Some((asking, at)) = first_asking(rest) {
            let (part, behind) = rest.split_at(at);
            asked_grams(part, script, &mut each);
            rest = behind.strip_prefix(asking).unwrap_or_default();
        }
        asked_grams(rest, script, &mut each);
    });
}

fn asked_grams(part: &str, script: Script, mut each: impl FnMut(&str, &str)) {
    let single = script == Script::Hangul || part.chars().nth(1).is_none();
    grams(part, |gram, length| {
        if single == (length == 1) {
            each(gram, part);
        }
    });
}

/// Words of Chinese and Japanese that ask, and say nothing of the subject. A longer one stands before its beginning.
const ASKING_PARTS: &str = "为什么 為什麼 什么 什麼 怎么样 怎麼樣 怎么 怎麼 怎样 怎樣 如何 哪些 哪个 哪個 哪里 哪裡 多少 \
    请问 請問 是 谁 誰 吗 嗎 呢 的 何 とは でしょうか ですか ますか なんですか ください について";

/// The first word that only asks, and where it begins; of several that begin there, the longest.
fn first_asking(run: &str) -> Option<(&'static str, usize)> {
    let found = ASKING_PARTS.split_ascii_whitespace().filter_map(|asking| Some((asking, run.find(asking)?)));
    found.min_by_key(|(asking, at)| (*at, usize::MAX - asking.len()))
}

/// Punctuation that structures a text. It is a symbol only in backticks.
const FRAME: &[&str] = &[
    "-", "--", "---", "&", "|", "/", "+", "=", "==", "===", ":", "...", ".", "*", "**", "***", "#", "##", "###", ">",
    "<", "\\", "//", "///", "\"", "'",
];
/// The most bytes of punctuation that are one symbol.
const SIGNS: usize = 8;

/// Calls `each` with every symbol of a text, and where it is: what a person looks up as it is written. That is an
/// option of a command (`--expires`, `-C`), a name with `_` in it, a word with a sign before it (`&mut`, `$HOME`), signs
/// that stand alone (`?`, `..=`), and what stands in backticks and has no word (`-> !`, `T`). Only options of one letter,
/// and what stands in backticks, distinguish capital letters from small ones.
pub(crate) fn symbols(text: &str, mut each: impl FnMut(Range<usize>, &str)) {
    let (mut start, mut before, mut inside) = (0, ' ', false);
    for (at, c) in text.char_indices().chain(std::iter::once((text.len(), ' '))) {
        // A span in backticks was taken as a whole.
        if at < start || !c.is_whitespace() && c != '`' {
            continue;
        }
        let atom = text.get(start..at).unwrap_or_default();
        let asked = atom.strip_suffix(['?', ',']).filter(|asked| !asked.is_empty()).unwrap_or(atom);
        if is_signs(asked) {
            if before != '`' && c != '`' && !FRAME.contains(&asked) {
                each(start..start + asked.len(), asked);
            }
        } else {
            let mut from = start;
            for piece in
                atom.split(['(', ')', '[', ']', '{', '}', '<', '>', ',', ';', '"', '\'', '|', '=', '/', ':', '.'])
            {
                symbol(piece, from, &mut each);
                from += piece.len() + 1;
            }
        }
        (start, before) = (at + c.len_utf8(), c);
        inside ^= c == '`';
        if inside
            && c == '`'
            && let Some((end, span)) = spanned(text, start)
        {
            each(start..end, span);
            start = end;
        }
    }
}

fn is_signs(atom: &str) -> bool {
    (1..=SIGNS).contains(&atom.len()) && atom.bytes().all(|byte| byte.is_ascii_punctuation())
}

/// What stands in backticks from here on, and where it ends, if it is short and has no word.
fn spanned(text: &str, start: usize) -> Option<(usize, &str)> {
    let window = text.get(start..text.floor_char_boundary(start + SIGNS + 1))?;
    let span = window.split_once('`')?.0;
    let mut worded = span.trim().is_empty();
    words(span, |_| worded = true);
    (!worded).then_some((start + span.len(), span))
}

/// Calls `each` with the signs between the words of code: `..=` of `0..=9`, `::` of `a::b`, `=>` of `x => y`.
fn operators(text: &str, mut each: impl FnMut(&str)) {
    let operator = |c: char| c.is_ascii_punctuation() && !"()[]{},;\"'`_\\".contains(c);
    for atom in text.split(char::is_whitespace) {
        let signs = atom.split(|c| !operator(c)).filter(|signs| signs.len() < atom.len() && signs.len() > 1);
        signs.filter(|signs| is_signs(signs) && !FRAME.contains(signs)).for_each(&mut each);
    }
}

/// The symbol that a piece of text is, which begins `from`.
fn symbol(piece: &str, from: usize, each: &mut impl FnMut(Range<usize>, &str)) {
    let inner = piece.trim_start_matches(['*', '_', '!']);
    let from = from + piece.len() - inner.len();
    let inner = inner.trim_end_matches(['*', '_', '!', '?', '-']);
    let plain = |rest: &str, more: char| {
        rest.starts_with(|c: char| c.is_ascii_alphabetic())
            && rest.chars().all(|c| c.is_ascii_alphanumeric() || c == more)
    };
    let option = inner.strip_prefix("--").or_else(|| inner.strip_prefix('-'));
    let is_symbol = if let Some(option) = option {
        plain(option, '-')
    } else if let Some(name) = inner.strip_prefix(['&', '$', '@', '#', '%']) {
        plain(name, '_')
    } else {
        inner.contains('_') && inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if is_symbol {
        let cased = inner.starts_with('-') && !inner.starts_with("--");
        let symbol = if cased { inner.to_owned() } else { inner.to_ascii_lowercase() };
        each(from..from + inner.len(), &symbol);
    }
}

/// Calls `each` with every word of a text, then with its symbols and the operators of its code.
pub(crate) fn tokens(text: &str, mut each: impl FnMut(&str)) {
    words(text, &mut each);
    symbols(text, |_, symbol| each(symbol));
    operators(text, &mut each);
}

/// First words of a sentence that refers to the one before it.
const REFERRING: &str = "this these those it they but however therefore so then also here instead note again";

/// Whether a sentence refers to the one before it, and so says less by itself.
pub(crate) fn refers_back(sentence: &str) -> bool {
    let first = sentence.split_whitespace().next().unwrap_or_default().trim_end_matches(',').to_ascii_lowercase();
    among(REFERRING, &first)
}

/// Whether a sentence takes back a part of what the one before it says.
pub(crate) fn contrasts(sentence: &str) -> bool {
    ["Instead", "But ", "However"].iter().any(|word| sentence.starts_with(word))
}

/// What sentences have that speak of the text they stand in, rather than of its subject.
const META: &[&str] = &[
    "you'll learn",
    "you will learn",
    "you'll see",
    "we'll",
    "we will",
    "let's",
    "we've",
    "we saw",
    "we discussed",
    "we did in",
    "we talked",
    "we mentioned",
    "this chapter",
    "next chapter",
    "previous chapter",
    "this section",
    "next section",
    "previous section",
    "this guide",
    "following section",
    "keep these",
    "keep this",
    "keep in mind",
    "discussed in",
    "described in",
    "as shown in",
    "for example, ",
    "see the ",
    "table of contents",
    "as you can see",
    "following example",
    "below is",
];

/// Whether a sentence speaks of the text it stands in: what a chapter is about, what comes next, what a figure shows.
pub(crate) fn is_meta(sentence: &str) -> bool {
    let plain = sentence.to_lowercase().replace('’', "'");
    let numbered = |name: &&str| {
        plain.match_indices(*name).any(|(at, _)| {
            plain.get(at + name.len()..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    META.iter().any(|meta| plain.contains(meta))
        || ["listing ", "figure ", "chapter ", "example ", "section "].iter().any(numbered)
}

/// The English stem of a word in lower case. A name with digits is its own stem.
pub(crate) fn stem(word: &str) -> Cow<'_, str> {
    if word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        Stemmer::create(Algorithm::English).stem(word)
    } else {
        word.into()
    }
}

/// The distinct stems of a text's words, without stop words.
pub(crate) fn stems(text: &str) -> HashSet<String> {
    let mut stems = HashSet::new();
    words(text, |word| {
        if !is_stop(word) {
            stems.insert(stem(word).into_owned());
        }
    });
    stems
}

/// The Jaccard similarity of two sets of stems; `None` if both are empty.
pub(crate) fn similarity(a: &HashSet<String>, b: &HashSet<String>) -> Option<f32> {
    let shared = a.intersection(b).count();
    let all = a.len() + b.len() - shared;
    (all > 0).then(|| shared as f32 / all as f32)
}

/// The index of the term that a word is. Stemming keeps how a word begins, so most words need not be stemmed.
pub(crate) fn position(word: &str, terms: &[QueryTerm]) -> Option<usize> {
    let begins = |term: &QueryTerm| term.stem.bytes().take(2).eq(word.bytes().take(2));
    if !terms.iter().any(begins) {
        return None;
    }
    let stem = stem(word);
    terms.iter().position(|term| term.stem == stem)
}

/// The terms of a question that a text has, one bit each.
pub(crate) fn term_mask(text: &str, terms: &[QueryTerm]) -> u64 {
    let mut mask = 0;
    tokens(text, |token| mask |= position(token, terms).map_or(0, |term| 1 << term));
    mask
}

/// The first of the items with the highest rating.
pub(crate) fn first_best<T>(rated: impl Iterator<Item = (T, f32)>) -> Option<(T, f32)> {
    rated.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// Verbs that come before what something is.
const CUES: &str = "is are means mean refers indicates ensures allows lets represents describes denotes provides";

/// A symbol that a sentence is about stands within so many bytes of its beginning.
const SUBJECT: usize = 16;

/// Whether a sentence of a text says what one of these terms is: it begins with the term, and a verb like `is` follows,
/// or it sets off all of them. Where a symbol is among the terms, the sentence has one of them.
pub(crate) fn defines(terms: &[QueryTerm], text: &str) -> bool {
    let asks_symbol = terms.iter().any(QueryTerm::is_symbol);
    sentences(text).any(|sentence| {
        let (mut at, mut subject, mut found) = (0, None, false);
        // "The `?` placed after a value is": a symbol is no word, so what follows it may be longer.
        let mut reach = 4;
        let mut has_symbol = false;
        symbols(sentence, |range, symbol| {
            let asked = position(symbol, terms).is_some();
            has_symbol |= asked;
            if asked && range.start <= SUBJECT {
                (subject, reach) = (Some(0), 8);
            }
        });
        let points = ["this ", "that ", "these ", "those ", "such ", "some "]
            .iter()
            .any(|word| sentence.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)));
        words(sentence, |word| {
            if at < 2 && position(word, terms).is_some() {
                subject = Some(at);
            }
            found |= subject.is_some_and(|subject| at > subject && at <= subject + reach) && among(CUES, word);
            at += 1;
        });
        found |= emphasised(sentence).any(|part| names(terms, part));
        found && !points && !sentence.ends_with('?') && (has_symbol || !asks_symbol)
    })
}

/// What a text sets off by `_` or `*`, as authors do with a term where they say what it is.
fn emphasised(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split('`').step_by(2);
    prose.flat_map(|prose| ['_', '*'].into_iter().flat_map(|mark| set_off(prose, mark)))
}

fn set_off(prose: &str, mark: char) -> impl Iterator<Item = &str> {
    let next = prose.split(mark).skip(2);
    prose.split(mark).zip(prose.split(mark).skip(1)).zip(next).filter_map(|((before, part), after)| {
        let whole = part.starts_with(char::is_alphanumeric) && part.ends_with(char::is_alphanumeric);
        (whole && !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)).then_some(part)
    })
}

/// Whether a text has all of these terms that say what was asked for.
fn names(terms: &[QueryTerm], text: &str) -> bool {
    let mask = term_mask(text, terms);
    let mut subjects = terms.iter().enumerate().filter(|(_, term)| term.weight >= 1.0).peekable();
    subjects.peek().is_some() && subjects.all(|(bit, _)| mask >> bit & 1 == 1)
}

const ORDINALS: &[&str] = &["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];

/// The place that a text counts itself as: 0 for "The first rule is", 1 for "Second, ...".
pub(crate) fn ordinal(text: &str) -> Option<usize> {
    let mut words = text.split_whitespace().map(|word| word.trim_end_matches([',', ':']).to_ascii_lowercase());
    let first = words.next()?;
    let word = if first == "the" { words.next()? } else { first };
    ORDINALS.iter().position(|ordinal| *ordinal == word)
}

/// The sentences of a text that count something, from the first one on. One alone counts nothing.
pub(crate) fn counted(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for sentence in sentences(text) {
        if ordinal(sentence) == Some(found.len()) {
            found.push(sentence);
        }
    }
    if found.len() > 1 { found } else { Vec::new() }
}

/// The lines of a text that are not blank, as ranges in it, without white space at their ends.
pub(crate) fn line_ranges(text: &str) -> Vec<Range<usize>> {
    let mut at = 0;
    let mut lines = Vec::new();
    for line in text.split_inclusive('\n') {
        let end = at + line.trim_end().len();
        if end > at {
            lines.push(at..end);
        }
        at += line.len();
    }
    lines
}

/// The sentences of a text; see [`sentence_ranges`].
pub(crate) fn sentences(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    sentence_ranges(text).into_iter().filter_map(|range| text.get(range))
}

/// The sentences of a text, as ranges in it: a sentence ends at `.`, `?` or `!` with white space behind it and no
/// lower-case letter after that, or at an empty line.
pub(crate) fn sentence_ranges(text: &str) -> Vec<Range<usize>> {
    const ABBREVIATIONS: &[&str] =
        &["e.g.", "i.e.", "etc.", "vs.", "cf.", "mr.", "mrs.", "ms.", "dr.", "no.", "fig.", "approx.", "ca."];
    // What is looked at before a `.`: longer than any number or abbreviation that would count.
    const WINDOW: usize = 64;
    let mut found = Vec::new();
    let mut start = 0;
    let mut add = |start: usize, end: usize| {
        let sentence = trimmed(text, start..end);
        if !sentence.is_empty() {
            found.push(sentence);
        }
    };
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let end = at + c.len_utf8();
        let rest = text.get(end..).unwrap_or_default();
        let ends = match c {
            '.' | '?' | '!' => {
                let closed = rest.trim_start_matches(['"', '\'', '”', '’', ')', '`', '*', '_']);
                let next = closed.trim_start();
                let first = text.ceil_char_boundary(end.saturating_sub(WINDOW)).max(start);
                let before = text.get(first..end).unwrap_or_default();
                let word = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
                let whole = first == start;
                let number = whole && before.trim().trim_end_matches('.').bytes().all(|byte| byte.is_ascii_digit());
                let short = number || ABBREVIATIONS.iter().any(|known| word.eq_ignore_ascii_case(known));
                (closed.len() != next.len() || next.is_empty())
                    && !next.starts_with(char::is_lowercase)
                    && !(c == '.' && short)
            }
            '\n' => rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n'),
            '。' | '？' | '！' => true,
            _ => false,
        };
        if ends {
            let closing = rest.len() - rest.trim_start_matches(['"', '\'', '”', '’', ')', '`', '*', '_']).len();
            let end = if c == '\n' { end } else { end + closing };
            add(start, end);
            start = end;
            while chars.peek().is_some_and(|(at, _)| *at < end) {
                chars.next();
            }
        }
    }
    add(start, text.len());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_programmers_write_them() {
        let mut seen = Vec::new();
        words("Rc<T>'s read_to_string, HTTP/2 in 2024 und Straße; 日本", |word| seen.push(word.to_owned()));
        assert_eq!(
            seen,
            ["rc", "read", "to", "string", "http", "2", "in", "2024", "und", "straße", "日", "日本", "本"]
        );
    }

    #[test]
    fn a_word_is_the_same_in_all_its_forms() {
        let seen = |text: &str| {
            let mut seen = Vec::new();
            words(text, |word| seen.push(word.to_owned()));
            seen
        };
        for (text, plain) in [
            ("Gefa\u{308}ß", "Gefäß"),
            ("Ros\u{ad}ter", "roster"),
            ("O\u{fb03}ce", "office"),
            ("за\u{301}мок", "замок"),
            ("Ｇｕｉｌｄ ﾒﾝﾊﾞｰ", "guild メンバー"),
        ] {
            assert_eq!(seen(text), seen(plain), "{text}");
        }
        assert_eq!(
            seen("x² of メンバーの集"),
            ["x²", "of", "メ", "メン", "ン", "ンバ", "バ", "バー", "ー", "の", "集"]
        );
    }

    #[test]
    fn a_question_is_its_subject_where_words_are_not_set_apart() {
        let asked = |text: &str| {
            let mut asked = Vec::new();
            asked_words(text, |word, seen| asked.push(format!("{word} of {seen}")));
            asked
        };
        assert_eq!(asked("什么是名册？"), ["名册 of 名册"]);
        assert_eq!(asked("名簿とは何ですか？"), ["名簿 of 名簿"]);
        assert_eq!(
            asked("如何使用插件的目录"),
            ["使用 of 使用插件", "用插 of 使用插件", "插件 of 使用插件", "目录 of 目录"]
        );
        assert_eq!(asked("猫とplugin"), ["猫 of 猫", "と of と", "plugin of plugin"]);
    }

    #[test]
    fn symbols_are_what_a_reader_looks_up_as_it_is_written() {
        let seen = |text: &str| {
            let mut seen = Vec::new();
            symbols(text, |range, symbol| {
                assert!(text.get(range).unwrap().eq_ignore_ascii_case(symbol));
                seen.push(symbol.to_owned());
            });
            seen
        };
        assert_eq!(seen("What does the ? operator do?"), ["?"]);
        assert_eq!(seen("What is --pre, and `-C/--context`?"), ["--pre", "-C", "--context"]);
        assert_eq!(seen("What is `::<>`, and `-> !` of `T`, and => ?"), ["::<>", "-> !", "T", "=>", "?"]);
        assert_eq!(seen("What is the default of `memory_bytes`?"), ["memory_bytes"]);
        assert_eq!(seen("`a` + `b`, `--pre` | `x y`: ```rust\nlet"), ["a", "b", "--pre", "x y"]);
        assert_eq!(seen("`..=`, `&mut T`, MEMORY_bytes. $HOME/x"), ["..=", "&mut", "memory_bytes", "$home"]);
        assert_eq!(seen("- an _item_ | a *b* -- c-d -1 & more: (x) __init__"), Vec::<String>::new());
    }

    #[test]
    fn sentences_are_found_in_time_in_the_order_of_a_text_s_length() {
        let started = std::time::Instant::now();
        for text in ["a.", ".", ". ", ".\n", ".)", "1.", " ", "\n"] {
            let found = sentence_ranges(&format!("a{}", text.repeat((256 << 10) / text.len())));
            assert!(found.iter().all(|range| !range.is_empty()));
        }
        // The square of it would be minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn sentences_end_where_people_end_them() {
        let text = "1. A first one, e.g. this. Is it? Yes!\nIt went on (so it\ndid.) Version 1.2 of foo.rs came\n\nNew paragraph";
        let seen: Vec<&str> = sentences(text).collect();
        assert_eq!(
            seen,
            [
                "1. A first one, e.g. this.",
                "Is it?",
                "Yes!",
                "It went on (so it\ndid.)",
                "Version 1.2 of foo.rs came",
                "New paragraph"
            ]
        );
    }
}
