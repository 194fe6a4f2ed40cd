// A worker that answers questions from the files that it may read.
import { text, worker } from 'guild/worker';

export const dispatch = worker({
  config: { focus: text('What to concentrate on') },
  tools: ['Read', 'Grep', 'Glob'],
  plan({ task, config }) {
    return config.focus ? { prompt: `${task}\n\nConcentrate on: ${config.focus}` } : {};
  },
});
