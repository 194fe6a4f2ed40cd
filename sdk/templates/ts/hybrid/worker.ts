// A worker that knows the headings of the files that it may read, and a tool that lists them.
import { grep } from 'guild/files';
import { integer, list, object, optional, text, tool, tools } from 'guild/toolbox';
import { systemPrompt, worker } from 'guild/worker';

const headings = (files = '**/*.md') => grep('^#{1,3} ', files, 200);

export const dispatch = worker({
  tools: ['Read', 'Grep', 'Glob'],
  plan({ task, activation }) {
    const lines = headings().map(({ path, line, text }) => `\n${path}:${line}: ${text}`);
    return { systemPrompt: `${systemPrompt(activation, task)}\n\n# Headings of the files\n${lines.join('')}` };
  },
});

const heading = object({
  path: text('The file'),
  line: integer('The number of the line, from 1'),
  text: text('The heading, with its `#`'),
});

export const toolbox = tools({
  headings: tool({
    description: 'Lists the headings of Markdown files, to find where to read.',
    input: { files: optional(text('The files, as a glob; all Markdown if it is left out')) },
    output: { headings: list(heading) },
    readOnly: true,
    call: ({ files }) => ({ headings: headings(files) }),
  }),
});
