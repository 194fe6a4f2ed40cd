import { commissionInstructions, memoriesHeading, toolInstructions } from './texts.js';

/** The system prompt of a session that has the internal tools: its background, and how to use these tools. */
export function systemPrompt(activation, task) {
  const instructions = activation.project ? commissionInstructions : toolInstructions;
  return `${background(activation, task)}\n\n# How you work\n\n${instructions}`;
}

/** The background of every session: the worker's identity, its project, its task, and its memories. */
export function background(activation, task) {
  const { posture, project, memories } = activation;
  const sections = [];
  if (posture.trim()) sections.push(posture.trim());
  if (project) sections.push(`# Project\n\n${project.name}; its files are under \`${project.root}/\`.`);
  sections.push(`# Task\n\n${task.trim()}`);
  if (memories.length > 0) sections.push(notes(memories));
  return sections.join('\n\n');
}

// Each line of a note is quoted, so that none passes for a line of the prompt.
function notes(memories) {
  const quoted = (content) => content.trim().split(/\r?\n/).map((line) => `\n> ${line}`);
  const told = memories.map((note) => `\n\n---\n\n${heading(note)}\n${quoted(note.content).join('')}`);
  return `${memoriesHeading}${told.join('')}\n\n---`;
}

// The scope of a note and its origin. The keys compacted and left-out are the host's own.
function heading({ scope, key, origin, modified }) {
  if (key === 'left-out' && scope === 'worker' && !origin) return `[said by the host, ${modified}]`;
  const compacted = key === 'compacted' ? 'condensed by the host from earlier notes' : 'of unknown origin';
  return `[${scope} note \`${key}\`, ${origin ? `from job ${origin}` : compacted}, ${modified}]`;
}
