// The library that npm has installed beside this package: one package per platform, which npm
// chooses by itself.
import { createRequire } from "node:module";

/**
 * The library's file in the package for this platform; undefined where that is not installed.
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
