# Prints what dialyzer finds in the package, or "clean". Arguments: the folder of its modules, and
# the file that receives what dialyzer knows of the modules that it uses.
[folder, plt] = System.argv()

unless Code.ensure_loaded?(:dialyzer) do
  IO.puts("dialyzer is not there")
  System.halt(0)
end

beams = Path.wildcard(Path.join(folder, "*.beam"))
own = Enum.reject(beams, &(Path.basename(&1) == "Elixir.CowMLX.Case.beam"))

used = fn beam ->
  {:ok, {_, chunks}} = :beam_lib.chunks(to_charlist(beam), [:imports, :attributes])
  behaviours = for {:behaviour, names} <- chunks[:attributes], name <- names, do: name
  behaviours ++ Enum.map(chunks[:imports], &elem(&1, 0))
end

names = MapSet.new(beams, &(&1 |> Path.basename(".beam") |> String.to_atom()))

# Nothing is known of Nx, where it is not in the code path.
known =
  for module <- own |> Enum.flat_map(used) |> Enum.uniq(),
      module not in names,
      {:module, ^module} <- [Code.ensure_loaded(module)] do
    path = :code.which(module)
    if path == :preloaded, do: :code.where_is_file(~c"#{module}.beam"), else: path
  end

plt = to_charlist(plt)
run = fn options -> :dialyzer.run([check_plt: false] ++ options) end

run.(analysis_type: :plt_build, files: Enum.map(known, &to_charlist/1), output_plt: plt)
files = Enum.map(own, &to_charlist/1)
# The compiler reports unknown functions; types of modules that it does not call are unknown here.
warnings = [:no_unknown]

case run.(analysis_type: :succ_typings, files: files, init_plt: plt, warnings: warnings) do
  [] -> IO.puts("clean")
  found -> for warning <- found, do: IO.write(:dialyzer.format_warning(warning))
end
