if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.Nx.Making do
    @moduledoc false
    # Operands that are made of nothing: arrays, or values while a program is traced.

    alias CowMLX.{Array, Elements, Op, Program}
    alias CowMLX.Nx.Types

    @key {__MODULE__, :traces}

    @doc "Run a function in which values of a program are made."
    def tracing(function) do
      before = Process.put(@key, true)

      try do
        function.()
      after
        Process.put(@key, before)
      end
    end

    @doc "An operand without dimensions."
    def scalar(number, dtype) do
      if traces?() and finite?(number),
        do: Program.constant(plain(number, dtype), dtype),
        else: array(number, dtype)
    end

    defp traces?, do: Process.get(@key) == true
    defp finite?(number), do: is_number(number)
    defp plain(number, :bool), do: number != 0
    defp plain(number, _dtype), do: number

    defp array(number, dtype) do
      if traces?(), do: Types.unsupported("the constant #{inspect(number)}")
      Array.from_binary!(memory(number, dtype), dtype, [])
    end

    @doc "The memory of a number of Nx."
    def memory(%Complex{re: real, im: imaginary}, dtype),
      do: Elements.element({real, imaginary}, dtype)

    def memory(number, dtype) when dtype in [:float32, :float64, :float16, :bfloat16],
      do: Elements.element(number, dtype)

    def memory(number, dtype) when is_float(number) and dtype != :complex64,
      do: Elements.element(trunc(number), dtype)

    def memory(number, dtype), do: wrapped(number, dtype)

    # Integers that do not fit wrap, as in Nx.
    defp wrapped(number, dtype) when is_integer(number) do
      case Keyword.fetch(Array.dtypes(), dtype) do
        {:ok, bytes} when dtype not in [:bool, :complex64] ->
          <<number::native-signed-size(bytes * 8)>>

        _ ->
          Elements.element(number, dtype)
      end
    end

    defp wrapped(number, dtype), do: Elements.element(number, dtype)

    @doc "The result of an operation that takes no tensor."
    def lower(:constant, out, [number]) do
      number |> scalar(Types.dtype(out.type)) |> Op.broadcast_to(shape: Tuple.to_list(out.shape))
    end

    def lower(:iota, out, [axis]) do
      shape = Tuple.to_list(out.shape)
      type = Types.dtype(out.type)

      cond do
        shape == [] ->
          scalar(0, type)

        axis ->
          made(:iota, shape: shape, axis: axis, dtype: type)

        true ->
          :iota
          |> made(shape: [Enum.product(shape)], axis: 0, dtype: type)
          |> Op.reshape(shape: shape)
      end
    end

    def lower(:eye, out, []) do
      shape = Tuple.to_list(out.shape)
      [rows, columns] = Enum.take(shape, -2)

      :eye
      |> made(n: rows, m: columns, dtype: Types.dtype(out.type))
      |> Op.broadcast_to(shape: shape)
    end

    defp made(:iota, attributes) do
      if attributes[:dtype] == :complex64,
        do: Op.astype(made(:iota, Keyword.put(attributes, :dtype, :float32)), dtype: :complex64),
        else: plain_made(:iota, attributes)
    end

    defp made(operation, attributes), do: plain_made(operation, attributes)

    defp plain_made(operation, attributes) do
      if traces?(),
        do: apply(Op, operation, [attributes]),
        else: operation |> Array.apply!([], attributes) |> hd()
    end
  end
end
