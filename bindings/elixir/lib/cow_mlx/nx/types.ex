if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.Nx.Types do
    @moduledoc false
    # Types of Nx as dtypes, and tensors as operands of CowMLX.Op: arrays, or values of a program.

    alias CowMLX.Op

    defmodule Unsupported do
      @moduledoc false
      # What the library has no operation for: the caller computes it in another way.
      defexception [:message]
    end

    # An operand with its type in Nx and its shape, a list.
    @enforce_keys [:x, :type, :shape]
    defstruct [:x, :type, :shape]

    @dtypes %{
      {:u, 8} => :uint8,
      {:u, 16} => :uint16,
      {:u, 32} => :uint32,
      {:u, 64} => :uint64,
      {:s, 8} => :int8,
      {:s, 16} => :int16,
      {:s, 32} => :int32,
      {:s, 64} => :int64,
      {:f, 16} => :float16,
      {:bf, 16} => :bfloat16,
      {:f, 32} => :float32,
      {:f, 64} => :float64,
      {:c, 64} => :complex64
    }
    @types Map.new(@dtypes, fn {type, dtype} -> {dtype, type} end)

    @doc "The dtype of a type; raises if there is none."
    def dtype(type) do
      case @dtypes do
        %{^type => dtype} -> dtype
        _ -> unsupported("the type #{inspect(type)}")
      end
    end

    @doc "The type of a dtype."
    def type(dtype), do: Map.fetch!(@types, dtype)

    @doc "Refuse an operation."
    @spec unsupported(String.t()) :: no_return
    def unsupported(what), do: raise(Unsupported, message: what)

    @doc "An operand of a tensor's type and shape."
    def of(x, tensor),
      do: %__MODULE__{x: x, type: tensor.type, shape: Tuple.to_list(tensor.shape)}

    @doc "The operand in a type."
    def cast(%{type: type} = operand, type), do: operand.x

    def cast(%{type: {:c, _}} = operand, {kind, _} = type) when kind != :c,
      do: cast(%{operand | x: Op.real(operand.x), type: {:f, 32}}, type)

    # Beyond its range a float becomes the nearest integer, and nan becomes 0.
    def cast(%{type: {kind, _}} = operand, {whole, size} = type)
        when kind in [:f, :bf] and whole in [:s, :u] do
      {low, high} = range(whole, size)
      number = Op.where(Op.isnan(operand.x), 0, operand.x)
      inside = Op.astype(number, dtype: dtype(type))
      inside = Op.where(Op.less_equal(number, low * 1.0), low, inside)
      Op.astype(Op.where(Op.greater_equal(number, high * 1.0), high, inside), dtype: dtype(type))
    end

    def cast(operand, type), do: Op.astype(operand.x, dtype: dtype(type))

    defp range(:s, size), do: {-Bitwise.bsl(1, size - 1), Bitwise.bsl(1, size - 1) - 1}
    defp range(:u, size), do: {0, Bitwise.bsl(1, size) - 1}

    @doc "A bool as Nx has it."
    def truth(x), do: Op.astype(x, dtype: :uint8)

    @doc "Whether elements are not 0, a bool."
    def nonzero(operand), do: Op.not_equal(operand.x, 0)
  end
end
