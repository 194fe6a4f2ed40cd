// Reads a config, and writes what the SDK for JavaScript makes of it: `sdk/rust/tests/languages.rs`.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const { Refusal, checked, count, flag, text } = await import(pathToFileURL(process.argv[2]));
const fields = { focus: text(), parallel: count(undefined, { max: 16 }), deep: flag() };
try {
  const [config, bounds] = checked({ config: readFileSync(0, 'utf8') }, fields);
  const numbers = [bounds.maxTurns ?? 0, bounds.maxBudgetUsd ?? 0, bounds.deadlineSeconds ?? 0].join(' ');
  process.stdout.write(`${numbers} [${config.focus ?? ''}] ${config.parallel ?? 0} ${Number(config.deep ?? 0)}`);
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  process.stdout.write(error.message);
}
