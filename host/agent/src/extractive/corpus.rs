//! The passages of all sources, and the index over them.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::try_join_all;
use guild_confine::{Bounds, Ended};
use guild_session::{
    charset,
    files::{FileEntry, Files, Listing, Reason, Unread},
    tools::ToolError,
};
use tokio_util::sync::CancellationToken;

use crate::format::{Format, MAX_DOCUMENT_BYTES, document_format};

use super::{
    cpu::{Cpu, CpuError, blocking},
    document::Reader,
    extract::{Block, Form, OMITTED, Page},
    index::{Builder, Index},
    terms::{line_ranges, ordinal, sentence_ranges},
};

/// Text that a corpus keeps at most; files that come later are left out, and counted.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// The most memory of a corpus's documents, in bytes, with all but the indexes; later files are counted likewise.
const MAX_PAGE_BYTES: usize = 128 << 20;
/// Words that an index has at most; a word that comes later is not found. English has some 200,000.
const MAX_WORDS: usize = 1 << 20;
/// Short blocks under one heading are joined until a passage has so many bytes.
const PASSAGE_BYTES: usize = 350;
/// No passage is longer.
const MAX_PASSAGE_BYTES: usize = 1400;
/// So many pages with different names and headings that have a block in common make it boilerplate,
const REPEATED_PAGES: u32 = 5;
/// and so do fewer, but at least three, where they are this share of all pages.
const REPEATED_SHARE: f32 = 0.3;
/// A document of whose blocks so many stand in others already is a copy.
const COPIED_SHARE: f32 = 0.9;

/// The passages of all sources, ready to be searched.
pub(crate) struct Corpus {
    pub(crate) documents: Vec<Document>,
    pub(crate) passages: Vec<Passage>,
    /// Over the passages.
    pub(crate) index: Index,
    /// Over the titles of the documents: what a page is about holds for each of its passages.
    pub(crate) titles: Index,
    /// The number of files found, of any kind.
    pub(crate) seen: usize,
    /// The files that were not read, and why.
    pub(crate) unread: Unread,
    /// Its approximate size in memory, in bytes.
    pub(crate) size: usize,
}

/// A file that was read.
pub(crate) struct Document {
    /// As the read roots spell it.
    pub(crate) path: String,
    pub(crate) page: Page,
}

/// The unit of search and quotation: consecutive blocks under one heading, or a part of a long block.
#[derive(Clone, Debug)]
pub(crate) struct Passage {
    /// Index of its document.
    pub(crate) document: u32,
    /// Index of its heading in the document.
    pub(crate) heading: u32,
    start: u32,
    end: u32,
    /// Of a row of a long table, where the table's head is; else empty.
    head: (u32, u32),
    /// Whether it is a listing.
    pub(crate) code: bool,
}

impl Passage {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn head(&self) -> Range<usize> {
        self.head.0 as usize..self.head.1 as usize
    }

    fn heading_in<'a>(&self, page: &'a Page) -> &'a str {
        page.headings.get(self.heading as usize).map_or("", String::as_str)
    }
}

impl Corpus {
    /// A passage with its document.
    pub(crate) fn passage(&self, number: u32) -> Option<(&Passage, &Document)> {
        let passage = self.passages.get(number as usize)?;
        Some((passage, self.documents.get(passage.document as usize)?))
    }

    /// The numbers of the documents that have these paths, and all where there are none.
    pub(crate) fn within(&self, paths: &[String]) -> HashSet<u32> {
        let named = |document: &Document| paths.is_empty() || paths.contains(&document.path);
        (0..).zip(&self.documents).filter(|(_, document)| named(document)).map(|(number, _)| number).collect()
    }

    /// A passage's text.
    pub(crate) fn text(&self, number: u32) -> &str {
        self.passage(number).map_or("", |(passage, document)| document.page.slice(passage.range()))
    }

    /// The head of the table that a passage is a row of; empty where it is none.
    pub(crate) fn table_head(&self, number: u32) -> &str {
        self.passage(number).map_or("", |(passage, document)| document.page.slice(passage.head()))
    }

