if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.Backend do
    @moduledoc """
    A backend of Nx: tensors are arrays of the library.

        Nx.default_backend(CowMLX.Backend)

    Each operation is applied at once. What the library has no operation for is computed by
    `Nx.BinaryBackend`, and comes back as an array: `reduce/5` and `window_reduce/6` with a function,
    `window_scatter_max` and `_min`, counts of bits, `erfc`, pads with negative or interior padding,
    and the types that mlx lacks. The option `fallback: false` of `config :cowmlx, CowMLX.Backend`
    refuses these instead.
    """

    @behaviour Nx.Backend

    alias CowMLX.Array
    alias CowMLX.Nx.{Elementwise, Lowering, Making, Types}
    alias Nx.Tensor, as: T

    @enforce_keys [:array]
    defstruct [:array]

    @impl true
    def init(options), do: options

    @impl true
    def constant(out, number, _options), do: run(:constant, out, [number])
    @impl true
    def iota(out, axis, _options), do: run(:iota, out, [axis])
    @impl true
    def eye(out, _options), do: run(:eye, out, [])

    @impl true
    def from_binary(out, binary, _options) do
      wrap(out, Array.from_binary!(binary, Types.dtype(out.type), Tuple.to_list(out.shape)))
    rescue
      Types.Unsupported -> Nx.BinaryBackend.from_binary(out, binary, [])
    end

    @impl true
    def backend_deallocate(%T{data: %__MODULE__{array: array}}) do
      case CowMLX.Call.direct(:array_type, [array.ref]) do
        {:ok, _} ->
          Array.free(array)
          :ok

        {:error, _} ->
          :already_deallocated
      end
    end

    @impl true
    def backend_copy(tensor, backend, options),
      do: backend.from_binary(tensor, to_binary(tensor), options)

    @impl true
    def backend_transfer(tensor, __MODULE__, _options), do: tensor

    def backend_transfer(tensor, backend, options) do
      moved = backend_copy(tensor, backend, options)
      backend_deallocate(tensor)
      moved
    end

    defp to_binary(%T{data: %__MODULE__{array: array}}), do: Array.to_binary!(array)

    @impl true
    def to_binary(%T{type: {_, size}} = tensor, limit) do
      binary = to_binary(tensor)
      binary_part(binary, 0, min(byte_size(binary), div(limit * size, 8)))
    end

    @impl true
    def to_batched(out, tensor, options),
      do: out |> Nx.BinaryBackend.to_batched(host(tensor), options) |> Stream.map(&bring/1)

    @impl true
    def inspect(tensor, options) do
      limit = if options.limit == :infinity, do: Nx.size(tensor), else: options.limit + 1
      Nx.Backend.inspect(tensor, to_binary(tensor, min(limit, Nx.size(tensor))), options)
    end

    @impl true
    def from_pointer(_pointer, _type, _shape, _options, _more),
      do: raise(ArgumentError, "CowMLX.Backend gives no pointers, and takes none")

    @impl true
    def to_pointer(_tensor, _options),
      do: raise(ArgumentError, "CowMLX.Backend gives no pointers, and takes none")

    for op <- Elementwise.unary() ++ [:count_leading_zeros, :population_count] do
      @impl true
      def unquote(op)(out, a), do: run(unquote(op), out, [a])
    end

    binary = Elementwise.binary()

    for op <- binary do
      @impl true
      def unquote(op)(out, a, b), do: run(unquote(op), out, [a, b])
    end

    others = [
      as_type: 1,
      bitcast: 1,
      reshape: 1,
      squeeze: 2,
      broadcast: 3,
      transpose: 2,
      pad: 3,
      reverse: 2,
      dot: 6,
      clip: 3,
      slice: 4,
      put_slice: 3,
      gather: 3,
      concatenate: 2,
      stack: 2,
      select: 3,
      conv: 3,
      all: 2,
      any: 2,
      sum: 2,
      product: 2,
      reduce_max: 2,
      reduce_min: 2,
      argmax: 2,
      argmin: 2,
      reduce: 4,
      window_reduce: 5,
      window_sum: 3,
      window_product: 3,
      window_max: 3,
      window_min: 3,
      sort: 2,
      argsort: 2,
      window_scatter_max: 5,
      window_scatter_min: 5,
      indexed_add: 4,
      indexed_put: 4,
      triangular_solve: 3,
      fft: 2,
      ifft: 2
    ]

    for {op, arity} <- others do
      arguments = Macro.generate_arguments(arity, __MODULE__)
      @impl true
      def unquote(op)(out, unquote_splicing(arguments)),
        do: run(unquote(op), out, [unquote_splicing(arguments)])
    end

    @impl true
    def block(struct, _output, arguments, function), do: apply(function, [struct | arguments])

    # ------------------------------------------------------------------------------ Computing

    defp run(op, out, arguments) do
      wrap(out, Lowering.lower(op, out, Enum.map(arguments, &operand/1)))
    rescue
      error in [Types.Unsupported, CowMLX.Error] -> elsewhere(op, out, arguments, error)
    end

    defp operand(%T{} = tensor), do: Types.of(array(tensor), tensor)

    defp operand(list) when is_list(list) do
      if Enum.any?(list, &is_struct(&1, T)), do: Enum.map(list, &operand/1), else: list
    end

    defp operand(other), do: other

    defp array(%T{data: %__MODULE__{array: array}}), do: array

    defp array(%T{} = tensor) do
      binary = tensor.data.__struct__.to_binary(tensor, Nx.size(tensor))
      Array.from_binary!(binary, Types.dtype(tensor.type), Tuple.to_list(tensor.shape))
    end

    defp wrap(out, %Array{} = array), do: %{out | data: %__MODULE__{array: array}}

    # By Nx itself, on the memory of arrays.
    defp elsewhere(op, out, arguments, error) do
      unless Keyword.get(Application.get_env(:cowmlx, __MODULE__, []), :fallback, true) do
        raise ArgumentError, "CowMLX.Backend has no #{op}: #{Exception.message(error)}"
      end

      creation = if op in [:constant, :iota, :eye], do: [[]], else: []
      arguments = Enum.map(arguments, &host/1) ++ creation

      # It makes tensors, too, by the default backend.
      Nx.with_default_backend(Nx.BinaryBackend, fn ->
        apply(Nx.BinaryBackend, op, [out | arguments])
      end)
      |> bring()
    end

    defp host(%T{data: %__MODULE__{}} = tensor),
      do: Nx.BinaryBackend.from_binary(tensor, to_binary(tensor), [])

    defp host(list) when is_list(list) do
      if Enum.any?(list, &is_struct(&1, T)), do: Enum.map(list, &host/1), else: list
    end

    defp host(function) when is_function(function, 2) do
      fn a, b -> host(function.(a, b)) end
    end

    defp host(other), do: other

    defp bring(%T{data: %Nx.BinaryBackend{state: binary}} = tensor) do
      shape = Tuple.to_list(tensor.shape)
      wrap(tensor, Array.from_binary!(binary, Types.dtype(tensor.type), shape))
    rescue
      Types.Unsupported -> tensor
    end

    @doc false
    # Numbers of an operand of no dimensions.
    def memory(number, type), do: Making.memory(number, Types.dtype(type))
  end
end
