if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.Nx.Lowering do
    @moduledoc false
    # The operations of Nx as operations of the library, for arrays and for values alike.

    alias CowMLX.Nx.{Elementwise, Making, Reductions, Shapes, Types}

    @modules Map.new(Elementwise.unary() ++ Elementwise.binary(), &{&1, Elementwise})
             |> Map.merge(Map.new(Shapes.operations(), &{&1, Shapes}))
             |> Map.merge(Map.new(Reductions.operations(), &{&1, Reductions}))
             |> Map.merge(Map.new([:constant, :iota, :eye], &{&1, Making}))

    @doc "Whether the library computes an operation."
    def has?(op), do: is_map_key(@modules, op)

    @doc """
    The operand that is the result of an operation; raises what is unsupported.

    `arguments` are those of the callback of Nx.Backend behind `out`, with operands for tensors.
    """
    def lower(op, out, arguments) do
      case @modules do
        %{^op => module} ->
          Types.dtype(out.type)
          module.lower(op, out, arguments)

        _ ->
          Types.unsupported("#{op}")
      end
    rescue
      FunctionClauseError -> Types.unsupported("#{op} with these arguments")
    end
  end
end
