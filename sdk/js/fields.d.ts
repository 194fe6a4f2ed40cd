/** A field of a tool's input or output, whose value is a `Value`. */
export interface Field<Value> {
  /** The JSON Schema of the value. */
  readonly schema: object;
  /** Whether the field may be absent. */
  readonly isOptional: boolean;
  /** Carries the type of the value; it does not exist. */
  readonly value?: Value;
}

/** A field that may be absent. */
export interface OptionalField<Value> extends Field<Value> {
  readonly isOptional: true;
}

/** A field that can also be a key of a dispatch's config, which the SDK checks. */
export interface ConfigField<Value> extends Field<Value> {
  /** What the field accepts, for the text of a refusal. */
  readonly accepted: string;
  /** The value, or undefined where it is not acceptable. */
  read(value: unknown): Value | undefined;
}

/** Fields by their names. */
export type Fields = Record<string, Field<any>>;

/** Keys of a dispatch's config by their names. */
export type ConfigFields = Record<string, ConfigField<any>>;

/** The type of a field's value. */
export type ValueOf<F> = F extends Field<infer Value> ? Value : never;

type OptionalNames<All> = { [Name in keyof All]: All[Name] extends OptionalField<any> ? Name : never }[keyof All];
type Flat<T> = { [Name in keyof T]: T[Name] };

/** The type of an object with these fields. */
export type Values<All> = Flat<
  { [Name in Exclude<keyof All, OptionalNames<All>>]: ValueOf<All[Name]> } & {
    [Name in OptionalNames<All>]?: ValueOf<All[Name]>;
  }
>;

/** The type of a checked config: every key of it may be absent. */
export type Config<All> = { [Name in keyof All]?: ValueOf<All[Name]> };

/**
 * A text. As a key of a config it is trimmed, and not blank.
 * @param description What the text is, for models and callers.
 * @param options `enum`: the texts that are accepted. `max`: the most characters.
 */
export function text<const Value extends string = string>(
  description?: string,
  options?: { enum?: readonly Value[]; max?: number },
): ConfigField<Value>;

/** A whole number from 1 on, at most `max`. */
export function count(description?: string, options?: { max?: number }): ConfigField<number>;

/** A number above 0. */
export function amount(description?: string): ConfigField<number>;

/** True or false. */
export function flag(description?: string): ConfigField<boolean>;

/** A number from `min` to `max`. */
export function number(description?: string, options?: { min?: number; max?: number }): Field<number>;

/** A whole number from `min` to `max`. */
export function integer(description?: string, options?: { min?: number; max?: number }): Field<number>;

/** A list of at most `max` items. */
export function list<Item>(items: Field<Item>, description?: string, options?: { max?: number }): Field<Item[]>;

/** An object with these fields. */
export function object<All extends Fields>(fields: All, description?: string): Field<Values<All>>;

/** A field that may be absent. */
export function optional<Value>(of: Field<Value>): OptionalField<Value>;

/** The JSON Schema of an object with these fields. */
export function schemaOf(fields: Fields): object;

/** A tool: what a model reads about it, and its function. */
export interface Tool<Input extends Fields, Output extends Fields> {
  /** A name for people. */
  title?: string;
  /** What the tool does, and when to use it. */
  description: string;
  /** The fields of its input, which the host checks before the tool is called. */
  input?: Input;
  /** The fields of its result; without them the result is any value that can be JSON. */
  output?: Output;
  /** Whether the tool changes nothing, so that a session may have several calls under way. */
  readOnly?: boolean;
  /** Answers a call. A tool of a toolbox has no job, and cannot wait. */
  call(input: Values<Input>): Fields extends Output ? unknown : Values<Output>;
}

/** Is the tool itself: it gives the function of a tool the types of the tool's fields. */
export function tool<Input extends Fields = {}, Output extends Fields = Fields>(
  definition: Tool<Input, Output>,
): Tool<Input, Output>;
