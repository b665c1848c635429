"""The ids of images in a model's prompts, when as many were given as there are."""

from __future__ import annotations

import pytest
from support import tiny_vision_models

from cowmlx.errors import OutOfMemory
from cowmlx.models.images import HOST_IDS, ImageStore

LAST = -HOST_IDS[0]
COUNT = 1 << 18  # positions of an image


@pytest.fixture
def store(tmp_path):
    """The store of a model whose ids are nearly all given."""
    from support.loaded import load

    store = load(tiny_vision_models.make(tmp_path, "gemma3")).images
    assert isinstance(store, ImageStore)
    store._next = LAST - COUNT
    return store


def image(store, name, count=COUNT):
    found = store.image_of_hash(f"{store.encoder.key} {name:032x}", count)
    assert found is not None
    return found


def test_ids_of_images_that_are_gone_are_given_again(store):
    last, first, other = (image(store, name) for name in range(3))
    assert last.first == COUNT - LAST
    assert first.first == HOST_IDS[-1]
    assert other.first == HOST_IDS[-1] - COUNT
    for own in (last, first, other):
        assert store.find(own.first - COUNT + 1) == (own, COUNT - 1)
    gone = first.first
    del first
    assert store.find(gone) is None
    store._next = LAST
    small = image(store, 3, COUNT // 2)
    assert small.first == gone
    assert store.find(gone) == (small, 0)
    assert image(store, 4).first == other.first - COUNT
    assert store.find(other.first) == (other, 0)


def test_an_image_without_room_is_refused(store):
    store._next = LAST
    images = [image(store, name, (1 << 20) - 1) for name in range(LAST >> 20)]
    with pytest.raises(OutOfMemory, match="have all ids"):
        image(store, LAST)
    del images[7]
    assert image(store, LAST).first == images[6].first - (1 << 20) + 1


def test_a_file_that_does_not_fit_takes_no_ids(store):
    from cowmlx.models.image_tokens import with_saved_images

    before = store._next
    key = f"{store.encoder.key} {7:032x}"
    for at in (-1, 1, 3, 1 << 70):
        assert with_saved_images([5, -1, 6], [[at, 1 << 19, key]], store, None) is None
    assert store._next == before