    /// The listing that the end of a passage leads to: it ends in a colon.
    pub(crate) fn listing(&self, number: u32) -> Option<u32> {
        let (passage, _) = self.passage(number)?;
        let next = number.checked_add(1)?;
        let (listing, _) = self.passage(next)?;
        let together = (listing.document, listing.heading) == (passage.document, passage.heading);
        (together && listing.code && !passage.code && self.text(number).ends_with(':')).then_some(next)
    }

    /// The passage that leads to a listing; itself, where it is none or nothing leads to it.
    pub(crate) fn leading(&self, number: u32) -> u32 {
        let before = number.checked_sub(1);
        before.filter(|before| self.listing(*before) == Some(number)).unwrap_or(number)
    }

    /// The title of a passage's page.
    pub(crate) fn title(&self, number: u32) -> &str {
        self.passage(number).map_or("", |(_, document)| document.page.title.as_str())
    }

    /// The heading that a passage stands under; empty where there is none.
    pub(crate) fn heading(&self, number: u32) -> &str {
        self.passage(number).map_or("", |(passage, document)| passage.heading_in(&document.page))
    }

    /// Reads and indexes the files, on all cores. It stops soon once `cancel` is cancelled.
    pub(crate) async fn build(
        files: Arc<dyn Files>,
        listing: Arc<Listing>,
        cpu: Arc<Cpu>,
        bounds: Bounds,
        cancel: CancellationToken,
    ) -> Result<Self, CpuError> {
        let mut unread = listing.unread.clone();
        let seen = listing.files.len() + unread.total();
        let mut sources = Vec::new();
        for entry in &listing.files {
            match document_format(entry) {
                Ok(format) => sources.push((entry.clone(), format)),
                Err(reason) => unread.add(reason, &entry.path),
            }
        }
        let (documents, left_out) = read(&files, sources, &cpu, bounds, &cancel).await?;
        unread.extend(left_out);
        let documents = cpu.run(&cancel, move || without_copies(without_boilerplate(documents))).await?;
        let (documents, passages, index) = indexed(documents, &cpu, &cancel).await?;
        let named = cpu.run(&cancel, move || {
            let mut titles = Builder::new(MAX_WORDS);
            documents.iter().for_each(|document| titles.add("", &document.page.title));
            (titles.finish(), documents)
        });
        let (titles, documents) = named.await?;
        let pages: usize =
            documents.iter().map(|document| document.page.size() + document.path.len() + size_of::<Document>()).sum();
        let size = pages + passages.len() * size_of::<Passage>() + index.size() + titles.size();
        Ok(Self { documents, passages, index, titles, seen, unread, size })
    }
}

