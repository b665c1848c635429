// Errors of calls, and the checks of arguments that a call makes before it uses any of them.
import { CALLS, DTYPES, PARAMETERS, STRUCTS } from "./generated/declarations.js";

/** A call that failed: for people a message, for programs a status, a reason and its details. */
export class CowMlxError extends Error {
  #text;

  /**
   * @param {string} status  the name of a status, such as "EINVAL"
   * @param {string} text  the message without the call
   * @param {string} [reason]  a name of COW_MLX_REASONS
   * @param {Record<string, string | number>} [details]
   * @param {string} [operation]  the call, such as "Context.begin"
   */
  constructor(status, text, reason = "", details = {}, operation = "") {
    super(text);
    this.#text = text;
    this.name = "CowMlxError";
    this.status = status;
    this.reason = reason;
    this.details = details;
    this.by(operation);
  }

  /** Name the call that failed. */
  by(operation) {
    this.operation = operation;
    this.message = operation ? `${operation}: ${this.#text}` : this.#text;
    return this;
  }

  /** The error that `failure()` has read: calls and fields get the names that they have here. */
  static from({ status, message, reason, details, operation }) {
    const prefix = `${operation}: `;
    const text = message.startsWith(prefix) ? message.slice(prefix.length) : message;
    if (details && "argument" in details) details = { ...details, argument: renamed(details.argument) };
    return new CowMlxError(status, renamed(text), reason, details, CALLS[operation] ?? operation);
  }
}

/** "max_tokens" of "maxTokens", and the other way. */
export const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
export const camel = (name) => name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());

/** The name of a parameter of C in this binding. */
export const ownParameter = (name) => camel(name.replace(/_json$/, "").replace("timeout_ms", "milliseconds"));

const fields = Object.entries(STRUCTS).filter(([name]) => name.endsWith("_params"));
const FIELDS = new Set(fields.flatMap(([, { members }]) => Object.keys(members)));
const ALL_PARAMETERS = new Set(Object.values(PARAMETERS).flat());

// Words in quotes and parts of paths are the host's, and stay as they are.
function renamed(text) {
  return text.replace("is NULL", "is not given").replace(/[\w."'/\\-]*\w/g, (word) => {
    const name = word.replace(/^[a-z]+_params\./, "");
    if (FIELDS.has(name)) return camel(name);
    if (ALL_PARAMETERS.has(name)) return ownParameter(name);
    return CALLS[name.replace(/^cow_mlx_/, "")] ?? word;
  });
}

/** A value as a message shows it: short, and never with another error. */
export function shown(value) {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === "function") return "a function";
  if (typeof value !== "object" || value === null) return String(value);
  const kind = value.constructor?.name ?? "object";
  return Array.isArray(value) ? "a list" : `${/^[AEIOU]/.test(kind) ? "an" : "a"} ${kind}`;
}

/** An argument that the binding itself refuses, as the library would. */
export function refuse(argument, value, accepted, reason = "out_of_range") {
  const details = { argument, value: shown(value), accepted };
  throw new CowMlxError("EINVAL", `${argument} is ${shown(value)}, must be ${accepted}`, reason, details);
}

const isText = (value) => typeof value === "string";
const isList = (value) => Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
const isObject = (value) => Object.prototype.toString.call(value) === "[object Object]" && !("handle" in value);
const isCall = (value) => typeof value === "function";
const isNumber = (value) => typeof value === "number" || typeof value === "bigint";
const areTexts = (value) => Array.isArray(value) && value.every(isText);
const kind = (name) => [(value) => value?.kind === name, `of the class ${name[0].toUpperCase()}${name.slice(1)}`];

const TEXT = [isText, "a text"], TEXTS = [areTexts, "a list of texts"], NUMBER = [isNumber, "a number"];
const PATH = [(value) => isText(value) && !value.includes("\0"), "a path, a text without NUL"];
const OPTIONS = [isObject, "an object of options"];
const CALLBACK = [(value) => value === null || isCall(value), "a function"];
const OBJECT = [isObject, "an object"];
const BYTES = [(value) => value instanceof Uint8Array && value.byteLength > 0, "a Uint8Array that is not empty"];

