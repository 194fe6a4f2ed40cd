import type { Tool } from './fields.js';

export * from './fields.js';

/** The error of an input that is not acceptable: where, and what would be. Other errors say that the tool failed. */
export class InvalidInput extends Error {}

/** The export `toolbox` of a component. */
export interface ToolboxExport {
  listTools(): unknown[];
  callTool(name: string, input: string): string;
}

/** Makes a toolbox of tools by their names, to be exported as `toolbox`. */
export function tools(all: Record<string, Tool<any, any>>): ToolboxExport;
