// swift-tools-version:6.0
//
// libcowmlx for Swift. The library is found at run time: see docs/getting-started/swift.md.
import PackageDescription

// Builds with a sanitizer have the tests of what runs at once, and no others.
let isSanitized = Context.environment["COWMLX_SANITIZED"] != nil
let atOnce = ["Chat", "Generation", "Program", "Task", "Training"].map { "\($0)Tests.swift" }

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
    .testTarget(
      name: "CowMLXTests", dependencies: ["CowMLX"],
      sources: isSanitized ? atOnce + ["Support.swift"] : nil),
  ],
  swiftLanguageModes: [.v6]
)
if !isSanitized {
  package.targets.append(
    .testTarget(name: "CowMLXFoundationModelsTests", dependencies: ["CowMLXFoundationModels"]))
}
