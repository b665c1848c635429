# Runs Nx's own tests with CowMLX.Backend as the default backend, or with CowMLX.Compiler as the
# compiler of defn. Arguments: the folder of Nx, "backend" or "compiler", and patterns of files.
[folder, way | patterns] = System.argv()
CowMLX.start!(device: "cpu")
{:ok, _} = Application.ensure_all_started(:nx)
{:ok, _} = Application.ensure_all_started(:logger)
Logger.configure(level: :error)
ExUnit.start(autorun: false, timeout: 120_000, exclude: [:slow, :distributed])

defmodule CowMLX.NxSuite do
  # Nx's tests compare tensors as terms, which have their elements in Nx.BinaryBackend alone.
  def require(file) do
    ast = file |> File.read!() |> Code.string_to_quoted!(file: file)

    Macro.prewalk(ast, fn
      {assertion, meta, [compared | more]} when assertion in [:assert, :refute, :unless] ->
        {assertion, meta, [same(compared) | more]}

      other ->
        other
    end)
    |> Code.compile_quoted(file)
  end

  defp same({op, _, [a, b]}) when op in [:==, :===],
    do: quote(do: CowMLX.NxSuite.same?(unquote(a), unquote(b)))

  defp same(other), do: other

  def same?(a, b),
    do:
      plain(a) == plain(b) or
        raise(ExUnit.AssertionError, left: a, right: b, message: "other tensors")

  defp plain(%Nx.Tensor{data: %CowMLX.Backend{}} = tensor),
    do: tensor |> Nx.backend_copy(Nx.BinaryBackend) |> plain()

  defp plain(%{} = map), do: Map.new(Map.to_list(map), fn {key, value} -> {key, plain(value)} end)
  defp plain(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> plain()
  defp plain([head | tail]), do: [plain(head) | plain(tail)]
  defp plain(other), do: other
end

# The tests' helpers.
for file <- Path.wildcard(Path.join(folder, "test/support/**/*.ex")),
    do: CowMLX.NxSuite.require(file)

patterns = if patterns == [], do: ["test/nx_test.exs"], else: patterns
files = for pattern <- patterns, file <- Path.wildcard(Path.join(folder, pattern)), do: file
File.cd!(folder)
for file <- files, do: CowMLX.NxSuite.require(file)
# Attributes of the tests' modules are tensors of Nx.BinaryBackend.
case way do
  "backend" -> Nx.global_default_backend(CowMLX.Backend)
  "compiler" -> Nx.Defn.global_default_options(compiler: CowMLX.Compiler)
end

%{total: total, failures: failures} = ExUnit.run()
IO.puts("#{way}: #{total - failures} of #{total}")
