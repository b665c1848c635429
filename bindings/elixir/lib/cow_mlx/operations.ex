defmodule CowMLX.Operations do
  @moduledoc false
  # What the functions of CowMLX.Op do: add a node to a program, or compute at once with arrays.

  alias CowMLX.{Array, Elements, Error, Value}

  @doc "The result of an operation that has one."
  @spec one(atom, list, keyword) :: Value.t() | Array.t()
  def one(operation, operands, attributes), do: operation |> many(operands, attributes, 1) |> hd()

  @doc "The results of an operation."
  @spec many(atom, list, keyword, pos_integer) :: [Value.t() | Array.t()]
  def many(operation, operands, attributes, count) do
    {operands, attributes} = sort(operands, attributes)

    cond do
      Enum.any?(operands, &is_struct(&1, Array)) -> eager(operation, operands, attributes)
      Enum.all?(operands, &operand?/1) -> node(operation, operands, attributes, count)
      true -> raise refusal(operation, Enum.find(operands, &(not operand?(&1))))
    end
  end

  # In the place of an optional operand, keywords are attributes.
  defp sort(operands, []) do
    case Enum.find_index(operands, &match?([{key, _} | _] when is_atom(key), &1)) do
      nil -> {operands, []}
      at -> {List.replace_at(operands, at, nil), Enum.at(operands, at)}
    end
  end

  defp sort(operands, attributes), do: {operands, attributes}

  defp operand?(%Value{}), do: true
  defp operand?(other), do: is_nil(other) or is_number(other) or is_boolean(other)

  defp refusal(operation, operand),
    do: Error.refused(operation, "an operand", operand, "a value, an array or a number")

  defp node(operation, operands, attributes, count) do
    if operands != [] and not Enum.any?(operands, &is_struct(&1, Value)) do
      raise Error.refused(operation, "operands", operands, "a value or an array, and others")
    end

    Value.results({:node, operation, operands, Map.new(attributes), count, []}, count)
  end

  defp eager(operation, operands, attributes) do
    beside = operands |> Enum.reverse() |> Enum.find(&is_struct(&1, Array))
    arrays = Enum.map(operands, &array(operation, &1, beside))
    Array.apply!(operation, arrays, attributes)
  end

  defp array(_operation, %Array{} = array, _beside), do: array
  defp array(_operation, nil, _beside), do: nil

  defp array(_operation, number, beside) when is_number(number) or is_boolean(number),
    do: Array.new!(number, dtype: fitting(number, beside.dtype))

  defp array(operation, other, _beside), do: raise(refusal(operation, other))

  @floats [:float16, :bfloat16, :float32, :float64, :complex64]

  @doc "The dtype that a number takes beside one."
  @spec fitting(number | boolean, atom) :: atom
  def fitting(number, dtype) when is_boolean(number) and dtype != nil, do: :bool

  def fitting(number, dtype) do
    cond do
      dtype in @floats -> dtype
      is_float(number) -> :float32
      dtype in [:bool, nil] -> :int32
      fits?(number, dtype) -> dtype
      true -> :int32
    end
  end

  defp fits?(number, dtype) do
    Elements.element(number, dtype)
    true
  rescue
    FunctionClauseError -> false
  end
end
