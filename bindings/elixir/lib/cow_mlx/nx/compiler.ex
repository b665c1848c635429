if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.Compiler do
    @moduledoc """
    A compiler of `defn`: an expression becomes one program, and a call of it one run.

        Nx.Defn.global_default_options(compiler: CowMLX.Compiler)

    `cond`, `while` and gradients are part of the program. A program is kept for the function and the
    containers, types and shapes of its arguments. Results are tensors of `CowMLX.Backend`; tensors
    of `Nx.BinaryBackend` are taken where they are.

    What is no program is evaluated by `Nx.Defn.Evaluator`: hooks, runtime calls, functions of
    `Nx.reduce/4`, and operations that the backend computes elsewhere. With the option
    `on_unsupported: :raise` such an expression is an `ArgumentError`.
    """

    @behaviour Nx.Defn.Compiler

    alias CowMLX.{Array, Backend, Cache, Program}
    alias CowMLX.Nx.{Trace, Types}
    alias Nx.Defn.Composite

    @impl true
    def __partitions_options__(options), do: [options]

    @impl true
    def __to_backend__(_options), do: {Backend, []}

    @impl true
    def __jit__(key, vars, fun, args_list, options),
      do: __compile__(key, vars, fun, options).(args_list)

    @impl true
    def __compile__(key, vars, fun, options) do
      place = {key, Enum.map(vars, &shell/1)}

      case Cache.fetch(place) do
        {:ok, compiled} ->
          fn args_list -> Enum.map(args_list, &run(compiled, &1, again(place, vars, fun))) end

        :error ->
          compiled(place, key, vars, fun, options)
      end
    end

    defp compiled(place, key, vars, fun, options) do
      compiled = compile(vars, fun, options)
      unless options[:hooks] not in [nil, %{}], do: Cache.put(place, compiled)
      fn args_list -> Enum.map(args_list, &run(compiled, &1, again(place, vars, fun))) end
    rescue
      error in [Types.Unsupported, CowMLX.Error] ->
        if options[:on_unsupported] == :raise do
          raise ArgumentError, "no program can be made of this: #{Exception.message(error)}"
        end

        options = Keyword.drop(options, [:on_unsupported])
        evaluated(Nx.Defn.Evaluator.__compile__(key, vars, fun, options))
    end

    # The evaluator takes all tensors from one backend.
    defp evaluated(evaluate) do
      fn args_list ->
        Nx.with_default_backend(Backend, fn ->
          args_list |> Enum.map(fn params -> Enum.map(params, &brought/1) end) |> evaluate.()
        end)
      end
    end

    defp brought(param) do
      fn ->
        case param.() do
          %Nx.Tensor{data: %Nx.BinaryBackend{}} = tensor -> Nx.backend_copy(tensor, Backend)
          other -> other
        end
      end
    end

    defp compile(vars, fun, options) do
      {expression, outputs} =
        vars
        |> fun.()
        |> then(
          &Composite.traverse(&1, [], fn tensor, all ->
            {Nx.devectorize(tensor), [Nx.to_template(tensor) | all]}
          end)
        )

      {values, tensors} = Trace.values(vars, expression, options)
      named = for {value, at} <- Enum.with_index(values), do: {"o#{at}", value}
      program = Program.build!(named)

      %{
        program: program,
        expression: shell(expression),
        outputs: Enum.reverse(outputs),
        tensors: tensors
      }
    end

    # A container with templates for its tensors.
    defp shell(container), do: Composite.traverse(container, &Nx.to_template/1)

    # A program is gone when the runtime was stopped meanwhile.
    defp again(place, vars, fun), do: fn -> renewed(place, compile(vars, fun, [])) end

    defp renewed(place, compiled) do
      Cache.put(place, compiled)
      compiled
    end

    defp run(compiled, params, again) do
      case results(compiled, params) do
        {:ok, arrays} -> output(compiled, arrays)
        {:error, %{status: :ehandle}} when again != nil -> run(again.(), params, nil)
        {:error, error} -> raise error
      end
    end

    defp results(%{program: program} = compiled, params) do
      inputs = for {name, _, _} <- program.inputs, do: input(name, compiled.tensors, params)
      Program.run_all(program, inputs)
    end

    defp input("p" <> at, _tensors, params) do
      case Enum.fetch!(params, String.to_integer(at)).() do
        %Nx.Tensor{data: %Nx.Defn.Expr{}} = tensor ->
          raise ArgumentError,
                "cannot pass a tensor expression as argument to defn, got: #{inspect(tensor)}"

        tensor ->
          tensor |> Nx.devectorize() |> value()
      end
    end

    defp input("c" <> _ = name, tensors, _params), do: value(Map.fetch!(tensors, name))

    defp value(%Nx.Tensor{data: %Backend{array: array}}), do: array

    defp value(%Nx.Tensor{} = tensor) do
      {Nx.to_binary(tensor), Types.dtype(tensor.type), Tuple.to_list(tensor.shape)}
    end

    defp output(compiled, arrays) do
      {result, _} =
        Composite.traverse(compiled.expression, {arrays, compiled.outputs}, fn _,
                                                                               {[
                                                                                  %Array{} = array
                                                                                  | arrays
                                                                                ],
                                                                                [out | outputs]} ->
          {%{out | data: %Backend{array: array}}, {arrays, outputs}}
        end)

      result
    end
  end
end
