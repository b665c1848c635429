defmodule CowMLX.Runtime do
  @moduledoc """
  The library's runtime: a Python interpreter and mlx, on a thread of the node.

  `start/1` opens the library and starts it; `stop/0` undoes one start. In a supervision tree the
  runtime is a child that starts before the others:

      children = [{CowMLX.Runtime, device: "cpu"}, MyApp.Models]

  The library is the file that the option `:library`, or the configuration `config :cowmlx,
  library: path`, or the environment's `COWMLX_LIBRARY` names, or else what the system finds as
  `libcowmlx`. It stays open as long as the node runs.
  """

  use GenServer
  require Logger

  alias CowMLX.{Call, Error, Methods, NIF, Options}

  @doc """
  Start the runtime.

  Options: `:library`; `:log`, a process that gets `{:cow_mlx_log, level, message}`; and the members
  of `cow_mlx_runtime_params`:

  #{Options.documented(:runtime_params)}
  """
  @spec start(keyword) :: :ok | {:error, Error.t()}
  def start(options \\ []) do
    {library, options} = Keyword.pop(options, :library)
    {log, options} = Keyword.pop(options, :log)

    with :ok <- open(library || default_library()),
         {:ok, params} <- Options.lower(:runtime_start, :runtime_params, options) do
      Call.wait(:runtime_start, [if(options == [], do: nil, else: params), log])
    end
  end

  @doc "The same as `start/1`; raises a `CowMLX.Error`."
  @spec start!(keyword) :: :ok
  def start!(options \\ []), do: Methods.ok!(start(options))

  @doc "Undo one start; the last one frees every object and ends calls with `:ecanceled`."
  @spec stop() :: :ok | {:error, Error.t()}
  def stop, do: Call.make(:runtime_stop, [])

  @doc "A description of the runtime: versions, device, memory and open handles."
  @spec info() :: {:ok, map} | {:error, Error.t()}
  def info, do: Call.make(:runtime_info, [])

  @doc "The same as `info/0`; raises a `CowMLX.Error`."
  @spec info!() :: map
  def info!, do: Methods.ok!(info())

  @doc "Return memory to the system that the library keeps for reuse."
  @spec trim_memory() :: :ok | {:error, Error.t()}
  def trim_memory, do: Call.make(:memory_trim, [])

  @doc "All operations of programs and arrays, as `cow_mlx_operations_info()` describes them."
  @spec operations() :: {:ok, [map]} | {:error, Error.t()}
  def operations, do: Call.make(:operations_info, [])

  @doc "The version of the library, or nil if it is not open."
  @spec version() :: String.t() | nil
  def version, do: NIF.version()

  defp open(path) do
    case NIF.open(path) do
      :ok -> :ok
      problem -> Call.result(:runtime_start, [path], problem)
    end
  end

  defp default_library do
    Application.get_env(:cowmlx, :library) || System.get_env("COWMLX_LIBRARY") || system_name()
  end

  defp system_name do
    case :os.type() do
      {:unix, :darwin} -> "libcowmlx.1.dylib"
      _ -> "libcowmlx.so.1"
    end
  end

  @doc "Start a process that holds one start of the runtime, for a supervisor."
  @spec start_link(keyword) :: GenServer.on_start()
  def start_link(options \\ []) do
    GenServer.start_link(__MODULE__, options, name: Keyword.get(options, :name, __MODULE__))
  end

  @impl true
  def init(options) do
    Process.flag(:trap_exit, true)
    options = options |> Keyword.delete(:name) |> Keyword.put_new(:log, self())

    case start(options) do
      :ok -> {:ok, nil}
      {:error, error} -> {:stop, error}
    end
  end

  @impl true
  def handle_info({:cow_mlx_log, level, message}, state) do
    Logger.log(if(level == 1, do: :warning, else: :info), message)
    {:noreply, state}
  end

  def handle_info(_, state), do: {:noreply, state}

  @impl true
  def terminate(_reason, _state), do: stop()
end
