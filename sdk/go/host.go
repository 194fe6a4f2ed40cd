package guild

import "fmt"

// Passage is a line of a file that matched.
type Passage struct {
	Path string
	// Line is the number of the line, from 1.
	Line uint32
	Text string
}

// Read is lines offset to offset+limit of a text file below the granted read roots, each with its number.
func Read(path string, offset, limit uint32) (string, error) { return hostRead(path, offset, limit) }

// Grep finds at most limit lines that match a regular expression, in all files or in those whose path matches glob.
func Grep(pattern, glob string, limit uint32) ([]Passage, error) {
	return hostGrep(pattern, glob, limit)
}

// Glob finds at most limit paths of files, newest first.
func Glob(pattern string, limit uint32) ([]string, error) { return hostGlob(pattern, limit) }

// Entry is a memory without its text.
type Entry struct {
	Key      string
	Bytes    uint64
	Modified string
}

// Store writes a memory; one under the same key is replaced. Keys match [A-Za-z0-9_-]{1,64}.
func Store(scope Scope, key, content string) error { return hostStore(scope, key, content) }

// Load is the text under a key, and whether there is one.
func Load(scope Scope, key string) (content string, found bool, err error) {
	return hostLoad(scope, key)
}

// List is all memories of a scope, newest first.
func List(scope Scope) ([]Entry, error) { return hostList(scope) }

// Delete removes a memory, and tells whether there was one.
func Delete(scope Scope, key string) (bool, error) { return hostDelete(scope, key) }

// Hit is one answer of a search.
type Hit struct{ Title, URL, Snippet string }

// Search searches the web; at most limit hits, best first.
func Search(query string, limit uint32) ([]Hit, error) { return hostSearch(query, limit) }

// Fetch is the main text of a page as Markdown.
func Fetch(url string) (string, error) { return hostFetch(url) }

// UpdateSummary replaces the summary that the job's status shows.
func UpdateSummary(summary string) error { return hostUpdateSummary(summary) }

// RecordDecision records a judgment call, for a person to review.
func RecordDecision(question, decision, reasoning string) error {
	return hostRecordDecision(question, decision, reasoning)
}

// LogQuestion logs a question that only a person can answer.
func LogQuestion(question string) error { return hostLogQuestion(question) }

// WriteArtifact writes a file below the job's artifacts; one that exists is replaced.
func WriteArtifact(path string, contents []byte) error { return hostWriteArtifact(path, contents) }

// SubmitResult hands the result over. The last one while the job runs is the result.
func SubmitResult(output string) error { return hostSubmitResult(output) }

// Debugf writes a line of details for the worker's author into the log.
func Debugf(format string, args ...any) { hostLog(0, fmt.Sprintf(format, args...)) }

// Infof writes a line into the log: the progress of the work.
func Infof(format string, args ...any) { hostLog(1, fmt.Sprintf(format, args...)) }

// Warnf writes a line into the log: an unusual condition.
func Warnf(format string, args ...any) { hostLog(2, fmt.Sprintf(format, args...)) }

// Errorf writes a line into the log: a failure.
func Errorf(format string, args ...any) { hostLog(3, fmt.Sprintf(format, args...)) }
