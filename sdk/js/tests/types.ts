// What the types accept and refuse, checked by `tsc --noEmit --strict` where `guild` resolves to this package.
import { ask, autonomous, count as whole, optional } from 'guild/autonomous';
import { flag, integer, list, object, text, tool, tools } from 'guild/toolbox';
import { worker, Refusal } from 'guild/worker';
import { writeArtifact } from 'guild/job';

export const toolbox = tools({
  a: tool({ description: 'a',
    input: { mode: text('m', { enum: ['x', 'y'] }), deep: optional(flag()), all: list(object({ n: integer() })) },
    output: { n: integer() },
    call({ mode, deep, all }) {
      const m: 'x' | 'y' = mode;
      const d: boolean | undefined = deep;
      const n: number = all.reduce((sum, one) => sum + one.n, 0);
      // @ts-expect-error it may be absent
      const e: boolean = deep;
      return { n };
    },
  }),
  b: tool({ description: 'b', input: { word: text() }, output: { n: integer() },
    // @ts-expect-error a wrong result
    call: ({ word }) => ({ n: word }) }),
  c: tool({ description: 'c', input: { word: text() }, call: ({ word }) => word.length }),
  d: tool({ description: 'd', call: () => 'text' }),
});

export const dispatch = worker({
  config: { focus: text('f', { enum: ['a', 'b'] }), most: whole() },
  // @ts-expect-error no such tool
  tools: ['Reed'],
  plan({ config, activation }) {
    const focus: 'a' | 'b' | undefined = config.focus;
    // @ts-expect-error it may be absent
    const most: number = config.most;
    // @ts-expect-error no such key
    config.focs;
    if (activation.context.tag === 'commission') return { prompt: activation.context.val.request.task };
    throw new Refusal('no');
  },
});
// @ts-expect-error a list is no key of a config
worker({ config: { l: list(text()) } });

autonomous({
  async run({ activation }) {
    writeArtifact('a', 'b');
    return ask({
      activation, prompt: 'p', jobTools: true,
      ownTools: {
        g: tool({ description: 'g', input: { term: text() }, call: ({ term }) => term.toUpperCase() }),
        h: tool({ description: 'h', input: { n: integer() }, call: async ({ n }) => n + 1 }),
      },
    });
  },
});