/// Reads the files, as many at a time as there are cores, each in a child process: those that say something, in their
/// order, and what is left out.
async fn read(
    files: &Arc<dyn Files>,
    sources: Vec<(FileEntry, Format)>,
    cpu: &Cpu,
    bounds: Bounds,
    cancel: &CancellationToken,
) -> Result<(Vec<Document>, Unread), CpuError> {
    let [next, texts, sizes, costly] = [const { AtomicUsize::new(0) }; 4];
    let has_room = || texts.load(Ordering::Relaxed) < MAX_TEXT_BYTES && sizes.load(Ordering::Relaxed) < MAX_PAGE_BYTES;
    let workers = (0..cpu.cores().min(sources.len())).map(|_| async {
        let mut reader = Reader::new(bounds);
        let (mut pages, mut unread) = (Vec::new(), Vec::new());
        while has_room() && !cancel.is_cancelled() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((entry, format)) = sources.get(at) else { break };
            let _permit = cpu.permit(cancel).await?;
            let bytes = match bytes(files, &entry.path).await? {
                Ok(bytes) => bytes,
                Err(reason) => {
                    unread.push((at, reason));
                    continue;
                }
            };
            match reader.page(*format, &entry.path, bytes, costly.load(Ordering::Relaxed)).await {
                Ok(page) if page.blocks.is_empty() => {}
                Ok(page) => {
                    texts.fetch_add(page.text.len(), Ordering::Relaxed);
                    sizes.fetch_add(page.size(), Ordering::Relaxed);
                    pages.push((at, Document { path: entry.path.clone(), page }));
                }
                Err(why) => {
                    let reason = match why {
                        Ended::TooLong | Ended::TooMuchMemory => {
                            costly.fetch_add(1, Ordering::Relaxed);
                            Reason::Costly
                        }
                        Ended::Failed(_) => Reason::Failed,
                    };
                    unread.push((at, reason));
                    tracing::warn!(path = entry.path, %why, "a document is left out");
                }
            }
        }
        Ok::<_, CpuError>((pages, unread))
    });
    let (pages, unread): (Vec<_>, Vec<_>) = try_join_all(workers).await?.into_iter().unzip();
    let mut pages: Vec<(usize, Document)> = pages.into_iter().flatten().collect();
    let mut unread: Vec<(usize, Reason)> = unread.into_iter().flatten().collect();
    if cancel.is_cancelled() {
        return Err(CpuError::Cancelled);
    }
    pages.sort_unstable_by_key(|(at, _)| *at);
    // Other workers kept reading while the last text that fits was read. The end of the corpus must not depend on that.
    let (mut text, mut size, mut fit) = (0, 0, 0);
    for (_, document) in &pages {
        if text >= MAX_TEXT_BYTES || size >= MAX_PAGE_BYTES {
            break;
        }
        text += document.page.text.len();
        size += document.page.size();
        fit += 1;
    }
    pages.truncate(fit);
    if text >= MAX_TEXT_BYTES || size >= MAX_PAGE_BYTES {
        let last = pages.last().map_or(0, |(at, _)| at + 1);
        unread.retain(|(at, _)| *at < last);
        unread.extend((last..sources.len()).map(|at| (at, Reason::Beyond)));
    }
    unread.sort_unstable();
    let mut left_out = Unread::default();
    for (at, reason) in unread {
        left_out.add(reason, sources.get(at).map_or("", |(entry, _)| entry.path.as_str()));
    }
    Ok((pages.into_iter().map(|(_, document)| document).collect(), left_out))
}

/// A file's bytes, or why it has no text.
async fn bytes(files: &Arc<dyn Files>, path: &str) -> Result<Result<Vec<u8>, Reason>, CpuError> {
    let (files, path) = (files.clone(), path.to_owned());
    blocking(move || {
        let bytes = files.listed_bytes(&path, MAX_DOCUMENT_BYTES).map_err(|error| match error {
            ToolError::OverLimit(_) => Reason::Large,
            _ => Reason::Denied,
        })?;
        if charset::is_binary(&bytes) {
            return Err(Reason::Binary);
        }
        Ok(bytes)
    })
    .await
}

