"""What the pages and the package for Swift say of Macs."""

from __future__ import annotations

import re

import pytest
from cross import MACOS_MINIMUM
from support.paths import ROOT

NAMED = {
    "guides/macos.md": [
        "beginActivity(options:reason:)",  # App Nap
        "xattr -dr com.apple.quarantine",
        "com.apple.security.cs.disable-library-validation",  # Xcode's debug builds
        "com.apple.security.files.user-selected.read-only",
        "com.apple.security.network.client",
        "com.apple.security.network.server",
        "NSLocalNetworkUsageDescription",
        "quality_of_service",
    ],
    "bundling.md": [
        "guides/macos.md",
        "mlx.metallib",
        f"--platform macosx_{MACOS_MINIMUM.replace('.', '_')}_arm64",
    ],
}


@pytest.mark.parametrize("page", NAMED)
def test_the_pages_name_what_an_application_needs(page):
    text = " ".join((ROOT / "docs" / page).read_text().split())
    assert [words for words in NAMED[page] if words not in text] == []


def test_the_page_has_the_size_of_the_kernels_of_a_gpu():
    """They alone are larger than a whole bundle for Linux."""
    page = " ".join((ROOT / "docs/bundling.md").read_text().split())
    sizes = re.search(r"has (\d+) MB in the wheel for macOS 14 and (\d+) MB in that", page)
    assert sizes and 100 < int(sizes[1]) < int(sizes[2])


def test_swift_s_package_starts_where_the_library_does():
    package = (ROOT / "bindings/swift/Package.swift").read_text()
    assert f".macOS(.v{MACOS_MINIMUM.partition('.')[0]})" in package
