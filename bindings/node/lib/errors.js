// Why a call failed.
import { CALLS, PARAMETERS, STRUCTS } from "./generated/declarations.js";

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

/** What a parameter of C is called here. */
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
