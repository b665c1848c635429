defmodule CowMLX.MediaTest do
  use CowMLX.Case, async: true

  alias CowMLX.Media

  test "images have a size and a hash" do
    image = Media.from_pixels!(<<1, 2, 3, 4, 5, 6>>, 2, 1)

    assert {:ok, %{"width" => 2, "height" => 1, "channels" => 3, "hash" => hash}} =
             Media.info(image)

    assert byte_size(hash) == 32
    assert Media.free(image) == :ok
  end

  test "too few pixels and files that are none are refused" do
    assert {:error, _} = Media.from_pixels(<<1, 2>>, 2, 1)
    assert {:error, _} = Media.from_pixels(<<1, 2>>, -2, 1)
    assert {:error, _} = Media.from_file("no image")
  end
end
