// The library itself: where it is, and its functions as koffi declares them.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import koffi from "koffi";
import { ABI_VERSION, FUNCTIONS, VERSION } from "./generated/declarations.js";
import { CowMlxError, refuse } from "./errors.js";

let path, functions;

/**
 * Name the shared library, before the first call. Otherwise it is that of the environment's
 * COWMLX_LIBRARY, or the one that npm installed for this platform.
 * @param {string} file
 */
export function useLibrary(file) {
  if (typeof file !== "string" || file === "") {
    try {
      refuse("file", file, "the path of the shared library", file == null ? "null_argument" : "wrong_type");
    } catch (error) {
      throw error.by("useLibrary");
    }
  }
  if (functions && file !== path) {
    throw new CowMlxError("ESTATE", `another library is in use: ${path}; name one before the first call`,
      "conflict", { argument: "file" }, "useLibrary");
  }
  path = file;
}

/**
 * The library's file.
 * @returns {string}
 */
export function libraryPath() {
  path ??= process.env.COWMLX_LIBRARY || bundledLibrary();
  if (!path) {
    throw new CowMlxError("ENOENT", `no library: npm has no package cowmlx-${process.platform}-`
      + `${process.arch}; call useLibrary() or set COWMLX_LIBRARY to what python -m cowmlx library `
      + "prints", "missing");
  }
  return path;
}

/**
 * The library's file in the package for this platform, which npm installs beside this one and chooses
 * by itself; undefined where it is not installed.
 * @returns {string | undefined}
 */
export function bundledLibrary() {
  const name = `cowmlx-${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url)(name);
  } catch (error) {
    if (error.code === "MODULE_NOT_FOUND") return undefined;
    throw error;
  }
}

function opened(file) {
  let library;
  try {
    library = koffi.load(file);
  } catch (error) {
    const isThere = existsSync(file);
    throw new CowMlxError(isThere ? "EFORMAT" : "ENOENT", `the library ${file} cannot be opened: ${error.message}; `
      + "name libcowmlx's file by useLibrary() or in COWMLX_LIBRARY", isThere ? "malformed_file" : "file_not_found",
      { file });
  }
  try {
    const found = Object.entries(FUNCTIONS).map(([name, prototype]) => [name, library.func(prototype)]);
    return Object.fromEntries(found);
  } catch (error) {
    throw new CowMlxError("EUNSUPPORTED", `${file} is not libcowmlx ${VERSION}: ${error.message}`,
      "library_mismatch", { file });
  }
}

/** Every function of the library by its name without "cow_mlx_". */
export function native() {
  if (!functions) {
    const loaded = opened(libraryPath());
    if (loaded.abi_version() !== ABI_VERSION) {
      throw new CowMlxError("EUNSUPPORTED", `${path} has the ABI ${loaded.abi_version()}, `
        + `must have ${ABI_VERSION}`, "library_mismatch");
    }
    functions = loaded;
  }
  return functions;
}

/**
 * Why the last call of this thread failed, in a form that other threads can be told.
 * @param {number} status
 */
export function failure(status) {
  const library = native();
  const message = library.error_message();
  const length = new BigUint64Array(1);
  let json = Buffer.alloc(1024);
  while (library.error_details(json, json.length, length) < 0) json = Buffer.alloc(Number(length[0]));
  const { operation, reason, details } = JSON.parse(json.toString("utf8", 0, Number(length[0])));
  return { status: library.status_name(status), message, reason, details, operation };
}
