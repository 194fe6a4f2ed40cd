// A toolbox that counts words.
import { InvalidInput, integer, optional, text, tool, tools } from 'guild/toolbox';

export const toolbox = tools({
  count: tool({
    description: 'Counts the words of a text, or how often it has one word.',
    input: { text: text('The text to count in', { max: 100000 }), word: optional(text('Count this word alone')) },
    output: { words: integer('How many there are', { min: 0 }) },
    readOnly: true,
    call({ text, word }) {
      if (word === '') throw new InvalidInput('`word` is empty: leave it out to count all words');
      return { words: text.split(/\s+/).filter((one) => one && (!word || one === word)).length };
    },
  }),
});
