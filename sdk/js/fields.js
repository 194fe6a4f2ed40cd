// The kinds of a config's keys and of a tool's inputs. Each is a JSON Schema, and says what it accepts.

const field = (schema, accepted, read) => ({ schema, accepted, read, isOptional: false });

/** A text that is not blank. */
export const text = (description, { enum: values, max } = {}) =>
  field(
    { type: 'string', description, enum: values, maxLength: max },
    values ? `one of ${values.join(', ')}` : 'a text that is not empty',
    (value) => {
      const trimmed = typeof value === 'string' ? value.trim() : '';
      return trimmed && (!values || values.includes(trimmed)) ? trimmed : undefined;
    },
  );

/** A whole number from 1 on. */
export const count = (description, { max } = {}) =>
  field(
    { type: 'integer', minimum: 1, maximum: max, description },
    max ? `a whole number from 1 to ${max}` : 'a whole number, 1 or more',
    (value) => (Number.isInteger(value) && value >= 1 && value <= (max ?? 4294967295) ? value : undefined),
  );

/** A number above 0. */
export const amount = (description) =>
  field({ type: 'number', exclusiveMinimum: 0, description }, 'a number above 0', (value) =>
    typeof value === 'number' && value > 0 ? value : undefined,
  );

/** True or false. */
export const flag = (description) =>
  field({ type: 'boolean', description }, 'true or false', (value) => (typeof value === 'boolean' ? value : undefined));

/** A number. */
export const number = (description, { min, max } = {}) =>
  field({ type: 'number', minimum: min, maximum: max, description });

/** A whole number. */
export const integer = (description, { min, max } = {}) =>
  field({ type: 'integer', minimum: min, maximum: max, description });

/** A list. */
export const list = (items, description, { max } = {}) =>
  field({ type: 'array', items: items.schema, maxItems: max, description });

/** An object with these fields. */
export const object = (fields, description) => field({ ...schemaOf(fields), description });

/** A field that may be absent. */
export const optional = (of) => ({ ...of, isOptional: true });

/** The schema of an object with these fields. */
export function schemaOf(fields) {
  const entries = Object.entries(fields);
  return {
    type: 'object',
    properties: Object.fromEntries(entries.map(([name, field]) => [name, field.schema])),
    required: entries.filter(([, field]) => !field.isOptional).map(([name]) => name),
    additionalProperties: false,
  };
}

/** Is the tool itself: it gives the function of a tool the types of the tool's fields, in TypeScript and in editors. */
export const tool = (definition) => definition;