// The check of each argument, by its name, and the text of what is accepted.
const ARGUMENTS = {
  path: PATH, folder: PATH, file: PATH,
  text: [(value) => isText(value) || value instanceof Uint8Array, "a text, or its UTF-8 as a Uint8Array"],
  query: TEXT, prefix: TEXT, suffix: TEXT, name: TEXT, operation: TEXT, of: TEXT, dtype: [(value) => isText(value) && value in DTYPES, `one of ${Object.keys(DTYPES).join(", ")}`], dimension: TEXT,
  texts: TEXTS, documents: TEXTS, names: TEXTS, withRespectTo: TEXTS,
  tokens: [isList, "a list of tokens, such as an Int32Array"],
  positions: [isList, "a list of numbers, such as an Int32Array"],
  messages: [(value) => Array.isArray(value) && value.every(isObject),
    'a list of messages, such as [{ role: "user", content: "Hello" }]'],
  options: OPTIONS, params: OPTIONS, signal: [(value) => value instanceof AbortSignal, "an AbortSignal"],
  onText: CALLBACK, onEvent: CALLBACK, look: [isCall, "a function"], write: [isCall, "a function"],
  pixels: BYTES, bytes: BYTES,
  token: NUMBER, count: NUMBER, width: NUMBER, height: NUMBER, milliseconds: NUMBER, scale: NUMBER, results: [(value) => Number.isInteger(value) && value > 0, "a whole number above 0"],
  array: [(value) => value?.kind === "array", "of the class NDArray"], checkpoint: kind("checkpoint"), program: kind("program"), model: kind("model"),
  adapter: [(value) => value === null || value?.kind === "adapter", "of the class Adapter, or null"],
  json: [(value) => isText(value) || isObject(value), "an object, or a text that is JSON"],
  spec: OBJECT, axes: OBJECT, dimensions: OBJECT, attributes: OBJECT,
  arrays: [(value) => isObject(value) && Object.values(value).every((each) => each?.kind === "array"),
    "an object of NDArrays by their names"],
  inputs: [(value) => isObject(value) || Array.isArray(value), "a list, or an object by names"],
  list: [Array.isArray, "a list"], shape: [(value) => Array.isArray(value) && value.every((each) => isText(each) || Number.isInteger(each)),
    "a list of sizes, and of names of sizes that vary"], types: [(value) => Array.isArray(value) && value.every(isObject), "a list of { dtype, shape }"],
  node: [(value) => value?.constructor?.name === "Value", "of the class Value"],
  numbers: [(value) => [value].flat(Infinity).every((each) => typeof each === "number" || typeof each === "boolean"),
    "a number, or lists of them"],
  value: [() => true, "anything"],
};

// "tokens, options?{signal}": names, whether each may be left out, and all keys that it has.
function read(signature) {
  return [...signature.matchAll(/(\w+)(\?)?(?:\{([^}]*)\})?/g)].map(([, name, optional, keys]) => {
    if (!(name in ARGUMENTS)) throw new Error(`the argument ${name} has no check`);
    return { name, isOptional: Boolean(optional), keys: keys?.split(" ") };
  });
}

/**
 * Make methods name themselves in their errors, and refuse wrong arguments.
 * @param {any} owner  a class's prototype, or a class with static methods
 * @param {string} noun  what the errors say before the method's name
 * @param {Record<string, string>} signatures  by the names of methods
 */
export function checked(owner, noun, signatures) {
  for (const [name, signature] of Object.entries(signatures)) {
    const { value, ...others } = Object.getOwnPropertyDescriptor(owner, name);
    const made = checkedCall(`${noun}.${name}`, signature, value);
    Object.defineProperty(owner, name, { ...others, value: made });
  }
}

/**
 * The same of one function.
 * @template {(...given: any[]) => any} F
 * @param {string} name
 * @param {string} signature
 * @param {F} run
 * @returns {F}
 */
export function checkedCall(name, signature, run) {
  const parameters = read(signature);
  const isAsync = run.constructor.name === "AsyncFunction";
  const call = function (...given) {
    try {
      check(parameters, given);
      const result = run.apply(this, given);
      return isAsync ? result.catch((error) => { throw by(name, error); }) : result;
    } catch (error) {
      if (isAsync) return Promise.reject(by(name, error));
      throw by(name, error);
    }
  };
  return /** @type {F} */ (Object.defineProperty(call, "name", { value: name }));
}

const heard = new WeakSet();

/** An error that a callback has thrown is not that of the call around it. */
export function ofCallback(error) {
  if (error instanceof CowMlxError) heard.add(error);
  return error;
}

/** Let an error name the call that failed. */
export function by(name, error) {
  return error instanceof CowMlxError && !heard.has(error) ? error.by(name) : error;
}

function check(parameters, given) {
  if (given.length > parameters.length) {
    const accepted = parameters.length ? `(${parameters.map(({ name }) => name).join(", ")})` : "no arguments";
    const extra = shown(given[parameters.length]);
    throw new CowMlxError("EINVAL", `${given.length} arguments were given, the last ${extra}; it takes ${accepted}`,
      "unknown_option", { argument: `arguments[${parameters.length}]`, value: extra, accepted });
  }
  parameters.forEach(({ name, isOptional, keys }, at) => {
    const value = given[at];
    if (isOptional && value === undefined) return;
    const [isAccepted, accepted] = ARGUMENTS[name];
    if (!isAccepted(value)) refuse(name, value, accepted, value == null ? "null_argument" : "wrong_type");
    if (keys) checkKeys(name, value, keys);
    if (value?.signal !== undefined && name === "options" && !(value.signal instanceof AbortSignal)) {
      refuse("signal", value.signal, "an AbortSignal", "wrong_type");
    }
  });
}

/** Refuse keys that an object does not have. */
export function checkKeys(name, value, keys) {
  const key = Object.keys(value).find((each) => !keys.includes(each));
  if (key !== undefined) {
    throw new CowMlxError("EINVAL", `${name} has no ${key}; it has ${keys.join(", ")}`, "unknown_option",
      { argument: key, value: shown(value[key]), accepted: keys.join(", ") });
  }
}
