defmodule CowMLX.Application do
  @moduledoc false
  use Application

  @impl true
  def start(_type, _arguments) do
    Supervisor.start_link([CowMLX.Cache], strategy: :one_for_one, name: CowMLX.Supervisor)
  end
end
