// swift-tools-version:5.7
//
// libcowmlx for Swift: `import CCowMLX` gives all of cow_mlx.h. The library itself is that of
// `make install`, found by pkg-config:
//
//   PKG_CONFIG_PATH=PREFIX/lib/pkgconfig swift build -Xlinker -rpath -Xlinker PREFIX/lib
//
// The two options are for run time: Swift takes no such option from a pkg-config file, and warns
// that it left one out.
import PackageDescription

let package = Package(
  name: "CowMLX",
  platforms: [.macOS(.v13)],
  products: [.library(name: "CCowMLX", targets: ["CCowMLX"])],
  targets: [
    .systemLibrary(name: "CCowMLX", pkgConfig: "cowmlx"),
    .executableTarget(name: "stream", dependencies: ["CCowMLX"]),
  ]
)
