defmodule CowMLX.MixProject do
  use Mix.Project

  @version "1.0.0"

  def project do
    [
      app: :cowmlx,
      version: @version,
      elixir: "~> 1.18",
      compilers: [:cow_mlx_nif | Mix.compilers()],
      elixirc_paths: elixirc_paths(Mix.env()),
      # Nx may come from ERL_LIBS, as in this package's tests.
      prune_code_paths: System.get_env("ERL_LIBS") in [nil, ""],
      # Nx's tests derive its protocols.
      consolidate_protocols: Mix.env() != :test,
      deps: deps(Mix.env()),
      description: "Language models, arrays, programs and trainings on mlx",
      package: package(),
      test_coverage: [tool: false],
      dialyzer: [plt_add_apps: [:mix]]
    ]
  end

  def application do
    [extra_applications: [:logger], mod: {CowMLX.Application, []}]
  end

  # Nx is optional: as a dependency, which is compiled for :prod, the package takes the Nx of its
  # application. By itself it needs none.
  defp deps(:prod), do: [{:nx, "~> 0.13", optional: true}]
  defp deps(_), do: []

  defp elixirc_paths(:test), do: ["lib", "test/support"]
  defp elixirc_paths(_), do: ["lib"]

  defp package do
    [
      licenses: ["MIT"],
      links: %{},
      files: ["lib", "c_src", "Makefile", "mix.exs", "README.md", ".formatter.exs"]
    ]
  end
end

defmodule Mix.Tasks.Compile.CowMlxNif do
  @moduledoc "Compiles the NIF with make and a C compiler."
  use Mix.Task.Compiler

  @impl true
  def run(_arguments) do
    root = Path.dirname(__ENV__.file)
    output = Path.join(Mix.Project.app_path(), "priv")
    File.mkdir_p!(output)
    erlang = Path.join([:code.root_dir(), "usr", "include"])
    arguments = ["-s", "-C", root, "OUTPUT=#{output}", "ERLANG_INCLUDE=#{erlang}"]

    case System.cmd("make", arguments, stderr_to_stdout: true) do
      {_, 0} ->
        {:ok, []}

      {said, _} ->
        Mix.shell().error(said)
        {:error, []}
    end
  end
end
