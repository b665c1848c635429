import CCowMLX

/// The shared library behind this package, which is found at the first call.
///
/// It is, in this order: the file that ``use(_:)`` names; the one in the environment's `COWMLX_LIBRARY`; the one in the
/// folder `COWMLX_LIB_DIR`; one that the program is linked with; one near the program: beside it, in `../lib`, in a
/// bundle `cowmlx` beside it, or in the `Resources` of an application; or one that the system's loader finds.
///
/// A call without a library fails with ``CowMLXError/notFound(_:)``, and can be made again.
public enum Library {
  /// Names the library's file, before the first call; nil takes the name back.
  ///
  /// - Throws: ``CowMLXError/invalidState(_:)`` if a library is in use.
  public static func use(_ path: String?) throws(CowMLXError) {
    let path = try path.map { (path) throws(CowMLXError) in try CText("Library.use", "path", path) }
    let status = cow_mlx_use_library(path?.start)
    if status < 0 {
      throw .refused(
        Int(status), "Library.use", "conflict", argument: "path",
        "a library is in use already: name one before the first call")
    }
  }

  /// The file of the library in use.
  ///
  /// - Throws: ``CowMLXError/notFound(_:)`` if there is none.
  public static var path: String {
    get throws(CowMLXError) {
      try check(api.abi_version() == 0 ? cow_mlx_status(COW_MLX_ENOENT) : 0)
      return String(cString: cow_mlx_library_path())
    }
  }

  /// The version of the library, such as `"1.0.0"`.
  ///
  /// - Throws: ``CowMLXError/notFound(_:)`` if there is none.
  public static var version: String {
    get throws(CowMLXError) {
      try check(api.abi_version() == 0 ? cow_mlx_status(COW_MLX_ENOENT) : 0)
      return String(cString: api.version()!)
    }
  }
}
