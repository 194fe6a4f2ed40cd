// A worker that asks each file one question, with a session for each, side by side.
import { ask, autonomous, count, text } from 'guild/autonomous';
import { glob } from 'guild/files';

export const { dispatch, run } = autonomous({
  config: {
    files: text('Which files, as a glob; all Markdown if not set'),
    most: count('How many files, at most; 5 if not set', { max: 20 }),
  },
  async run({ task, config, activation }) {
    // A session that fails is a sentence in the report, not the end of the job.
    async function section(path: string) {
      const prompt = `${task}\nSource: \`${path}\``;
      const asked = ask({ activation, prompt, tools: ['Read', 'Grep', 'Glob'] });
      const answer = await asked.catch((error) => `No answer: ${error.message}`);
      return `# ${path}\n\n${answer}`;
    }
    const files = config.files ?? '**/*.md';
    const paths = glob(files, config.most ?? 5);
    if (paths.length === 0) throw new Error(`no file matches ${files}`);
    const sections = await Promise.all(paths.map(section));
    return sections.join('\n\n');
  },
});
