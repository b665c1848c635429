// libcowmlx in Node.js: language models, arrays, programs and trainings.
export { NDArray, arraysInfo, loadArrays, saveArrays } from "./array.js";
export { Checkpoint, Context } from "./context.js";
export { ENUMERATIONS, REASONS, STATUSES, VERSION } from "./generated/declarations.js";
export { CowMlxError } from "./errors.js";
export { Media } from "./media.js";
export { Adapter, Model } from "./model.js";
export { libraryPath, useLibrary } from "./native.js";
export { ProgramBuilder, Value } from "./builder.js";
export * as op from "./generated/operations.js";
export { Program } from "./program.js";
export { Runtime, abiVersion, operationsInfo, runtimeInfo, trimMemory, version } from "./runtime.js";
export { Training } from "./training.js";
