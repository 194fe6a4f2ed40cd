// Tools are functions from an input to a result.
import { told } from './errors.js';
import { schemaOf } from './fields.js';

export * from './fields.js';

/** The error of an input that is not acceptable: where, and what would be. */
export class InvalidInput extends Error {}

/** Makes a toolbox, to be exported as `toolbox`. */
export function tools(all) {
  const definitions = Object.entries(all).map(([name, tool]) => ({
    name,
    title: tool.title,
    description: tool.description,
    inputSchema: JSON.stringify(schemaOf(tool.input ?? {})),
    outputSchema: tool.output && JSON.stringify(schemaOf(tool.output)),
    readOnly: tool.readOnly ?? false,
  }));
  return {
    listTools: () => definitions,
    callTool(name, input) {
      if (!Object.hasOwn(all, name)) throw { tag: 'unknown-tool', val: name };
      try {
        return JSON.stringify(all[name].call(JSON.parse(input)));
      } catch (error) {
        if (error instanceof InvalidInput) throw { tag: 'invalid-input', val: error.message };
        throw { tag: 'failed', val: told(error) };
      }
    },
  };
}
