# Prints the functions and modules without documentation, or "documented".
{:ok, modules} = :application.get_key(:cowmlx, :modules)

missing =
  for module <- modules, {:docs_v1, _, _, _, about, _, entries} <- [Code.fetch_docs(module)] do
    open = for {{:function, name, arity}, _, _, :none, _} <- entries, do: {module, name, arity}

    case about do
      :none -> [module | open]
      # Such a module is for the package alone.
      :hidden -> []
      _ -> open
    end
  end

case List.flatten(missing) do
  [] -> IO.puts("documented")
  found -> IO.inspect(found, limit: :infinity)
end
