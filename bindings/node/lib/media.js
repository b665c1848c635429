// Images.
import { call } from "./calls.js";
import { CowMlxError, checked, refuse } from "./errors.js";
import { Handle } from "./handle.js";
import { Arena, read } from "./memory.js";
import { failure, native } from "./native.js";

function check(status) {
  if (status < 0) throw CowMlxError.from(failure(status));
}

/** An image: a value, which nothing changes. */
export class Media extends Handle {
  /** @param {number} handle */
  constructor(handle) {
    super("media", handle);
  }

  /**
   * Make an image of pixels, which are copied.
   * @param {Uint8Array} pixels  row by row, each pixel 1 (grey), 3 (RGB) or 4 (RGBA) bytes
   * @param {{width: number, height: number, channels?: number}} options  3 channels if not given
   */
  static fromPixels(pixels, { width, height, channels = 3 }) {
    for (const [name, value] of Object.entries({ width, height, channels })) {
      if (!Number.isInteger(value) || Math.abs(value) > 0x7fffffff) refuse(name, value, "a whole number");
    }
    if (pixels.byteLength < width * height * channels) {
      throw new CowMlxError("EINVAL", `pixels has ${pixels.byteLength} bytes, must have ` +
        `${width * height * channels}`, "shape_mismatch", { argument: "pixels" });
    }
    const arena = new Arena(), out = arena.allocate(4);
    const given = [width, height, channels, width * channels];
    check(native().media_from_pixels(arena.keep(pixels), ...given, out.address));
    return new Media(read(out.view, 0, "int32_t"));
  }

  /**
   * Make an image of a file: PNG, JPEG, WebP, BMP or GIF.
   * @param {Uint8Array} bytes
   */
  static fromFile(bytes) {
    const arena = new Arena(), out = arena.allocate(4);
    check(native().media_from_file(arena.keep(bytes), bytes.byteLength, out.address));
    return new Media(read(out.view, 0, "int32_t"));
  }

  /**
   * Its width, height, channels and hash.
   * @returns {{width: number, height: number, channels: number, hash: string}}
   */
  info() {
    return JSON.parse(call("media_info", { media: this }).buffer);
  }
}

checked(Media, "Media", { fromPixels: "pixels, options{width height channels}", fromFile: "bytes" });
checked(Media.prototype, "Media", { info: "" });
