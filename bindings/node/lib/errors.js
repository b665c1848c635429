// Why a call failed.

/** A call that failed: for people a message, for programs a status, a reason and its details. */
export class CowMlxError extends Error {
  /**
   * @param {string} status  the name of a status, such as "EINVAL"
   * @param {string} message
   * @param {string} [reason]  a name of COW_MLX_REASONS
   * @param {Record<string, string | number>} [details]
   * @param {string} [operation]  the call, such as "context_begin"
   */
  constructor(status, message, reason = "", details = {}, operation = "") {
    super(message);
    this.name = "CowMlxError";
    this.status = status;
    this.reason = reason;
    this.details = details;
    this.operation = operation;
  }

  /** Of what `failure()` has told. */
  static from({ status, message, reason, details, operation }) {
    return new CowMlxError(status, message, reason, details, operation);
  }
}

/** An argument that the binding itself refuses, as the library would. */
export function refuse(argument, value, accepted) {
  const shown = typeof value === "string" ? JSON.stringify(value) : String(value);
  const details = { argument, value: shown, accepted };
  const message = `${argument} is ${shown}, must be ${accepted}`;
  throw new CowMlxError("EINVAL", message, "out_of_range", details);
}
