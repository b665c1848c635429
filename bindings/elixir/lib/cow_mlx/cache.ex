defmodule CowMLX.Cache do
  @moduledoc false
  # Programs that compilers have made, by what they were made of. The table lives as long as the
  # application.

  use GenServer

  # Beyond it all are dropped.
  @most 2000

  @doc "Start the owner of the table."
  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  @doc "What is kept for a key."
  @spec fetch(term) :: {:ok, term} | :error
  def fetch(key) do
    case :ets.lookup(__MODULE__, key) do
      [{^key, value}] -> {:ok, value}
      [] -> :error
    end
  rescue
    # The application was not started.
    ArgumentError -> :error
  end

  @doc "Keep a value."
  @spec put(term, term) :: true
  def put(key, value) do
    if :ets.info(__MODULE__, :size) >= @most, do: :ets.delete_all_objects(__MODULE__)
    :ets.insert(__MODULE__, {key, value})
  rescue
    ArgumentError -> true
  end

  @impl true
  def init(nil) do
    {:ok, :ets.new(__MODULE__, [:named_table, :public, read_concurrency: true])}
  end
end