fn hashed(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Removes documents without content of their own: copies, and pages that join all others for printing. A block that
/// stands in several documents belongs to the smallest.
fn without_copies(mut documents: Vec<Document>) -> Vec<Document> {
    let mut order: Vec<usize> = (0..documents.len()).collect();
    let length = |at: &usize| documents.get(*at).map_or(0, |document| document.page.text.len());
    order.sort_by_key(length);
    let mut said: HashSet<u64> = HashSet::new();
    let mut copies: HashSet<usize> = HashSet::new();
    for at in order {
        let Some(Document { page, .. }) = documents.get(at) else { continue };
        let hashes: Vec<u64> = page.blocks.iter().map(|block| hashed(page.words(block))).collect();
        let again = hashes.iter().filter(|hash| said.contains(hash)).count();
        if again as f32 >= hashes.len() as f32 * COPIED_SHARE {
            copies.insert(at);
        } else {
            said.extend(hashes);
        }
    }
    let mut at = 0..;
    documents.retain(|_| at.next().is_some_and(|at| !copies.contains(&at)));
    documents
}

/// Removes what HTML pages repeat: notices, banners, "was this page helpful?".
///
/// A block is boilerplate where it stands on several pages that are otherwise different: copies of one page (an older
/// edition of a manual next to the newer one) have their name and their first heading in common, and count as one.
fn without_boilerplate(mut documents: Vec<Document>) -> Vec<Document> {
    let is_html = |document: &&mut Document| document.page.format == Format::Html;
    let block_hash = |page: &Page, block: &Block| hashed(page.words(block));
    let mut seen: HashSet<(u64, u64)> = HashSet::new();
    let mut pages: HashMap<u64, u32> = HashMap::new();
    let mut contexts: HashSet<u64> = HashSet::new();
    for document in documents.iter_mut().filter(is_html) {
        let page = &document.page;
        let context = hashed((document.path.rsplit('/').next(), page.headings.get(1)));
        contexts.insert(context);
        for block in &page.blocks {
            let block = block_hash(page, block);
            if seen.insert((block, context)) {
                *pages.entry(block).or_default() += 1;
            }
        }
    }
    let share = (contexts.len() as f32 * REPEATED_SHARE).ceil() as u32;
    let repeated = REPEATED_PAGES.min(share.max(3));
    for document in documents.iter_mut().filter(is_html) {
        document.page.keep(|page, block| pages.get(&block_hash(page, block)).is_none_or(|pages| *pages < repeated));
    }
    documents.retain(|document| !document.page.blocks.is_empty());
    documents
}

/// The passages of the documents, and the index over them.
async fn indexed(
    documents: Vec<Document>,
    cpu: &Cpu,
    cancel: &CancellationToken,
) -> Result<(Vec<Document>, Vec<Passage>, Index), CpuError> {
    let documents = Arc::new(documents);
    let share = documents.len().div_ceil(cpu.cores()).max(1);
    let words = MAX_WORDS / cpu.cores();
    let workers = (0..cpu.cores()).map(|worker| {
        let (documents, stop) = (documents.clone(), cancel.clone());
        cpu.run(cancel, move || {
            let mut builder = Builder::new(words);
            let mut all = Vec::new();
            for (number, document) in documents.iter().enumerate().skip(worker * share).take(share) {
                if stop.is_cancelled() {
                    break;
                }
                let page = &document.page;
                let first = all.len();
                passages(number as u32, page, &mut all);
                for passage in all.iter().skip(first) {
                    let (heading, text) = (passage.heading_in(page), page.slice(passage.range()));
                    match page.slice(passage.head()) {
                        "" => builder.add(heading, text),
                        head => builder.add(heading, &format!("{head}\n{text}")),
                    }
                }
            }
            (all, builder.part())
        })
    });
    let (passages, parts): (Vec<_>, Vec<_>) = try_join_all(workers).await?.into_iter().unzip();
    if cancel.is_cancelled() {
        return Err(CpuError::Cancelled);
    }
    let index = cpu.run(cancel, move || Index::join(parts)).await?;
    // The workers are gone, so this is the only handle.
    let documents =
        Arc::into_inner(documents).ok_or_else(|| CpuError::Failed("indexing the sources broke off".to_owned()))?;
    Ok((documents, passages.into_iter().flatten().collect(), index))
}

/// The passages of a page: short blocks under one heading are joined, long ones are split between sentences or lines.
fn passages(document: u32, page: &Page, found: &mut Vec<Passage>) {
    let mut open: Option<Passage> = None;
    let mut in_list = false;
    for block in &page.blocks {
        let text = page.words(block);
        let code = block.form == Form::Code;
        for piece in pieces(text, code) {
            let range = block.range.start + piece.start..block.range.start + piece.end;
            if let Some(passage) = &mut open {
                let gap = page.text.get(passage.end as usize..range.start);
                // What ends in a colon is nothing without what follows, and a list is one thing.
                let leads = page.text.get(passage.range()).is_some_and(|text| text.ends_with(':'));
                in_list = block.form == Form::Item && (leads || in_list);
                let leads = leads || in_list || ordinal(text).is_some_and(|at| at > 0);
                let fits = passage.code == code
                    && block.head.is_empty()
                    && passage.head().is_empty()
                    && passage.heading as usize == block.heading
                    && (passage.range().len() < PASSAGE_BYTES || leads)
                    && range.end - passage.start as usize <= MAX_PASSAGE_BYTES
                    && gap.is_some_and(|gap| matches!(gap.trim(), "" | OMITTED));
                if fits {
                    passage.end = range.end as u32;
                    continue;
                }
            }
            let (heading, start, end) = (block.heading as u32, range.start as u32, range.end as u32);
            let head = (block.head.start as u32, block.head.end as u32);
            found.extend(open.replace(Passage { document, heading, start, end, head, code }));
        }
    }
    found.extend(open);
}

/// Splits a block into parts that fit into a passage.
fn pieces(text: &str, code: bool) -> Vec<Range<usize>> {
    if text.len() <= MAX_PASSAGE_BYTES {
        return std::iter::once(0..text.len()).collect();
    }
    let atoms = if code { line_ranges(text) } else { sentence_ranges(text) };
    let mut pieces: Vec<Range<usize>> = Vec::new();
    for atom in atoms.into_iter().flat_map(|atom| fitting(text, atom)) {
        match pieces.last_mut() {
            Some(last) if atom.end - last.start <= MAX_PASSAGE_BYTES => last.end = atom.end,
            _ => pieces.push(atom),
        }
    }
    pieces
}

/// Splits a sentence or line into parts that fit into a passage. Nearly always it fits whole.
fn fitting(text: &str, atom: Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = atom.start;
    while atom.end - start > MAX_PASSAGE_BYTES {
        let window = text.get(start..text.floor_char_boundary(start + MAX_PASSAGE_BYTES)).unwrap_or_default();
        let end = window.rfind(char::is_whitespace).filter(|end| *end > 0).unwrap_or(window.len());
        parts.push(start..start + end);
        let rest = text.get(start + end..atom.end).unwrap_or_default();
        start = atom.end - rest.trim_start().len();
    }
    parts.push(start..atom.end);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extractive::extract;

    fn html(path: &str, body: &str) -> Document {
        Document { path: path.to_owned(), page: extract::page(Format::Html, path, body.to_owned()) }
    }

    fn texts(documents: &[Document]) -> Vec<&str> {
        documents
            .iter()
            .flat_map(|document| document.page.blocks.iter().map(|block| document.page.words(block)))
            .collect()
    }

    #[test]
    fn what_pages_repeat_is_taken_out_and_lines_stay_right() {
        let page = |n: u32| {
            html(
                &format!("d/{n}.html"),
                &format!("<h1>Page {n}</h1>\n<p>Was this helpful?</p>\n<p>Own text\nof {n}</p>"),
            )
        };
        let documents = without_boilerplate((0..4).map(page).collect());
        assert_eq!(texts(&documents), ["Own text\nof 0", "Own text\nof 1", "Own text\nof 2", "Own text\nof 3"]);
        let page = &documents[0].page;
        assert_eq!((page.line(page.blocks[0].range.start), page.line(page.blocks[0].range.end - 1)), (3, 4));
    }

    #[test]
    fn editions_of_one_page_are_not_boilerplate() {
        let page = |n: u32| {
            let text = format!("<h1>Install</h1><p>Run the installer.</p><p>It is edition {n}.</p>");
            html(&format!("v{n}/install.html"), &text)
        };
        let documents = without_copies(without_boilerplate((0..9).map(page).collect()));
        assert_eq!(texts(&documents).iter().filter(|text| **text == "Run the installer.").count(), 9);
    }

    #[test]
    fn a_page_that_puts_all_others_together_is_left_out() {
        let page = |n: u32| html(&format!("d/{n}.html"), &format!("<h1>Page {n}</h1><p>Text of {n}.</p>"));
        let all =
            html("d/all.html", &(1..4).map(|n| format!("<h1>Page {n}</h1><p>Text of {n}.</p>")).collect::<String>());
        let documents = without_copies(std::iter::once(all).chain((1..4).map(page)).collect());
        assert_eq!(
            documents.iter().map(|document| document.path.as_str()).collect::<Vec<_>>(),
            ["d/1.html", "d/2.html", "d/3.html"]
        );
    }

    #[test]
    fn long_blocks_are_parted_and_nothing_is_lost() {
        let sentence = "This sentence is one of very many that stand in a single paragraph. ";
        for (text, code) in [(sentence.repeat(100), false), ("word ".repeat(2000), false), ("x".repeat(5000), true)] {
            let parts = pieces(&text, code);
            assert!(parts.len() > 1 && parts.iter().all(|part| part.len() <= MAX_PASSAGE_BYTES));
            let kept: String = parts
                .iter()
                .flat_map(|part| text.get(part.clone()).unwrap().chars())
                .filter(|c| !c.is_whitespace())
                .collect();
            assert_eq!(kept, text.chars().filter(|c| !c.is_whitespace()).collect::<String>());
        }
    }
}
