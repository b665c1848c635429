defmodule CowMLX.Elements do
  @moduledoc false
  # Numbers as memory, and back.

  @doc "The memory, dtype and shape of a number or nested lists; the text says what is accepted."
  @spec encode(term, atom | nil) :: {:ok, binary, atom, [integer]} | {:error, String.t()}
  def encode(data, dtype) do
    shape = shape(data)
    flat = data |> List.wrap() |> List.flatten()
    dtype = dtype || fitting(flat)

    if is_list(data) and not regular?(data, shape) do
      {:error, "lists of the same lengths"}
    else
      {:ok, for(number <- flat, into: <<>>, do: element(number, dtype)), dtype, shape}
    end
  rescue
    _ -> {:error, "a number, or nested lists of numbers that fit their dtype"}
  end

  defp shape([first | _] = list), do: [length(list) | shape(first)]
  defp shape([]), do: [0]
  defp shape(_), do: []

  defp regular?(list, [size | rest]) when is_list(list),
    do: length(list) == size and Enum.all?(list, &regular?(&1, rest))

  defp regular?(other, []), do: not is_list(other)
  defp regular?(_, _), do: false

  defp fitting([]), do: :float32

  defp fitting(flat) do
    cond do
      Enum.all?(flat, &is_boolean/1) -> :bool
      Enum.all?(flat, &is_integer/1) -> :int32
      true -> :float32
    end
  end

  @whole [
    uint8: {8, 0, 0xFF},
    uint16: {16, 0, 0xFFFF},
    uint32: {32, 0, 0xFFFFFFFF},
    uint64: {64, 0, 0xFFFFFFFFFFFFFFFF},
    int8: {8, -0x80, 0x7F},
    int16: {16, -0x8000, 0x7FFF},
    int32: {32, -0x80000000, 0x7FFFFFFF},
    int64: {64, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF}
  ]

  @specials [
    float16: {16, 0x7E00, 0x7C00, 0xFC00},
    bfloat16: {16, 0x7FC0, 0x7F80, 0xFF80},
    float32: {32, 0x7FC00000, 0x7F800000, 0xFF800000},
    float64: {64, 0x7FF8000000000000, 0x7FF0000000000000, 0xFFF0000000000000}
  ]

  @doc "The memory of one number."
  @spec element(term, atom) :: binary
  def element(true, dtype), do: element(1, dtype)
  def element(false, dtype), do: element(0, dtype)
  def element(number, :bool) when is_number(number), do: <<if(number == 0, do: 0, else: 1)>>

  for {dtype, {bits, low, high}} <- @whole do
    def element(number, unquote(dtype))
        when is_integer(number) and number >= unquote(low) and number <= unquote(high),
        do: <<number::native-signed-size(unquote(bits))>>
  end

  for {dtype, {bits, nan, infinity, negative}} <- @specials do
    def element(:nan, unquote(dtype)), do: <<unquote(nan)::native-size(unquote(bits))>>
    def element(:infinity, unquote(dtype)), do: <<unquote(infinity)::native-size(unquote(bits))>>

    def element(:neg_infinity, unquote(dtype)),
      do: <<unquote(negative)::native-size(unquote(bits))>>
  end

  def element(number, :float16) when is_number(number), do: <<number::native-float-16>>
  def element(number, :float32) when is_number(number), do: <<number::native-float-32>>
  def element(number, :float64) when is_number(number), do: <<number::native-float-64>>

  def element({real, imaginary}, :complex64),
    do: element(real, :float32) <> element(imaginary, :float32)

  def element(number, :complex64), do: element({number, 0}, :complex64)

  # The upper half of a float32, rounded to the nearest, of two to the even one.
  def element(number, :bfloat16) when is_number(number) do
    <<bits::32>> = <<number::float-32>>
    odd = bits |> Bitwise.bsr(16) |> Bitwise.band(1)
    <<Bitwise.bsr(bits + 0x7FFF + odd, 16)::native-16>>
  end

  @doc "Nested lists of memory."
  @spec decode(binary, atom, [integer]) :: term
  def decode(binary, dtype, shape) do
    flat = numbers(binary, dtype)
    if shape == [], do: hd(flat), else: nested(flat, shape)
  end

  defp nested(flat, [_]), do: flat
  defp nested(_flat, [0 | _]), do: []

  defp nested(flat, [size | rest]) do
    case Enum.product(rest) do
      0 -> List.duplicate(nested([], rest), size)
      row -> flat |> Enum.chunk_every(row) |> Enum.map(&nested(&1, rest))
    end
  end

  @doc "The numbers of memory."
  @spec numbers(binary, atom) :: list
  def numbers(binary, :bool), do: for(<<byte <- binary>>, do: byte != 0)

  for {dtype, {bits, low, _}} <- @whole do
    if low < 0 do
      def numbers(binary, unquote(dtype)),
        do: for(<<number::native-signed-size(unquote(bits)) <- binary>>, do: number)
    else
      def numbers(binary, unquote(dtype)),
        do: for(<<number::native-unsigned-size(unquote(bits)) <- binary>>, do: number)
    end
  end

  def numbers(binary, :complex64) do
    for <<real::binary-size(4), imaginary::binary-size(4) <- binary>> do
      {number(real, :float32), number(imaginary, :float32)}
    end
  end

  def numbers(binary, dtype) do
    bytes = if dtype == :float64, do: 8, else: if(dtype == :float32, do: 4, else: 2)
    for <<word::binary-size(bytes) <- binary>>, do: number(word, dtype)
  end

  defp number(<<half::native-16>>, :bfloat16), do: number(<<half::16, 0::16>>, :big)
  defp number(<<number::float-32>>, :big), do: number
  defp number(<<sign::1, _::8, rest::23>>, :big), do: special(sign, rest)
  defp number(<<number::native-float-16>>, :float16), do: number
  defp number(<<number::native-float-32>>, :float32), do: number
  defp number(<<number::native-float-64>>, :float64), do: number

  defp number(<<bits::native-16>>, :float16),
    do: special(Bitwise.bsr(bits, 15), Bitwise.band(bits, 0x3FF))

  defp number(<<bits::native-32>>, :float32),
    do: special(Bitwise.bsr(bits, 31), Bitwise.band(bits, 0x7FFFFF))

  defp number(<<bits::native-64>>, :float64),
    do: special(Bitwise.bsr(bits, 63), Bitwise.band(bits, 0xFFFFFFFFFFFFF))

  defp special(0, 0), do: :infinity
  defp special(1, 0), do: :neg_infinity
  defp special(_, _), do: :nan
end
