if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.Nx.Trace do
    @moduledoc false
    # Expressions of defn as values of a program.

    alias CowMLX.{Control, Op, Program}
    alias CowMLX.Nx.{Lowering, Making, Types}
    alias Nx.Defn.{Composite, Expr, Tree}
    alias Nx.Tensor, as: T

    @tensors {__MODULE__, :tensors}

    @doc "The values of an expression's tensors, and the tensors that it has by names of inputs."
    def values(vars, expression, options) do
      before = Process.put(@tensors, %{})

      try do
        Making.tracing(fn ->
          params = vars |> Composite.flatten_list() |> Enum.with_index(&parameter/2)
          scope = %{params: params, hooks: options[:hooks] || %{}}
          {operands, _} = flat(expression, scope, %{})

          named =
            for {_, {name, tensor, _}} <- Process.get(@tensors), into: %{}, do: {name, tensor}

          {Enum.map(operands, & &1.x), named}
        end)
      after
        Process.put(@tensors, before)
      end
    end

    defp parameter(tensor, at) do
      tensor = Nx.devectorize(tensor)
      dtype = Types.dtype(tensor.type)
      Types.of(Program.input("p#{at}", dtype, Tuple.to_list(tensor.shape)), tensor)
    end

    # The operands of a composite, in order.
    defp flat(composite, scope, memo),
      do:
        [composite] |> Composite.flatten_list() |> Enum.map_reduce(memo, &operand(&1, scope, &2))

    defp operand(%T{data: %Expr{id: id}} = tensor, scope, memo) do
      case memo do
        %{^id => operand} ->
          {operand, memo}

        _ ->
          {operand, memo} = make(tensor, scope, memo)
          {operand, Map.put(memo, id, operand)}
      end
    end

    defp make(%T{data: %Expr{op: :parameter, args: [at]}}, scope, memo),
      do: {Enum.fetch!(scope.params, at), memo}

    defp make(%T{data: %Expr{op: :tensor, args: [tensor]}}, _scope, memo),
      do: {captured(tensor), memo}

    defp make(%T{data: %Expr{op: :constant, args: [number]}} = out, _scope, memo) do
      if is_number(number),
        do: {Types.of(Lowering.lower(:constant, out, [number]), out), memo},
        else:
          {captured(
             Nx.BinaryBackend.constant(
               %{out | names: List.duplicate(nil, tuple_size(out.shape))},
               number,
               []
             )
           ), memo}
    end

    defp make(%T{data: %Expr{op: :metadata, args: [inner, _]}}, scope, memo) do
      if is_struct(inner, T), do: operand(inner, scope, memo), else: composite(inner, scope, memo)
    end

    defp make(%T{data: %Expr{op: :elem, args: [tuple, at]}}, scope, memo) do
      {operands, memo} = operand(tuple, scope, memo)
      {elem(operands, at), memo}
    end

    defp make(%T{data: %Expr{op: :cond, args: [clauses, last]}}, scope, memo),
      do: {choose(clauses, last, scope, memo), memo}

    defp make(%T{data: %Expr{op: :while, args: [initial, _, condition, body]}}, scope, memo) do
      {state, memo} = flat(initial, scope, memo)
      inside = fn values -> %{scope | params: Enum.zip_with(state, values, &%{&1 | x: &2})} end

      results =
        Control.while(
          Enum.map(state, & &1.x),
          fn values ->
            {[predicate], _} = flat(condition, inside.(values), memo_of(memo))
            Op.reshape(Types.nonzero(predicate), shape: [])
          end,
          fn values ->
            {next, _} = flat(body, inside.(values), memo_of(memo))
            Enum.zip_with(next, state, &Types.cast(&1, &2.type))
          end
        )

      {rebuild(initial, Enum.zip_with(state, results, &%{&1 | x: &2})), memo}
    end

    defp make(%T{data: %Expr{op: :block, args: [_struct, arguments, inner, _]}}, scope, memo) do
      {given, memo} = arguments |> Enum.take_while(&(not is_list(&1))) |> flat_each(scope, memo)
      {operands, _} = flat(inner, %{scope | params: given}, %{})
      {rebuild(inner, operands), memo}
    end

    defp make(%T{data: %Expr{op: op}}, _scope, _memo)
         when op in [:io_call, :runtime_call, :fun, :from_binary, :reduce, :window_reduce],
         do: Types.unsupported("#{op}")

    defp make(%T{type: {:tuple, _}, data: %Expr{op: op}}, _scope, _memo),
      do: Types.unsupported("#{op} with several results")

    defp make(%T{data: %Expr{op: op}} = out, scope, memo) do
      {arguments, memo} = Tree.apply_args(out, memo, &operand(&1, scope, &2))
      {Types.of(Lowering.lower(op, out, arguments), out), memo}
    end

    defp flat_each(list, scope, memo), do: Enum.map_reduce(list, memo, &operand(&1, scope, &2))

    defp composite(inner, scope, memo) do
      {operands, memo} = flat(inner, scope, memo)
      {rebuild(inner, operands), memo}
    end

    # A function has parameters of other places, but may use values around it.
    defp memo_of(memo), do: memo

    defp choose([], last, scope, memo) do
      {operands, _} = flat(last, scope, memo)
      rebuild(last, operands)
    end

    defp choose([{predicate, body} | clauses], last, scope, memo) do
      {test, memo} = operand(predicate, scope, memo)
      outs = Composite.flatten_list([last])
      branch = fn operands -> Enum.zip_with(operands, outs, &Types.cast(&1, &2.type)) end

      results =
        Control.cond(
          Op.reshape(Types.nonzero(test), shape: []),
          fn [] -> body |> flat(scope, memo) |> elem(0) |> branch.() end,
          fn [] -> clauses |> choose(last, scope, memo) |> operands() |> branch.() end
        )

      rebuild(last, Enum.zip_with(results, outs, &Types.of/2))
    end

    defp operands(%Types{} = one), do: [one]
    defp operands(tuple), do: tuple |> Tuple.to_list() |> Enum.flat_map(&operands/1)

    # Operands in the form of a composite: one, or a tuple.
    defp rebuild(composite, operands) do
      {result, []} = place(composite, operands)
      result
    end

    defp place(%T{}, [operand | rest]), do: {operand, rest}

    defp place(tuple, operands) when is_tuple(tuple) do
      {list, rest} = tuple |> Tuple.to_list() |> Enum.map_reduce(operands, &place/2)
      {List.to_tuple(list), rest}
    end

    defp place(container, operands) do
      {list, rest} =
        [container] |> Composite.flatten_list() |> Enum.map_reduce(operands, &place/2)

      {List.to_tuple(list), rest}
    end

    # A tensor of the expression is an input of the program.
    defp captured(%T{} = tensor) do
      tensors = Process.get(@tensors)
      tensor = Nx.devectorize(tensor)

      case tensors do
        %{^tensor => {_, _, operand}} ->
          operand

        _ ->
          name = "c#{map_size(tensors)}"
          input = Program.input(name, Types.dtype(tensor.type), Tuple.to_list(tensor.shape))
          operand = Types.of(input, tensor)
          Process.put(@tensors, Map.put(tensors, tensor, {name, tensor, operand}))
          operand
      end
    end
  end
end
