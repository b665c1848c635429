// swift-tools-version:6.0
//
// libcowmlx for Swift. The library is found at run time: see docs/getting-started/swift.md.
import PackageDescription

let package = Package(
  name: "CowMLX",
  platforms: [.macOS(.v14)],
  products: [
    .library(name: "CowMLX", targets: ["CowMLX"]),
    .library(name: "CowMLXFoundationModels", targets: ["CowMLXFoundationModels"]),
    .library(name: "CowMLXLinked", targets: ["CowMLXLinked"]),
  ],
  targets: [
    .target(name: "CCowMLX"),
    .systemLibrary(name: "CowMLXLinked", pkgConfig: "cowmlx"),
    .target(name: "CowMLX", dependencies: ["CCowMLX"]),
    .target(name: "CowMLXFoundationModels", dependencies: ["CowMLX"]),
    .testTarget(name: "CowMLXTests", dependencies: ["CowMLX"]),
    .testTarget(name: "CowMLXFoundationModelsTests", dependencies: ["CowMLXFoundationModels"]),
  ],
  swiftLanguageModes: [.v6]
)
