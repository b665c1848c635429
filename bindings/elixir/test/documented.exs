# Prints the functions and modules without documentation, and the documented functions without
# a specification of types, or "documented".
{:ok, modules} = :application.get_key(:cowmlx, :modules)

specified = fn module ->
  {:ok, specs} = Code.Typespec.fetch_specs(module)
  MapSet.new(specs, fn {function, _} -> function end)
end

missing =
  for module <- modules -- [CowMLX.Case],
      {:docs_v1, _, _, _, about, _, entries} <- [Code.fetch_docs(module)] do
    open = for {{:function, name, arity}, _, _, :none, _} <- entries, do: {module, name, arity}
    specs = specified.(module)

    # GenServer writes child_spec.
    bare =
      for {{:function, name, arity}, _, _, %{}, _} <- entries,
          name != :child_spec and {name, arity} not in specs,
          do: {module, name, arity, :spec}

    case about do
      :none -> [module | open]
      # Such a module is for the package alone.
      :hidden -> []
      _ -> open ++ bare
    end
  end

case List.flatten(missing) do
  [] -> IO.puts("documented")
  found -> IO.inspect(found, limit: :infinity)
end
