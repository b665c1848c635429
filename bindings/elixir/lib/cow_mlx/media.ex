defmodule CowMLX.Media do
  @moduledoc """
  An image: a value, which nothing changes.
  """

  alias CowMLX.{Call, Error, Methods}

  @enforce_keys [:ref]
  defstruct [:ref]
  @type t :: %__MODULE__{ref: reference}

  @doc """
  Make an image of pixels, row by row: 1 (grey), 3 (RGB) or 4 (RGBA) bytes each. They are copied.
  """
  @spec from_pixels(binary, integer, integer, integer) :: {:ok, t} | {:error, Error.t()}
  def from_pixels(pixels, width, height, channels \\ 3),
    do: opened(Call.wait(:media_from_pixels, [pixels, width, height, channels]))

  @doc "The same as `from_pixels/4`; raises a `CowMLX.Error`."
  @spec from_pixels!(binary, integer, integer, integer) :: t
  def from_pixels!(pixels, width, height, channels \\ 3),
    do: Methods.ok!(from_pixels(pixels, width, height, channels))

  @doc "Make an image of a file: PNG, JPEG, WebP, BMP or GIF."
  @spec from_file(binary) :: {:ok, t} | {:error, Error.t()}
  def from_file(bytes), do: opened(Call.wait(:media_from_file, [bytes]))

  @doc "The same as `from_file/1`; raises a `CowMLX.Error`."
  @spec from_file!(binary) :: t
  def from_file!(bytes), do: Methods.ok!(from_file(bytes))

  @doc "Describe the image: width, height, channels and hash."
  @spec info(t) :: {:ok, map} | {:error, Error.t()}
  def info(media), do: Call.make(:media_info, [media])

  @doc "Free the image."
  @spec free(t) :: :ok | {:error, Error.t()}
  def free(%__MODULE__{ref: ref}), do: Call.wait(:free, [ref])

  defp opened({:ok, ref}), do: {:ok, %__MODULE__{ref: ref}}
  defp opened(other), do: other
end
